import math

import numba
import numpy as np

from portkern.backends.cpu.include.rows import fill, turn, turn_back
from portkern.backends.cpu.include.sums import become_scales, summing
from portkern.backends.cpu.include.threads import sharing

ZERO = np.float32(0.0)
ONE = np.float32(1.0)
BLOCK = 1024  # knob: 512 1024 4096
NARROW = 24  # knob: 12 24 48
TALL = 128  # knob: 64 128 256
PARALLEL_FROM = 16384  # knob: 4096 16384 65536


@numba.njit
def deviation(v, center):
    return v - center


@numba.njit
def squared_deviation(v, center):
    """Of the mean itself: E[x^2] - E[x]^2 would lose the digits of a large mean."""
    return (v - center) * (v - center)


deviations = summing(BLOCK, deviation)
squared_deviations = summing(BLOCK, squared_deviation)


@numba.njit
def add_deviations(x, first, total):
    for i in range(total.size):
        total[i] += x[i] - first[i]


@numba.njit
def become_means(total, first, cols):
    for i in range(total.size):
        total[i] = first[i] + total[i] / np.float32(cols)


@numba.njit
def add_squares(x, mean, total):
    for i in range(total.size):
        total[i] += (x[i] - mean[i]) * (x[i] - mean[i])


@numba.njit
def normalize_column(x, mean, scale, weight, bias):
    for i in range(mean.size):
        x[i] = (x[i] - mean[i]) * scale[i] * weight + bias


@numba.njit
def narrow_rows(begin, end, x, weight, bias, y, eps):
    """TALL rows at once, element by element."""
    cols = x.shape[1]
    columns = np.empty((cols, TALL), np.float32)
    room = np.empty((2, TALL), np.float32)
    for block in range(begin, end):
        first = block * TALL
        count = turn(x, first, columns)
        mean, scale = room[0][:count], room[1][:count]
        fill(mean, ZERO)
        fill(scale, ZERO)
        for j in range(1, cols):
            add_deviations(columns[j], columns[0], mean)
        become_means(mean, columns[0], cols)
        for j in range(cols):
            add_squares(columns[j], mean, scale)
        become_scales(scale, cols, eps)
        for j in range(cols):
            normalize_column(columns[j], mean, scale, weight[j], bias[j])
        turn_back(columns, count, y, first)


@numba.njit(error_model="numpy")
def wide_rows(begin, end, x, weight, bias, y, eps):
    cols = x.shape[1]
    for row in range(begin, end):
        line, to = x[row], y[row]
        first = line[0]
        mean = first + deviations(line, first) / np.float32(cols)
        variance = squared_deviations(line, mean) / np.float32(cols)
        scale = ONE / np.float32(math.sqrt(variance + eps))
        for i in range(cols):
            to[i] = (line[i] - mean) * scale * weight[i] + bias[i]


@numba.njit
def single_elements(begin, end, x, weight, bias, y, scale):
    """They are their rows' means: bias, or no number where x is infinite or none."""
    line, to = x.reshape(x.size)[begin:end], y.reshape(y.size)[begin:end]
    for i in range(to.size):
        to[i] = (line[i] - line[i]) * scale * weight[0] + bias[0]


share_singles = sharing(single_elements, PARALLEL_FROM)
share_narrow = sharing(narrow_rows, PARALLEL_FROM)
share_wide = sharing(wide_rows, PARALLEL_FROM)


@numba.njit(error_model="numpy")
def layernorm(x, weight, bias, y, eps):
    rows, cols = x.shape
    if cols > NARROW:
        share_wide(rows, x.size, x, weight, bias, y, eps)
    elif cols == 1:
        share_singles(rows, x.size, x, weight, bias, y, ONE / np.float32(math.sqrt(eps)))
    elif cols > 0:
        share_narrow((rows + TALL - 1) // TALL, x.size, x, weight, bias, y, eps)
