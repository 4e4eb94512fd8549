"""The largest element of each block, in order; then its place in the first block that has it. Of a
narrow row each element is asked in turn: its loops would be too short."""

import numba

from portkern.backends.cpu.include.ordering import first_largest, ordered
from portkern.backends.cpu.include.threads import sharing

BLOCK = 256  # knob: 64 256 1024
NARROW = 16  # knob: 8 16 32
PARALLEL_FROM = 32768  # knob: 8192 32768 131072


@numba.njit
def narrow_rows(begin, end, x, index):
    cols = x.shape[1]
    for row in range(begin, end):
        best, place = ordered(x[row, 0]), 0
        for j in range(1, cols):
            v = ordered(x[row, j])
            place = j if v > best else place
            best = max(best, v)
        index[row] = place


@numba.njit
def wide_rows(begin, end, x, index):
    for row in range(begin, end):
        index[row] = first_largest(x[row], BLOCK)


share_narrow = sharing(narrow_rows, PARALLEL_FROM)
share_wide = sharing(wide_rows, PARALLEL_FROM)


@numba.njit
def argmax(x, index):
    if 0 < x.shape[1] <= NARROW:
        share_narrow(x.shape[0], x.size, x, index)
    else:
        share_wide(x.shape[0], x.size, x, index)
