"""Blocks of both matrices are copied to buffers; four rows of sums stay in the L1 cache while four
rows of b at a time are added to them. One product alone is made as matmul makes it."""

import numba
import numpy as np

from portkern.backends.cpu.include.product import multiply_tile, multiplying
from portkern.backends.cpu.include.rows import copy

MC = 64  # knob: 16 32 64 128
KC = 128  # knob: 64 128 256
NC = 256  # knob: 128 256 512
FEW = 4  # knob: 1 2 4 8
multiply = multiplying(MC, KC, NC, FEW)


@numba.njit(parallel=True)
def in_tiles(a, b, c):
    batch, m, n = c.shape
    down, across = (m + MC - 1) // MC, (n + NC - 1) // NC
    for job in numba.prange(batch * down * across):
        one, part = job // (down * across), job % (down * across)
        top, left = part // across * MC, part % across * NC
        block_a = np.empty((MC, KC), np.float32)
        block_b = np.empty((KC, NC), np.float32)
        sums = np.empty((MC, NC), np.float32)
        buffers = (block_a, block_b, sums)
        rows, width = multiply_tile(a[one], b[one], top, left, buffers)
        for i in range(rows):
            copy(sums[i], c[one][top + i][left : left + width])


@numba.njit
def bmm(a, b, c):
    if c.shape[0] == 1:
        multiply(a[0], b[0], c[0])
    else:
        in_tiles(a, b, c)
