"""x + bias, times the normal distribution's integral up to it; runs of a row are shared out."""

import numba
import numpy as np

from portkern.backends.cpu.include.exponential import normal_cdf

BLOCK = 4096  # knob: 1024 4096 16384
ZERO = np.float32(0.0)
LOWEST_X = np.float32(-15.0)


@numba.njit(error_model="numpy")
def gelu(x, bias, y):
    for i in range(y.size):
        v = x[i] + bias[i]
        z = v * normal_cdf(v)
        y[i] = ZERO if v < LOWEST_X else z  # -infinity * 0 would be NaN


@numba.njit(parallel=True)
def bias_gelu(x, bias, y):
    rows, cols = x.shape
    blocks = (cols + BLOCK - 1) // BLOCK
    for job in numba.prange(rows * blocks):
        row, left = job // blocks, job % blocks * BLOCK
        right = min(left + BLOCK, cols)
        gelu(x[row][left:right], bias[left:right], y[row][left:right])
