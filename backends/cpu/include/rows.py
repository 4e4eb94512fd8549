"""Loops over one row. They are functions so that the row arrives as an array of its own, whose
stride the compiler knows."""

import numba
import numpy as np

SHORT = 8  # elements: half of a line of memory


@numba.njit
def fill(to, value):
    for j in range(to.size):
        to[j] = value


@numba.njit
def copy(x, to):
    """Copies as many elements as ``to`` has."""
    for j in range(to.size):
        to[j] = x[j]


@numba.njit
def _take_every(x, step, to):
    for r in range(to.size):
        to[r] = x[np.uint64(r * step)]  # which cannot be negative: indices that might are checked


@numba.njit
def _give_every(x, step, to):
    for r in range(x.size):
        to[np.uint64(r * step)] = x[r]


@numba.njit
def turn(x, first, to):
    """Rows of x from ``first`` on become columns of ``to``, as many as both have: the loops along
    them are then as long as ``to`` is wide, however narrow x is. Returns how many.

    Column by column while a line of memory holds several rows; of longer ones each column would go
    through all of that memory."""
    cols, count = x.shape[1], min(to.shape[1], x.shape[0] - first)
    if cols <= SHORT:
        flat = x[first : first + count].reshape(count * cols)
        for j in range(cols):
            _take_every(flat[j:], cols, to[j][:count])
    else:
        for r in range(count):
            for j in range(cols):
                to[j, r] = x[first + r, j]
    return count


@numba.njit
def turn_back(columns, count, y, first):
    cols = y.shape[1]
    if cols <= SHORT:
        flat = y[first : first + count].reshape(count * cols)
        for j in range(cols):
            _give_every(columns[j][:count], cols, flat[j:])
    else:
        for r in range(count):
            for j in range(cols):
                y[first + r, j] = columns[j, r]
