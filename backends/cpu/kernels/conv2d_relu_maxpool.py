"""A band of pooled rows at a time: the convolution that it needs, weights times gathered patches,
is kept in a buffer, from which the pool takes its windows."""

import numba
import numpy as np

from portkern.backends.cpu.include.convolution import convolve
from portkern.backends.cpu.include.rows import copy, fill

FILTERS = 64  # knob: 32 64 128
KC = 128  # knob: 64 128 256
PIXELS = 256  # knob: 128 256 512
BAND = 6  # knob: 2 4 6 8
ZERO = np.float32(0.0)


@numba.njit
def raise_to(x, top):
    for j in range(top.size):
        top[j] = max(x[j], top[j] + ZERO)  # the sum keeps the store from becoming conditional


@numba.njit
def pool(x, window, stride, tall, y):
    """Largest elements of windows: column by column of their rows, then of their columns."""
    for row in range(y.shape[0]):
        fill(tall, ZERO)  # which also rectifies
        for r in range(row * stride, row * stride + window):
            raise_to(x[r], tall)
        reach = (y.shape[1] - 1) * stride + 1
        copy(tall[:reach:stride], y[row])
        for k in range(1, window):
            raise_to(tall[k : k + reach : stride], y[row])


@numba.njit
def band(x, weight, bias, shape, top, start, window, stride, y, buffers):
    """Pooled rows from ``start`` on of the filters from ``top`` on."""
    ow, sums = shape[2], buffers[2]
    filters, count = min(FILTERS, y.shape[0] - top), min(BAND, y.shape[1] - start)
    height = (count - 1) * stride + window
    first, size = start * stride * ow, height * ow
    kept = np.empty((filters, size), np.float32)
    tall = np.empty(ow, np.float32)
    for done in range(0, size, PIXELS):
        width, at = min(PIXELS, size - done), first + done
        convolve(x, weight, bias, shape, top, filters, at, width, buffers)
        for i in range(filters):
            copy(sums[i], kept[i][done : done + width])
    for i in range(filters):
        rows = kept[i].reshape(height, ow)
        pool(rows, window, stride, tall, y[top + i][start : start + count])


@numba.njit(parallel=True)
def conv2d_relu_maxpool(x, weight, bias, y, stride, padding, window, pool_stride):
    n, f, oh, _ = y.shape
    _, c, kh, kw = weight.shape
    ow = (x.shape[3] + 2 * padding - kw) // stride + 1
    shape, matrix = (kh, kw, ow, stride, padding), weight.reshape(f, c * kh * kw)
    down, bands = (f + FILTERS - 1) // FILTERS, (oh + BAND - 1) // BAND
    for job in numba.prange(n * down * bands):
        image, top = job // (down * bands), job // bands % down * FILTERS
        weights = np.empty((FILTERS, KC), np.float32)
        patches = np.empty((KC, PIXELS), np.float32)
        sums = np.empty((FILTERS, PIXELS), np.float32)
        buffers = (weights, patches, sums)
        start = job % bands * BAND
        band(x[image], matrix, bias, shape, top, start, window, pool_stride, y[image], buffers)
