"""Convolution as a product: the weights (filters x terms) times patches (terms x output pixels),
gathered into a buffer."""

import numba
import numpy as np

from .product import add_product
from .rows import copy, fill

ZERO = np.float32(0.0)


@numba.njit
def gather(x, term, shape, first, width, to):
    """The inputs that one element of a filter meets at ``width`` output pixels, from number
    ``first`` on. ``shape`` is (kernel's height, its width, output's width, stride, padding)."""
    kh, kw, ow, stride, padding = shape
    plane = x[term // kw // kh]
    h, w = plane.shape
    dy, dx = term // kw % kh - padding, term % kw - padding
    low, high = -(dx // stride), (w - 1 - dx) // stride + 1  # the columns that see no padding
    row, left, done = first // ow, first % ow, 0
    while done < width:
        run, y = min(ow - left, width - done), row * stride + dy
        begin = min(max(low - left, 0), run) if 0 <= y < h else run
        end = max(min(high - left, run), begin)
        fill(to[done : done + begin], ZERO)
        fill(to[done + end : done + run], ZERO)
        if begin < end:
            line, start = to[done + begin : done + end], (left + begin) * stride + dx
            if stride == 1:  # a slice without a step is known to be contiguous
                copy(plane[y][start : start + line.size], line)
            else:
                copy(plane[y][start : start + line.size * stride : stride], line)
        row, left, done = row + 1, 0, done + run


@numba.njit(parallel=True)
def _every(x, stride, seen):
    n, c, oh, ow = seen.shape
    for plane in numba.prange(n * c):
        image, channel = plane // c, plane % c
        for row in range(oh):
            line = x[image, channel, row * stride]
            copy(line[: (ow - 1) * stride + 1 : stride], seen[image, channel, row])


@numba.njit
def side_by_side(x, weight, size, stride, padding):
    """Images and the ``shape`` of :func:`gather` for results of ``size`` (height, width). What
    filters of one element see becomes one row, in order."""
    (n, c, h, w), (oh, ow), (kh, kw) = x.shape, size, weight.shape[2:]
    if kh * kw > 1 or padding > 0:
        return x, (kh, kw, ow, stride, padding)
    if stride == 1:
        return x.reshape(n, c, 1, h * w), (1, 1, h * w, 1, 0)
    seen = np.empty((n, c, oh, ow), np.float32)
    _every(x, stride, seen)
    return seen.reshape(n, c, 1, oh * ow), (1, 1, oh * ow, 1, 0)


@numba.njit
def _copy_weights(weight, top, rows, left, cols, to):
    """A part of the weights, each row followed by zeros up to the next multiple of four."""
    for i in range(rows):
        copy(weight[top + i][left : left + cols], to[i][:cols])
        fill(to[i][cols : cols + 3], ZERO)


@numba.njit
def convolve(x, weight, bias, shape, top, rows, first, width, buffers):
    """The sums of ``rows`` filters from ``top`` on at ``width`` pixels from ``first`` on.

    The buffers are a block of the weights, patches with as many rows as that has columns (a
    multiple of four), and the sums; ``shape`` is that of :func:`gather`.
    """
    weights, patches, sums = buffers
    for i in range(rows):
        fill(sums[i][:width], bias[top + i])
    terms, deep = weight.shape[1], patches.shape[0]
    for p in range(0, terms, deep):
        depth = min(deep, terms - p)
        _copy_weights(weight, top, rows, p, depth, weights)
        for t in range(depth):
            gather(x, p + t, shape, first, width, patches[t])
        for t in range(depth, (depth + 3) // 4 * 4):
            fill(patches[t][:width], ZERO)
        add_product(weights, patches, sums, rows, depth, 0, width)
