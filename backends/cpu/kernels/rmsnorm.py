import math

import numba
import numpy as np

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
def sum_of_squares(x):
    lanes = np.zeros(LANES, np.float32)
    total = np.float32(0.0)
    for start in range(0, x.size, BLOCK * LANES):  # the error grows with the number of blocks
        stop = min(start + BLOCK * LANES, x.size)
        whole = start + (stop - start) // LANES * LANES
        lanes[:] = 0.0
        for i in range(start, whole, LANES):
            for k in range(LANES):
                lanes[k] += x[i + k] * x[i + k]
        for i in range(whole, stop):
            lanes[i - whole] += x[i] * x[i]
        total += fold(lanes)
    return total


@numba.njit(parallel=True)
def rmsnorm(x, weight, y, eps):
    rows, cols = x.shape
    for row in numba.prange(rows):
        scale = ONE / np.float32(math.sqrt(sum_of_squares(x[row]) / np.float32(cols) + eps))
        for i in range(cols):
            y[row, i] = x[row, i] * scale * weight[i]
