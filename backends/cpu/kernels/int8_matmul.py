"""Blocks of both matrices are copied to buffers, weights as floats; four rows of sums stay in the
L1 cache while four rows of weights at a time are added to them."""

import numba
import numpy as np

MC = 64  # knob: 16 32 64 128
KC = 128  # knob: 64 128 256
NC = 256  # knob: 128 256 512
ZERO = np.float32(0.0)


@numba.njit
def copy_block(x, top, rows, left, cols, to):
    """A part of x into the corner of ``to``, with zeros up to the next multiple of four.

    Rows are sliced one by one: slices of all columns have no known stride, and indices that might
    be negative (``left + j``) are checked; neither kind of loop is vectorised.
    """
    for i in range(rows):
        line, row = x[top + i][left : left + cols], to[i]
        for j in range(cols):
            row[j] = line[j]
        for j in range(cols, (cols + 3) // 4 * 4):
            row[j] = ZERO
    for i in range(rows, (rows + 3) // 4 * 4):
        row = to[i]
        for j in range(cols):
            row[j] = ZERO


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
def scaled(sums, scale, to):
    for j in range(to.size):
        to[j] = sums[j] * scale[j]


@numba.njit
def tile(a, weight, scale, c, top, left, block_a, block_b, sums):
    """The part of c from (top, left) on: MC rows and NC columns, or what is left."""
    rows, width, k = min(MC, c.shape[0] - top), min(NC, c.shape[1] - left), a.shape[1]
    for i in range(rows):
        row = sums[i]
        for j in range(width):
            row[j] = ZERO
    for p in range(0, k, KC):
        depth = min(KC, k - p)
        copy_block(a, top, rows, p, depth, block_a)
        copy_block(weight, p, depth, left, width, block_b)
        add_product(block_a, block_b, sums, rows, depth, width)
    for i in range(rows):
        scaled(sums[i], scale[left : left + width], c[top + i][left : left + width])


@numba.njit(parallel=True)
def int8_matmul(a, weight, scale, c):
    m, n = c.shape
    down, across = (m + MC - 1) // MC, (n + NC - 1) // NC
    for job in numba.prange(down * across):
        top, left = job // across * MC, job % across * NC
        block_a = np.empty((MC, KC), np.float32)
        block_b = np.empty((KC, NC), np.float32)
        sums = np.empty((MC, NC), np.float32)
        tile(a, weight, scale, c, top, left, block_a, block_b, sums)
