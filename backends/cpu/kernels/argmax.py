"""The largest element of each block, in order; then its place in the first block that has it. Of a
narrow row each element is asked in turn: its loops would be too short."""

import numba

from portkern.backends.cpu.include.ordering import first_largest, ordered

BLOCK = 256  # knob: 64 256 1024
NARROW = 16  # knob: 8 16 32


@numba.njit(parallel=True)
def narrow_rows(x, index):
    rows, cols = x.shape
    for row in numba.prange(rows):
        best, place = ordered(x[row, 0]), 0
        for j in range(1, cols):
            v = ordered(x[row, j])
            place = j if v > best else place
            best = max(best, v)
        index[row] = place


@numba.njit(parallel=True)
def wide_rows(x, index):
    for row in numba.prange(x.shape[0]):
        index[row] = first_largest(x[row], BLOCK)


@numba.njit
def argmax(x, index):
    if 0 < x.shape[1] <= NARROW:
        narrow_rows(x, index)
    else:
        wide_rows(x, index)
