import math

import numba
import numpy as np

ZERO = np.float32(0.0)
ONE = np.float32(1.0)
LANES = 16  # knob: 8 16 32 64
BLOCK = 64  # knob: 32 64 128


@numba.njit
def fold(lanes):
    """The sum of LANES elements, in pairs of halves."""
    width = LANES // 2
    while width > 0:
        for k in range(width):
            lanes[k] += lanes[k + width]
        width //= 2
    return lanes[0]


@numba.njit
def moment(x, shift, square):
    """The sum of x - shift or its square; E[x^2] - E[x]^2 would lose the digits of a large mean."""
    lanes = np.zeros(LANES, np.float32)
    total = np.float32(0.0)
    for start in range(0, x.size, BLOCK * LANES):  # the error grows with the number of blocks
        stop = min(start + BLOCK * LANES, x.size)
        whole = start + (stop - start) // LANES * LANES
        lanes[:] = 0.0
        for i in range(start, whole, LANES):
            for k in range(LANES):
                v = x[i + k] - shift
                lanes[k] += v * v if square else v
        for i in range(whole, stop):
            v = x[i] - shift
            lanes[i - whole] += v * v if square else v
        total += fold(lanes)
    return total


@numba.njit(parallel=True)
def layernorm(x, weight, bias, y, eps):
    rows, cols = x.shape
    count = np.float32(cols)
    for row in numba.prange(rows):
        first = x[row, 0] if cols > 0 else ZERO
        mean = first + moment(x[row], first, False) / count
        scale = ONE / np.float32(math.sqrt(moment(x[row], mean, True) / count + eps))
        for i in range(cols):
            y[row, i] = (x[row, i] - mean) * scale * weight[i] + bias[i]
