"""Each output row is made by one thread, which adds the rows of src in their order.

The rows of src that go to one row of y form a linked list, so that nothing is searched or locked.
"""

import numba
import numpy as np

from portkern.backends.cpu.include.rows import copy

BLOCK = 1024  # knob: 256 1024 4096


@numba.njit
def lists(index, rows):
    """The first row of src for each row of y, and the next one after each row of src; -1: none."""
    first = np.full(rows, -1, np.int64)
    after = np.empty(index.size, np.int64)
    for i in range(index.size - 1, -1, -1):  # backwards, so that the lists go forwards
        after[i] = first[index[i]]
        first[index[i]] = i
    return first, after


@numba.njit
def add(one, other, to):
    for j in range(to.size):
        to[j] = one[j] + other[j]


@numba.njit(parallel=True)
def scatter_add(x, index, src, y):
    rows, dim = y.shape
    first, after = lists(index, rows)
    pieces = (dim + BLOCK - 1) // BLOCK
    # Rows follow each other: neighbours would share a thread with a row that is named very often.
    for job in numba.prange(rows * pieces):
        row, left = job % rows, job // rows * BLOCK
        right = min(left + BLOCK, dim)
        to, i = y[row][left:right], first[row]
        if i < 0:
            copy(x[row][left:right], to)
            continue
        add(x[row][left:right], src[i][left:right], to)
        i = after[i]
        while i >= 0:
            add(to, src[i][left:right], to)
            i = after[i]
