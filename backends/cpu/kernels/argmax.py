"""The largest element of each block, in order; then its place in the first block that has it."""

import numba
import numpy as np

BLOCK = 256  # knob: 64 256 1024
ZERO = np.float32(0.0)
LEAST = np.int32(-(2**31))
NAN = np.int32(2**31 - 1)


@numba.njit
def ordered(v):
    """An integer that compares as v does, with NaN above all. Unlike a maximum of floats, one of
    integers is vectorised, since it may be taken in any order."""
    bits = np.float32(v + ZERO).view(np.int32)  # -0 becomes 0
    flipped = np.int32(bits ^ np.int32(np.int32(bits >> 31) & np.int32(0x7FFFFFFF)))
    return NAN if v != v else flipped


@numba.njit
def largest(x):
    top = LEAST
    for i in range(x.size):
        top = max(top, ordered(x[i]))
    return top


@numba.njit
def place(x):
    best, start = LEAST, 0
    for i in range(0, x.size, BLOCK):
        top = largest(x[i : i + BLOCK])
        if top > best:
            best, start = top, i
    while ordered(x[start]) != best:
        start += 1
    return start


@numba.njit(parallel=True)
def argmax(x, index):
    for row in numba.prange(x.shape[0]):
        index[row] = place(x[row])
