import math

import numba
import numpy as np

from portkern.backends.cpu.include.sums import summing

ZERO = np.float32(0.0)
ONE = np.float32(1.0)
LANES = 16  # knob: 8 16 32 64
BLOCK = 64  # knob: 32 64 128


@numba.njit
def deviation(v, center):
    return v - center


@numba.njit
def squared_deviation(v, center):
    """Of the mean itself: E[x^2] - E[x]^2 would lose the digits of a large mean."""
    return (v - center) * (v - center)


deviations = summing(LANES, BLOCK, deviation)
squared_deviations = summing(LANES, BLOCK, squared_deviation)


@numba.njit(parallel=True)
def layernorm(x, weight, bias, y, eps):
    rows, cols = x.shape
    count = np.float32(cols)
    for row in numba.prange(rows):
        first = x[row, 0] if cols > 0 else ZERO
        mean = first + deviations(x[row], first) / count
        scale = ONE / np.float32(math.sqrt(squared_deviations(x[row], mean) / count + eps))
        for i in range(cols):
            y[row, i] = (x[row, i] - mean) * scale * weight[i] + bias[i]
