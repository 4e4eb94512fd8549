"""Loops over one row. They are functions so that the row arrives as an array of its own, whose
stride the compiler knows."""

import numba


@numba.njit
def fill(to, value):
    for j in range(to.size):
        to[j] = value


@numba.njit
def copy(x, to):
    """As many elements as ``to`` has."""
    for j in range(to.size):
        to[j] = x[j]


@numba.njit
def turn(x, first, to):
    """Rows of x from ``first`` on become columns of ``to``, as many as both have: the loops along
    them are then as long as ``to`` is wide, however narrow x is. Returns how many."""
    count = min(to.shape[1], x.shape[0] - first)
    for r in range(count):
        for j in range(x.shape[1]):
            to[j, r] = x[first + r, j]
    return count


@numba.njit
def turn_back(columns, count, y, first):
    for r in range(count):
        for j in range(y.shape[1]):
            y[first + r, j] = columns[j, r]
