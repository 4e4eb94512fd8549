import numba
import numpy as np

from portkern.backends.cpu.include.exponential import exp_below_zero
from portkern.backends.cpu.include.ordering import row_max
from portkern.backends.cpu.include.rows import copy, fill, turn, turn_back
from portkern.backends.cpu.include.sums import summing
from portkern.backends.cpu.include.threads import sharing

BLOCK = 1024  # knob: 512 1024 4096
NARROW = 24  # knob: 12 24 48
TALL = 128  # knob: 64 128 256
PARALLEL_FROM = 8192  # knob: 2048 8192 32768
row_sum = summing(BLOCK)
ZERO = np.float32(0.0)
ONE = np.float32(1.0)


@numba.njit
def powers(x, top, y):
    for i in range(x.size):
        y[i] = exp_below_zero(x[i] - top)


@numba.njit
def greater(x, top):
    for i in range(top.size):
        top[i] = x[i] if x[i] > top[i] else top[i]


@numba.njit
def add_powers(x, top, total):
    for i in range(total.size):
        x[i] = exp_below_zero(x[i] - top[i])
        total[i] += x[i]


@numba.njit
def divide(x, total):
    for i in range(total.size):
        x[i] /= total[i]


@numba.njit
def narrow_rows(begin, end, x, y):
    """TALL rows at once, element by element."""
    cols = x.shape[1]
    columns, room = np.empty((cols, TALL), np.float32), np.empty((2, TALL), np.float32)
    for block in range(begin, end):
        count = turn(x, block * TALL, columns)
        top, total = room[0][:count], room[1][:count]
        copy(columns[0], top)
        fill(total, ZERO)
        for j in range(1, cols):
            greater(columns[j], top)
        for j in range(cols):
            add_powers(columns[j], top, total)
        for j in range(cols):
            divide(columns[j], total)
        turn_back(columns, count, y, block * TALL)


@numba.njit
def wide_rows(begin, end, x, y):
    for row in range(begin, end):
        line, terms = x[row], y[row]
        powers(line, row_max(line), terms)
        scale = ONE / row_sum(terms)
        for i in range(terms.size):
            terms[i] *= scale


@numba.njit
def single_elements(begin, end, x, y):
    """1, or no number where x is infinite or none."""
    line, to = x.reshape(x.size)[begin:end], y.reshape(y.size)[begin:end]
    for i in range(to.size):
        to[i] = ONE + (line[i] - line[i])


share_singles = sharing(single_elements, PARALLEL_FROM)
share_narrow = sharing(narrow_rows, PARALLEL_FROM)
share_wide = sharing(wide_rows, PARALLEL_FROM)


@numba.njit
def softmax(x, y):
    rows, cols = x.shape
    if cols > NARROW:
        share_wide(rows, x.size, x, y)
    elif cols == 1:
        share_singles(rows, x.size, x, y)
    elif cols > 0:
        share_narrow((rows + TALL - 1) // TALL, x.size, x, y)
