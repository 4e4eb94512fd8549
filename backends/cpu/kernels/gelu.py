import math

import numba
import numpy as np

HALF = np.float32(0.5)
ONE = np.float32(1.0)
ROOT = np.float32(math.sqrt(0.5))


@numba.njit(parallel=True)
def gelu(x, y):
    for i in numba.prange(x.size):
        v = x[i]
        y[i] = HALF * v * (ONE + math.erf(v * ROOT))
