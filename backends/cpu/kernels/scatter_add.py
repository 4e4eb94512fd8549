"""Each output row is made by one thread, which adds the rows of src in their order; of few rows
that are named often, each thread makes sums of its own.

The wide rows of src that go to one row of y form a linked list, so that nothing is searched or
locked. Narrow ones are shorter than what a list keeps of them: who has a range of y reads all of
the index.
"""

import numba
import numpy as np

from portkern.backends.cpu.include.rows import copy, fill
from portkern.backends.cpu.include.threads import sharing

BLOCK = 1024  # knob: 256 1024 4096
NARROW = 16  # knob: 8 16 32
FEW = 4096  # knob: 1024 4096 16384
PARALLEL_FROM = 32768  # knob: 8192 32768 131072
TURNS = 4
ZERO = np.float32(0.0)


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


@numba.njit
def wide_rows(begin, end, x, first, after, src, y):
    """Rows follow each other: neighbours would share a thread with a row that is named very
    often."""
    rows, dim = y.shape
    for job in range(begin, end):
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


@numba.njit(forceinline=True)
def add_row(src, at, dim, to, start):
    for d in range(dim):
        to[np.uint64(start + d)] += src[np.uint64(at + d)]


@numba.njit
def narrow_rows(begin, end, x, index, src, y, dim):
    copy(x[begin * dim : end * dim], y[begin * dim : end * dim])
    for i in range(index.size):
        if begin <= index[i] < end:
            add_row(src, i * dim, dim, y, index[i] * dim)


@numba.njit
def own_sums(begin, end, index, src, sums, dim):
    """Of a part of src, in turns: what was just stored is not waited for, and errors are less."""
    parts, n = sums.shape[0], index.size
    for part in range(begin, end):
        fill(sums[part], ZERO)
        size = sums.shape[1] // TURNS
        for i in range(part * n // parts, (part + 1) * n // parts):
            add_row(src, i * dim, dim, sums[part], i % TURNS * size + index[i] * dim)


share_wide = sharing(wide_rows, PARALLEL_FROM)
share_narrow = sharing(narrow_rows, PARALLEL_FROM)
share_sums = sharing(own_sums, PARALLEL_FROM)


@numba.njit
def scatter_add(x, index, src, y):
    rows, dim = y.shape
    flat, to, terms = x.reshape(x.size), y.reshape(y.size), src.reshape(src.size)
    if dim > NARROW:
        first, after = lists(index, rows)
        jobs = rows * ((dim + BLOCK - 1) // BLOCK)
        share_wide(jobs, x.size + src.size, x, first, after, src, y)
    elif y.size <= FEW and index.size >= 16 * TURNS * rows:
        sums = np.empty((numba.get_num_threads(), TURNS * y.size), np.float32)
        share_sums(sums.shape[0], src.size, index, terms, sums, dim)
        copy(flat, to)
        for own in sums.reshape(sums.shape[0] * TURNS, y.size):
            add(to, own, to)
    else:
        share_narrow(rows, x.size + src.size, flat, index, terms, to, dim)
