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
def square(v):
    return v * v


sum_of_squares = summing(BLOCK, square)


@numba.njit
def add_squares(x, total):
    for i in range(total.size):
        total[i] += x[i] * x[i]


@numba.njit
def multiply(x, scale, weight):
    for i in range(scale.size):
        x[i] = x[i] * scale[i] * weight


@numba.njit
def narrow_rows(begin, end, x, weight, y, eps):
    """TALL rows at once, element by element."""
    cols = x.shape[1]
    columns, room = np.empty((cols, TALL), np.float32), np.empty(TALL, np.float32)
    for block in range(begin, end):
        count = turn(x, block * TALL, columns)
        total = room[:count]
        fill(total, ZERO)
        for j in range(cols):
            add_squares(columns[j], total)
        become_scales(total, cols, eps)
        for j in range(cols):
            multiply(columns[j], total, weight[j])
        turn_back(columns, count, y, block * TALL)


@numba.njit(error_model="numpy")
def wide_rows(begin, end, x, weight, y, eps):
    cols = x.shape[1]
    for row in range(begin, end):
        line, to = x[row], y[row]
        scale = ONE / np.float32(math.sqrt(sum_of_squares(line) / np.float32(cols) + eps))
        for i in range(cols):
            to[i] = line[i] * scale * weight[i]


share_narrow = sharing(narrow_rows, PARALLEL_FROM)
share_wide = sharing(wide_rows, PARALLEL_FROM)


@numba.njit
def rmsnorm(x, weight, y, eps):
    rows, cols = x.shape
    if cols > NARROW:
        share_wide(rows, x.size, x, weight, y, eps)
    elif cols > 0:
        share_narrow((rows + TALL - 1) // TALL, x.size, x, weight, y, eps)
