"""Floats as integers that compare as they do. Unlike a maximum of floats, one of integers is
vectorised, since it may be taken in any order."""

import numba
import numpy as np

ZERO = np.float32(0.0)
LEAST = np.int32(-(2**31))
NAN = np.int32(2**31 - 1)


@numba.njit
def _ordered(bits):
    """An integer that compares as the float of these bits does; applied again, the bits."""
    return np.int32(bits ^ np.int32(np.int32(bits >> 31) & np.int32(0x7FFFFFFF)))


@numba.njit
def ordered(v):
    """An integer above -(2**31) that compares as v does, with NaN above all."""
    bits = np.float32(v + ZERO).view(np.int32)  # -0 becomes 0
    flipped = _ordered(bits)  # before it is chosen: a call in a branch is not vectorised
    return NAN if v != v else flipped


@numba.njit
def _largest(x):
    """The largest of the integers that order the values of x."""
    top = LEAST
    for i in range(x.size):
        top = max(top, ordered(x[i]))
    return top


@numba.njit
def first_largest(x, block):
    """The place of the largest element, the first of equal ones: the largest of each block, in
    order; then its place in the first block that has it."""
    best, start = LEAST, 0
    for i in range(0, x.size, block):
        top = _largest(x[i : i + block])
        if top > best:
            best, start = top, i
    while ordered(x[start]) != best:
        start += 1
    return start


@numba.njit
def row_max(x):
    """The largest element; which one it is with a NaN depends on the NaN's sign."""
    top = LEAST
    for i in range(x.size):
        top = max(top, _ordered(np.float32(x[i]).view(np.int32)))
    return np.int32(_ordered(top)).view(np.float32)
