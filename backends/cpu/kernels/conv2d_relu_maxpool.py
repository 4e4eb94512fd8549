"""A band of pooled rows at a time: the convolution that it needs, weights times gathered patches,
is kept in a buffer, from which the pool takes its windows."""

import numba
import numpy as np

from portkern.backends.cpu.include.convolution import convolve, side_by_side
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
def band(x, weight, bias, shape, top, start, count, window, stride, ow, y, buffers):
    """``count`` pooled rows from ``start`` on of the filters from ``top`` on."""
    sums, filters = buffers[2], min(FILTERS, y.shape[0] - top)
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


@numba.njit
def band_height(jobs, oh, ow, window, stride):
    """Of short rows so many as fill a tile, unless threads would have none."""
    full = min(oh, max(BAND, (PIXELS // ow - window) // stride + 1))
    return full if jobs * (oh // full) >= numba.get_num_threads() else BAND


@numba.njit(parallel=True)
def in_bands(x, matrix, bias, y, shape, window, stride, ow):
    n, f, oh, _ = y.shape
    down = (f + FILTERS - 1) // FILTERS
    height = band_height(n * down, oh, ow, window, stride)
    bands = (oh + height - 1) // height
    for job in numba.prange(n * down * bands):
        image, top = job // (down * bands), job // bands % down * FILTERS
        weights = np.empty((FILTERS, KC), np.float32)
        patches = np.empty((KC, PIXELS), np.float32)
        sums = np.empty((FILTERS, PIXELS), np.float32)
        buffers = (weights, patches, sums)
        start = job % bands * height
        count = min(height, oh - start)
        band(
            x[image], matrix, bias, shape, top, start, count, window, stride, ow, y[image], buffers
        )


@numba.njit
def conv2d_relu_maxpool(x, weight, bias, y, stride, padding, window, pool_stride):
    f, c, kh, kw = weight.shape
    oh, ow = (
        (x.shape[2] + 2 * padding - kh) // stride + 1,
        (x.shape[3] + 2 * padding - kw) // stride + 1,
    )
    seen, shape = side_by_side(x, weight, (oh, ow), stride, padding)
    in_bands(seen, weight.reshape(f, c * kh * kw), bias, y, shape, window, pool_stride, ow)
