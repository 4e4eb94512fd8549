"""Blocks of both matrices are copied to buffers; four rows of sums stay in the L1 cache while four
rows of b at a time are added to them. Of few columns each result is a sum along memory, and of one
tile threads share the terms."""

import numba

from portkern.backends.cpu.include.product import multiplying

MC = 64  # knob: 16 32 64 128
KC = 128  # knob: 64 128 256
NC = 256  # knob: 128 256 512
FEW = 16  # knob: 4 8 16 32
multiply = multiplying(MC, KC, NC, FEW)


@numba.njit
def matmul(a, b, c):
    (m, n), k = c.shape, a.shape[1]
    multiply(a.reshape(1, m, k), b.reshape(1, k, n), c.reshape(1, m, n))
