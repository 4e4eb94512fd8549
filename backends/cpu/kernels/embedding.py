"""Each output row is a copy of the table's row that its index names."""

import numba

from portkern.backends.cpu.include.rows import copy

ROWS = 8  # knob: 2 8 32


@numba.njit(parallel=True)
def embedding(table, index, y):
    n = y.shape[0]
    for job in numba.prange((n + ROWS - 1) // ROWS):
        for i in range(job * ROWS, min(job * ROWS + ROWS, n)):
            copy(table[index[i]], y[i])
