"""Few rows of x meet each row of the weight, which is read along memory; of more, the weight's rows
become columns first and the product is made as matmul makes it."""

import numba

from portkern.backends.cpu.include.product import meeting_rows, multiplying, turned

MC = 64  # knob: 16 32 64 128
KC = 128  # knob: 64 128 256
NC = 256  # knob: 128 256 512
FEW = 16  # knob: 4 8 16 32
multiply = multiplying(MC, KC, NC, FEW)


@numba.njit
def linear(x, weight, y):
    (m, n), k = y.shape, x.shape[1]
    if m <= FEW:
        meeting_rows(weight, x, y)
    elif n > 0:
        multiply(x.reshape(1, m, k), turned(weight).reshape(1, k, n), y.reshape(1, m, n))
