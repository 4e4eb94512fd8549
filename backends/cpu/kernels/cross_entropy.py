"""log(sum(e**(x - top))) + top - x[target], where top is the row's largest element."""

import math

import numba
import numpy as np

from portkern.backends.cpu.include.exponential import exp_beside_one
from portkern.backends.cpu.include.ordering import row_max
from portkern.backends.cpu.include.sums import summing
from portkern.backends.cpu.include.threads import sharing

BLOCK = 1024  # knob: 256 1024 4096
PARALLEL_FROM = 16384  # knob: 4096 16384 65536


@numba.njit
def power(v, top):
    return exp_beside_one(v - top)


sum_of_powers = summing(BLOCK, power)


@numba.njit
def rows(begin, end, logits, target, loss):
    for row in range(begin, end):
        x = logits[row]
        top = row_max(x)
        loss[row] = np.float32(math.log(sum_of_powers(x, top))) + (top - x[target[row]])


share_rows = sharing(rows, PARALLEL_FROM)


@numba.njit
def cross_entropy(logits, target, loss):
    share_rows(loss.size, logits.size, logits, target, loss)
