"""The sigmoid from e**-|gate|, which cannot overflow."""

import numba
import numpy as np

from portkern.backends.cpu.include.exponential import exp_below_zero
from portkern.backends.cpu.include.threads import sharing

PARALLEL_FROM = 16384  # knob: 4096 16384 65536
ONE = np.float32(1.0)
ZERO = np.float32(0.0)


# The numpy error model: a check for division by zero would keep the loop from being vectorised.
@numba.njit(error_model="numpy")
def gated(gate, up, y):
    for i in range(y.size):
        g = gate[i]
        e = exp_below_zero(-abs(g))
        y[i] = g * ((e if g < ZERO else ONE) / (ONE + e)) * up[i]


@numba.njit
def parts(begin, end, gate, up, y):
    gated(gate[begin:end], up[begin:end], y[begin:end])


share = sharing(parts, PARALLEL_FROM)


@numba.njit
def silu_mul(gate, up, y):
    share(y.size, y.size, gate, up, y)
