"""log(sum(e**(x - top))) + top - x[target], where top is the row's largest element."""

import math

import numba
import numpy as np

from portkern.backends.cpu.include.exponential import exp_beside_one
from portkern.backends.cpu.include.ordering import row_max

BLOCK = 1024  # knob: 256 1024 4096


@numba.njit
def sum_exp(x, top, powers):
    """Halves are added to each other: this is vectorised, and its error does not grow much."""
    for i in range(x.size):
        powers[i] = exp_beside_one(x[i] - top)
    count = x.size
    while count > 1:
        rest = count // 2
        low, high = powers[:rest], powers[count - rest : count]
        for i in range(rest):
            low[i] += high[i]
        count -= rest
    return powers[0]


@numba.njit(parallel=True)
def cross_entropy(logits, target, loss):
    rows, classes = logits.shape
    for row in numba.prange(rows):
        powers = np.empty(BLOCK, np.float32)
        x, total = logits[row], np.float32(0.0)
        top = row_max(x)
        for start in range(0, classes, BLOCK):
            total += sum_exp(x[start : start + BLOCK], top, powers)
        loss[row] = np.float32(math.log(total)) + (top - x[target[row]])
