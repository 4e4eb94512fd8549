import math

import numba
import numpy as np

ONE = np.float32(1.0)
LANES = 16  # knob: 8 16 32 64


@numba.njit
def sum_of_squares(x):
    lanes = np.zeros(LANES, np.float32)
    whole = x.size // LANES * LANES
    for i in range(0, whole, LANES):
        for k in range(LANES):
            lanes[k] += x[i + k] * x[i + k]
    total = np.float32(0.0)
    for k in range(LANES):
        total += lanes[k]
    for i in range(whole, x.size):
        total += x[i] * x[i]
    return total


@numba.njit(parallel=True)
def rmsnorm(x, weight, y, eps):
    rows, cols = x.shape
    for row in numba.prange(rows):
        scale = ONE / np.float32(math.sqrt(sum_of_squares(x[row]) / np.float32(cols) + eps))
        for i in range(cols):
            y[row, i] = x[row, i] * scale * weight[i]
