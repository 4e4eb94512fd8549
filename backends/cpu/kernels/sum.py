import numba
import numpy as np

from portkern.backends.cpu.include.sums import summing

LANES = 32  # knob: 8 16 32 64
TILE = 256  # knob: 64 128 256 512
BLOCK = 128  # knob: 64 128 256 512
sum_run = summing(LANES, BLOCK)  # of what lies in one piece


@numba.njit
def sum_columns(x, y, first, width):
    """Rows are sliced one by one: slices of all columns have no known stride, and indices that
    might be negative (``first + j``) are checked; neither kind of loop is vectorised."""
    part = np.empty(TILE, np.float32)
    total = np.zeros(TILE, np.float32)
    for start in range(0, x.shape[0], BLOCK):
        part[:] = 0.0
        for r in range(start, min(start + BLOCK, x.shape[0])):
            row = x[r][first : first + width]
            for j in range(width):
                part[j] += row[j]
        for j in range(width):
            total[j] += part[j]
    for j in range(width):
        y[first + j] = total[j]


@numba.njit(parallel=True)
def sum(x, y):
    outer, _, inner = x.shape
    if inner == 1:
        for o in numba.prange(outer):
            y[o, 0] = sum_run(x[o].ravel())
        return
    tiles = (inner + TILE - 1) // TILE
    for job in numba.prange(outer * tiles):
        o, first = job // tiles, job % tiles * TILE
        sum_columns(x[o], y[o], first, min(TILE, inner - first))
