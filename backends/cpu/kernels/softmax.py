import numba
import numpy as np

from portkern.backends.cpu.include.exponential import exp_below_zero
from portkern.backends.cpu.include.ordering import row_max
from portkern.backends.cpu.include.sums import summing

LANES = 16  # knob: 8 16 32
BLOCK = 64  # knob: 32 64 128
row_sum = summing(LANES, BLOCK)
ONE = np.float32(1.0)


@numba.njit
def powers(x, top, y):
    for i in range(x.size):
        y[i] = exp_below_zero(x[i] - top)


@numba.njit(parallel=True)
def softmax(x, y):
    for row in numba.prange(x.shape[0]):
        terms = y[row]
        powers(x[row], row_max(x[row]), terms)
        scale = ONE / row_sum(terms)
        for i in range(terms.size):
            terms[i] *= scale
