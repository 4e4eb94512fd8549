"""The product as linear makes it; then the bias is added to its rows."""

import numba

from portkern.backends.cpu.include.product import meeting_rows, multiplying, turned
from portkern.backends.cpu.include.threads import sharing

MC = 64  # knob: 16 32 64 128
KC = 128  # knob: 64 128 256
NC = 256  # knob: 128 256 512
FEW = 16  # knob: 4 8 16 32
PARALLEL_FROM = 65536  # knob: 16384 65536
multiply = multiplying(MC, KC, NC, FEW)


@numba.njit
def add_to_rows(begin, end, bias, y):
    for i in range(begin, end):
        row = y[i]
        for j in range(row.size):
            row[j] += bias[j]


share_rows = sharing(add_to_rows, PARALLEL_FROM)


@numba.njit
def linear_bias(x, weight, bias, y):
    (m, n), k = y.shape, x.shape[1]
    if m <= FEW:
        meeting_rows(weight, x, y)
    elif n > 0:
        multiply(x.reshape(1, m, k), turned(weight).reshape(1, k, n), y.reshape(1, m, n))
    share_rows(m, y.size, bias, y)
