"""Blocks of both matrices are copied to buffers; four rows of sums stay in the L1 cache while four
rows of b at a time are added to them."""

import numba
import numpy as np

from portkern.backends.cpu.include.product import multiply_tile
from portkern.backends.cpu.include.rows import copy

MC = 64  # knob: 16 32 64 128
KC = 128  # knob: 64 128 256
NC = 256  # knob: 128 256 512


@numba.njit(parallel=True)
def matmul(a, b, c):
    m, n = c.shape
    down, across = (m + MC - 1) // MC, (n + NC - 1) // NC
    for job in numba.prange(down * across):
        top, left = job // across * MC, job % across * NC
        block_a = np.empty((MC, KC), np.float32)
        block_b = np.empty((KC, NC), np.float32)
        sums = np.empty((MC, NC), np.float32)
        buffers = (block_a, block_b, sums)
        rows, width = multiply_tile(a, b, top, left, buffers)
        for i in range(rows):
            copy(sums[i], c[top + i][left : left + width])
