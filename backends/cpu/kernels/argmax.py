"""The largest element of each block, in order; then its place in the first block that has it."""

import numba
import numpy as np

from portkern.backends.cpu.include.ordering import ordered

BLOCK = 256  # knob: 64 256 1024
LEAST = np.int32(-(2**31))


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
