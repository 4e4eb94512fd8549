import math

import numba
import numpy as np

from portkern.backends.cpu.include.sums import summing

ONE = np.float32(1.0)
LANES = 16  # knob: 8 16 32 64
BLOCK = 64  # knob: 32 64 128


@numba.njit
def square(v):
    return v * v


sum_of_squares = summing(LANES, BLOCK, square)


@numba.njit(parallel=True)
def rmsnorm(x, weight, y, eps):
    rows, cols = x.shape
    for row in numba.prange(rows):
        scale = ONE / np.float32(math.sqrt(sum_of_squares(x[row]) / np.float32(cols) + eps))
        for i in range(cols):
            y[row, i] = x[row, i] * scale * weight[i]
