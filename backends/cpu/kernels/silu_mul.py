"""The sigmoid from e**-|gate|, which cannot overflow; blocks of elements are shared out."""

import numba
import numpy as np

from portkern.backends.cpu.include.exponential import exp_below_zero

BLOCK = 8192  # knob: 2048 8192 32768
ONE = np.float32(1.0)
ZERO = np.float32(0.0)


# The numpy error model: a check for division by zero would keep the loop from being vectorised.
@numba.njit(error_model="numpy")
def gated(gate, up, y):
    for i in range(y.size):
        g = gate[i]
        e = exp_below_zero(-abs(g))
        y[i] = g * ((e if g < ZERO else ONE) / (ONE + e)) * up[i]


@numba.njit(parallel=True)
def silu_mul(gate, up, y):
    for job in numba.prange((y.size + BLOCK - 1) // BLOCK):
        start = job * BLOCK
        stop = min(start + BLOCK, y.size)
        gated(gate[start:stop], up[start:stop], y[start:stop])
