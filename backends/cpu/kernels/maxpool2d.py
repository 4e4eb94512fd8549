"""Some rows of results at a time: the largest of each column under their windows, then of each
window's columns, all of them as one long line; of that every ``stride``-th element is a result."""

import numba
import numpy as np

from portkern.backends.cpu.include.rows import fill
from portkern.backends.cpu.include.threads import sharing

ROOM = 2048  # knob: 1024 2048 4096
PARALLEL_FROM = 32768  # knob: 8192 32768 131072
LOWEST = np.float32(-np.inf)
ZERO = np.float32(0.0)


@numba.njit(forceinline=True)
def greater(a, b):
    """Not ``max``, which drops a NaN."""
    return a if (a > b) | (a != a) else b


# Unsigned indices: those that might be negative are checked, and their loops are not vectorised.
@numba.njit(forceinline=True)
def greater_of(x, one, other, count, to, at):
    for j in range(count):
        to[np.uint64(at + j)] = greater(x[np.uint64(one + j)], x[np.uint64(other + j)])


@numba.njit(forceinline=True)
def raise_to(x, start, count, to, at):
    """The sum keeps the store from becoming conditional, which is slow: to keep a value would be
    not to store."""
    for j in range(count):
        to[np.uint64(at + j)] = greater(x[np.uint64(start + j)], to[np.uint64(at + j)] + ZERO)


@numba.njit(forceinline=True)
def above(x, image, shape, top, window, to, at):
    """The largest of each column under those of a window's rows that the image has."""
    h, w = shape
    first, end = max(top, 0), min(top + window, h)
    if first >= end:
        fill(to[at : at + w], LOWEST)
        return
    start = image + first * w
    greater_of(x, start, start + w if end - first > 1 else start, w, to, at)
    for r in range(first + 2, end):
        raise_to(x, image + r * w, w, to, at)


@numba.njit
def along(tall, count, window, to):
    """The largest of ``window`` elements from each one on."""
    greater_of(tall, 0, min(window - 1, 1), count, to, 0)
    for k in range(2, window):
        raise_to(tall, k, count, to, 0)


@numba.njit
def bands(begin, end, x, y, window, stride, padding, rows):
    """``rows`` rows of results a job. Beside the images a line stays below every number."""
    h, w = x.shape[2:]
    oh, ow = y.shape[2:]
    flat, results = x.reshape(x.size), y.reshape(y.size)
    line, down = w + 2 * padding, (oh + rows - 1) // rows
    tall = np.full(rows * line + window, LOWEST, np.float32)
    wide = np.empty(rows * line, np.float32)
    for job in range(begin, end):
        plane, first = job // down, job % down * rows
        count = min(rows, oh - first)
        for i in range(count):
            top = (first + i) * stride - padding
            above(flat, plane * h * w, (h, w), top, window, tall, i * line + padding)
        along(tall, count * line, window, wide)
        at = (plane * oh + first) * ow
        for i in range(count):
            for j in range(ow):
                results[np.uint64(at + j)] = wide[np.uint64(i * line + j * stride)]
            at += ow


share_bands = sharing(bands, PARALLEL_FROM)


@numba.njit
def maxpool2d(x, y, window, stride, padding):
    n, c, _, w = x.shape
    oh = y.shape[2]
    if y.size > 0:
        rows = min(max(ROOM // (w + 2 * padding), 1), oh)
        down = (oh + rows - 1) // rows
        share_bands(n * c * down, x.size, x, y, window, stride, padding, rows)
