import numba
import numpy as np

from portkern.backends.cpu.include.exponential import normal_cdf

BLOCK = 16384  # knob: 4096 16384 65536
ZERO = np.float32(0.0)
LOWEST_X = np.float32(-15.0)


@numba.njit(parallel=True, error_model="numpy")
def gelu(x, y):
    for job in numba.prange((x.size + BLOCK - 1) // BLOCK):
        here, there = x[job * BLOCK : (job + 1) * BLOCK], y[job * BLOCK : (job + 1) * BLOCK]
        for i in range(here.size):
            v = here[i]
            z = v * normal_cdf(v)
            there[i] = ZERO if v < LOWEST_X else z  # -infinity * 0 would be NaN
