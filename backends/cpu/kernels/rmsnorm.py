import math

import numba
import numpy as np

from portkern.backends.cpu.include.rows import turn, turn_back
from portkern.backends.cpu.include.sums import become_scales, summing

ONE = np.float32(1.0)
LANES = 16  # knob: 8 16 32 64
BLOCK = 64  # knob: 32 64 128
NARROW = 24  # knob: 12 24 48
TALL = 128  # knob: 64 128 256


@numba.njit
def square(v):
    return v * v


sum_of_squares = summing(LANES, BLOCK, square)


@numba.njit
def add_squares(x, total):
    for i in range(x.size):
        total[i] += x[i] * x[i]


@numba.njit
def multiply(x, scale, weight):
    for i in range(x.size):
        x[i] = x[i] * scale[i] * weight


@numba.njit(parallel=True)
def narrow_rows(x, weight, y, eps):
    """TALL rows at once, element by element."""
    rows, cols = x.shape
    for job in numba.prange((rows + TALL - 1) // TALL):
        columns, total = np.zeros((cols, TALL), np.float32), np.zeros(TALL, np.float32)
        count = turn(x, job * TALL, columns)
        for j in range(cols):
            add_squares(columns[j], total)
        become_scales(total, cols, eps)
        for j in range(cols):
            multiply(columns[j], total, weight[j])
        turn_back(columns, count, y, job * TALL)


@numba.njit(parallel=True)
def wide_rows(x, weight, y, eps):
    rows, cols = x.shape
    for row in numba.prange(rows):
        scale = ONE / np.float32(math.sqrt(sum_of_squares(x[row]) / np.float32(cols) + eps))
        for i in range(cols):
            y[row, i] = x[row, i] * scale * weight[i]


@numba.njit
def rmsnorm(x, weight, y, eps):
    if 0 < x.shape[1] <= NARROW:
        narrow_rows(x, weight, y, eps)
    else:
        wide_rows(x, weight, y, eps)
