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
