import numba
import numpy as np

from portkern.backends.cpu.include.exponential import exp_below_zero
from portkern.backends.cpu.include.ordering import row_max
from portkern.backends.cpu.include.rows import turn, turn_back
from portkern.backends.cpu.include.sums import summing

LANES = 16  # knob: 8 16 32
BLOCK = 64  # knob: 32 64 128
NARROW = 24  # knob: 12 24 48
TALL = 128  # knob: 64 128 256
row_sum = summing(LANES, BLOCK)
ONE = np.float32(1.0)


@numba.njit
def powers(x, top, y):
    for i in range(x.size):
        y[i] = exp_below_zero(x[i] - top)


@numba.njit
def greater(x, top):
    for i in range(x.size):
        top[i] = x[i] if x[i] > top[i] else top[i]


@numba.njit
def add_powers(x, top, total):
    for i in range(x.size):
        x[i] = exp_below_zero(x[i] - top[i])
        total[i] += x[i]


@numba.njit
def divide(x, total):
    for i in range(x.size):
        x[i] /= total[i]


@numba.njit(parallel=True)
def narrow_rows(x, y):
    """TALL rows at once, element by element."""
    rows, cols = x.shape
    for job in numba.prange((rows + TALL - 1) // TALL):
        columns = np.zeros((cols, TALL), np.float32)
        top, total = np.empty(TALL, np.float32), np.zeros(TALL, np.float32)
        count = turn(x, job * TALL, columns)
        top[:] = columns[0]
        for j in range(1, cols):
            greater(columns[j], top)
        for j in range(cols):
            add_powers(columns[j], top, total)
        for j in range(cols):
            divide(columns[j], total)
        turn_back(columns, count, y, job * TALL)


@numba.njit(parallel=True)
def wide_rows(x, y):
    for row in numba.prange(x.shape[0]):
        terms = y[row]
        powers(x[row], row_max(x[row]), terms)
        scale = ONE / row_sum(terms)
        for i in range(terms.size):
            terms[i] *= scale


@numba.njit(parallel=True)
def single_elements(x, y):
    """1, or no number where x is infinite or none."""
    for row in numba.prange(x.shape[0]):
        y[row, 0] = ONE + (x[row, 0] - x[row, 0])


@numba.njit
def softmax(x, y):
    if x.shape[1] == 1:
        single_elements(x, y)
    elif 0 < x.shape[1] <= NARROW:
        narrow_rows(x, y)
    else:
        wide_rows(x, y)
