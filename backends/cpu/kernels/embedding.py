"""Each output row is a copy of the table's row that its index names."""

import numba

from portkern.backends.cpu.include.rows import copy
from portkern.backends.cpu.include.threads import sharing

PARALLEL_FROM = 32768  # knob: 8192 32768 131072


@numba.njit
def rows(begin, end, table, index, y):
    for i in range(begin, end):
        copy(table[index[i]], y[i])


share_rows = sharing(rows, PARALLEL_FROM)


@numba.njit
def embedding(table, index, y):
    share_rows(y.shape[0], y.size, table, index, y)
