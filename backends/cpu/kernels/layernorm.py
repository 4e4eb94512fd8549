import math

import numba
import numpy as np

from portkern.backends.cpu.include.rows import turn, turn_back
from portkern.backends.cpu.include.sums import become_scales, summing

ZERO = np.float32(0.0)
ONE = np.float32(1.0)
LANES = 16  # knob: 8 16 32 64
BLOCK = 64  # knob: 32 64 128
NARROW = 24  # knob: 12 24 48
TALL = 128  # knob: 64 128 256


@numba.njit
def deviation(v, center):
    return v - center


@numba.njit
def squared_deviation(v, center):
    """Of the mean itself: E[x^2] - E[x]^2 would lose the digits of a large mean."""
    return (v - center) * (v - center)


deviations = summing(LANES, BLOCK, deviation)
squared_deviations = summing(LANES, BLOCK, squared_deviation)


@numba.njit
def add_deviations(x, first, total):
    for i in range(x.size):
        total[i] += x[i] - first[i]


@numba.njit
def become_means(total, first, cols):
    for i in range(total.size):
        total[i] = first[i] + total[i] / np.float32(cols)


@numba.njit
def add_squares(x, mean, total):
    for i in range(x.size):
        total[i] += (x[i] - mean[i]) * (x[i] - mean[i])


@numba.njit
def normalize(x, mean, scale, weight, bias):
    for i in range(x.size):
        x[i] = (x[i] - mean[i]) * scale[i] * weight + bias


@numba.njit(parallel=True)
def narrow_rows(x, weight, bias, y, eps):
    """TALL rows at once, element by element."""
    rows, cols = x.shape
    for job in numba.prange((rows + TALL - 1) // TALL):
        columns = np.zeros((cols, TALL), np.float32)
        mean, scale = np.zeros(TALL, np.float32), np.zeros(TALL, np.float32)
        count = turn(x, job * TALL, columns)
        for j in range(1, cols):
            add_deviations(columns[j], columns[0], mean)
        become_means(mean, columns[0], cols)
        for j in range(cols):
            add_squares(columns[j], mean, scale)
        become_scales(scale, cols, eps)
        for j in range(cols):
            normalize(columns[j], mean, scale, weight[j], bias[j])
        turn_back(columns, count, y, job * TALL)


@numba.njit(parallel=True)
def wide_rows(x, weight, bias, y, eps):
    rows, cols = x.shape
    count = np.float32(cols)
    for row in numba.prange(rows):
        first = x[row, 0] if cols > 0 else ZERO
        mean = first + deviations(x[row], first) / count
        scale = ONE / np.float32(math.sqrt(squared_deviations(x[row], mean) / count + eps))
        for i in range(cols):
            y[row, i] = (x[row, i] - mean) * scale * weight[i] + bias[i]


@numba.njit
def layernorm(x, weight, bias, y, eps):
    if 0 < x.shape[1] <= NARROW:
        narrow_rows(x, weight, bias, y, eps)
    else:
        wide_rows(x, weight, bias, y, eps)
