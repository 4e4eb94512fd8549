"""The weights (filters x terms) times patches (terms x output pixels), gathered into a buffer; four
rows of sums stay in the L1 cache while four rows of patches at a time are added to them."""

import numba
import numpy as np

from portkern.backends.cpu.include.convolution import convolve, side_by_side
from portkern.backends.cpu.include.rows import copy

FILTERS = 128  # knob: 32 64 128
KC = 128  # knob: 64 128 256
PIXELS = 256  # knob: 128 256 512


@numba.njit(parallel=True)
def in_tiles(x, matrix, bias, y, shape):
    n, f, oh, ow = y.shape
    planes = y.reshape(n, f, oh * ow)
    down, across = (f + FILTERS - 1) // FILTERS, (oh * ow + PIXELS - 1) // PIXELS
    for job in numba.prange(n * down * across):
        image, top = job // (down * across), job // across % down * FILTERS
        first = job % across * PIXELS
        rows, width = min(FILTERS, f - top), min(PIXELS, oh * ow - first)
        weights = np.empty((FILTERS, KC), np.float32)
        patches = np.empty((KC, PIXELS), np.float32)
        sums = np.empty((FILTERS, PIXELS), np.float32)
        buffers = (weights, patches, sums)
        convolve(x[image], matrix, bias, shape, top, rows, first, width, buffers)
        for i in range(rows):
            copy(sums[i], planes[image, top + i][first : first + width])


@numba.njit
def conv2d(x, weight, bias, y, stride, padding):
    f, c, kh, kw = weight.shape
    seen, shape = side_by_side(x, weight, y.shape[2:], stride, padding)
    in_tiles(seen, weight.reshape(f, c * kh * kw), bias, y, shape)
