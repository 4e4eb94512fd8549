import numba
import numpy as np

LANES = 32  # knob: 8 16 32 64
TILE = 256  # knob: 64 128 256 512
BLOCK = 128  # knob: 64 128 256 512


@numba.njit
def fold(lanes):
    """The sum of LANES elements, in pairs of halves."""
    width = LANES // 2
    while width > 0:
        for k in range(width):
            lanes[k] += lanes[k + width]
        width //= 2
    return lanes[0]


@numba.njit
def sum_run(x):
    """The sum of a contiguous run: LANES running sums, which the compiler keeps in registers."""
    lanes = np.zeros(LANES, np.float32)
    total = np.float32(0.0)
    for start in range(0, x.size, BLOCK * LANES):
        stop = min(start + BLOCK * LANES, x.size)
        whole = start + (stop - start) // LANES * LANES
        lanes[:] = 0.0
        for i in range(start, whole, LANES):
            for k in range(LANES):
                lanes[k] += x[i + k]
        for i in range(whole, stop):
            lanes[i - whole] += x[i]
        total += fold(lanes)  # blocks of their own keep the error from growing with the length
    return total


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
