"""The product as matmul makes it, weights as floats in its buffers; then its columns are scaled."""

import numba

from portkern.backends.cpu.include.product import multiplying
from portkern.backends.cpu.include.threads import sharing

MC = 64  # knob: 16 32 64 128
KC = 128  # knob: 64 128 256
NC = 256  # knob: 128 256 512
FEW = 16  # knob: 4 8 16 32
PARALLEL_FROM = 65536  # knob: 16384 65536
multiply = multiplying(MC, KC, NC, FEW)


@numba.njit
def scale_rows(begin, end, scale, c):
    for i in range(begin, end):
        row = c[i]
        for j in range(row.size):
            row[j] *= scale[j]


share_rows = sharing(scale_rows, PARALLEL_FROM)


@numba.njit
def int8_matmul(a, weight, scale, c):
    (m, n), k = c.shape, a.shape[1]
    multiply(a.reshape(1, m, k), weight.reshape(1, k, n), c.reshape(1, m, n))
    share_rows(m, c.size, scale, c)
