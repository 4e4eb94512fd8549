"""The largest of a window's rows, column by column, then of its columns: both loops vectorise."""

import numba
import numpy as np

from portkern.backends.cpu.include.rows import copy, fill

PLANES = 4  # knob: 1 4 16
LOWEST = np.float32(-np.inf)
ZERO = np.float32(0.0)


@numba.njit
def raise_to(x, top):
    """Not ``max``, which drops a NaN. The sum keeps the store from becoming conditional, which is
    slow: to keep a value would be not to store."""
    for j in range(x.size):
        v, t = x[j], top[j]
        top[j] = v if (v > t) | (v != v) else t + ZERO


@numba.njit
def pool(x, y, window, stride, padding, tall):
    h, w = x.shape
    reach = (y.shape[1] - 1) * stride + 1
    for row in range(y.shape[0]):
        top = row * stride - padding
        fill(tall, LOWEST)
        for r in range(max(top, 0), min(top + window, h)):
            raise_to(x[r], tall[padding : padding + w])
        copy(tall[:reach:stride], y[row])
        for k in range(1, window):
            raise_to(tall[k : k + reach : stride], y[row])


@numba.njit(parallel=True)
def maxpool2d(x, y, window, stride, padding):
    n, c, h, w = x.shape
    xs, ys = x.reshape(n * c, h, w), y.reshape(n * c, y.shape[2], y.shape[3])
    for plane in numba.prange(n * c):
        tall = np.empty(w + 2 * padding, np.float32)
        pool(xs[plane], ys[plane], window, stride, padding, tall)
