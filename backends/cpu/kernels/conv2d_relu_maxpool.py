"""A band of pooled rows at a time: the convolution that it needs, weights times gathered patches,
is kept in a buffer, from which the pool takes its windows."""

import numba
import numpy as np

FILTERS = 64  # knob: 32 64 128
KC = 128  # knob: 64 128 256
PIXELS = 256  # knob: 128 256 512
BAND = 6  # knob: 2 4 6 8
ZERO = np.float32(0.0)


@numba.njit
def fill(to, value):
    for j in range(to.size):
        to[j] = value


@numba.njit
def copy(x, to):
    for j in range(to.size):
        to[j] = x[j]


@numba.njit
def gather(x, term, shape, first, width, to):
    """What one element of a filter sees at ``width`` output pixels, from number ``first`` on."""
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


@numba.njit
def copy_weights(weight, top, rows, left, cols, to):
    """A part of the weights, each row followed by zeros up to the next multiple of four."""
    for i in range(rows):
        copy(weight[top + i][left : left + cols], to[i][:cols])
        fill(to[i][cols : cols + 3], ZERO)


# Fused multiply-adds, as C++ compilers make them unasked.
@numba.njit(fastmath={"contract"})
def add_product(a, b, sums, rows, depth, width):
    """Add a[:rows, :depth] @ b[:depth, :width] to sums, four rows and four terms at a time."""
    whole = rows - rows % 4
    for i in range(0, whole, 4):
        c0, c1 = sums[i], sums[i + 1]
        c2, c3 = sums[i + 2], sums[i + 3]
        for p in range(0, depth, 4):
            a00, a01, a02, a03 = a[i, p], a[i, p + 1], a[i, p + 2], a[i, p + 3]
            a10, a11, a12, a13 = a[i + 1, p], a[i + 1, p + 1], a[i + 1, p + 2], a[i + 1, p + 3]
            a20, a21, a22, a23 = a[i + 2, p], a[i + 2, p + 1], a[i + 2, p + 2], a[i + 2, p + 3]
            a30, a31, a32, a33 = a[i + 3, p], a[i + 3, p + 1], a[i + 3, p + 2], a[i + 3, p + 3]
            b0, b1, b2, b3 = b[p], b[p + 1], b[p + 2], b[p + 3]
            for j in range(width):
                v0, v1, v2, v3 = b0[j], b1[j], b2[j], b3[j]
                c0[j] += a00 * v0 + a01 * v1 + a02 * v2 + a03 * v3
                c1[j] += a10 * v0 + a11 * v1 + a12 * v2 + a13 * v3
                c2[j] += a20 * v0 + a21 * v1 + a22 * v2 + a23 * v3
                c3[j] += a30 * v0 + a31 * v1 + a32 * v2 + a33 * v3
    for i in range(whole, rows):
        c0 = sums[i]
        for p in range(0, depth, 4):
            a0, a1, a2, a3 = a[i, p], a[i, p + 1], a[i, p + 2], a[i, p + 3]
            b0, b1, b2, b3 = b[p], b[p + 1], b[p + 2], b[p + 3]
            for j in range(width):
                c0[j] += a0 * b0[j] + a1 * b1[j] + a2 * b2[j] + a3 * b3[j]


@numba.njit
def convolve(x, weight, bias, shape, top, rows, first, width, buffers):
    """The sums of ``rows`` filters from ``top`` on at ``width`` pixels from ``first`` on."""
    weights, patches, sums = buffers
    for i in range(rows):
        fill(sums[i][:width], bias[top + i])
    terms = weight.shape[1]
    for p in range(0, terms, KC):
        depth = min(KC, terms - p)
        copy_weights(weight, top, rows, p, depth, weights)
        for t in range(depth):
            gather(x, p + t, shape, first, width, patches[t])
        for t in range(depth, (depth + 3) // 4 * 4):
            fill(patches[t][:width], ZERO)
        add_product(weights, patches, sums, rows, depth, width)


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
