"""Matrix products by blocks in buffers: four rows of sums stay in the L1 cache while four rows of b
at a time are added to them."""

import numba
import numpy as np

from .rows import fill

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
        fill(to[i][:cols], ZERO)


# Fused multiply-adds, as C++ compilers make them unasked.
@numba.njit(fastmath={"contract"})
def add_product(a, b, sums, rows, depth, left, right):
    """Add a[:rows, :depth] @ b[:depth, left:right] to sums, four rows and four terms at a time."""
    whole = rows - rows % 4
    first, end = np.uint64(left), np.uint64(right)  # which cannot be negative, see copy_block
    for i in range(0, whole, 4):
        c0, c1, c2, c3 = sums[i], sums[i + 1], sums[i + 2], sums[i + 3]
        for p in range(0, depth, 4):
            a00, a01, a02, a03 = a[i, p], a[i, p + 1], a[i, p + 2], a[i, p + 3]
            a10, a11, a12, a13 = a[i + 1, p], a[i + 1, p + 1], a[i + 1, p + 2], a[i + 1, p + 3]
            a20, a21, a22, a23 = a[i + 2, p], a[i + 2, p + 1], a[i + 2, p + 2], a[i + 2, p + 3]
            a30, a31, a32, a33 = a[i + 3, p], a[i + 3, p + 1], a[i + 3, p + 2], a[i + 3, p + 3]
            b0, b1, b2, b3 = b[p], b[p + 1], b[p + 2], b[p + 3]
            for j in range(first, end):
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
            for j in range(first, end):
                c0[j] += a0 * b0[j] + a1 * b1[j] + a2 * b2[j] + a3 * b3[j]


@numba.njit
def multiply_tile(a, b, top, left, buffers):
    """The sums become the part of a @ b from (top, left) on; returns how many rows and columns of
    it there are, at most those that the sums hold.

    The buffers are a block of a, a block of b with as many rows as that has columns, and the sums;
    the number of rows of each is a multiple of four.
    """
    block_a, block_b, sums = buffers
    k, deep = a.shape[1], block_a.shape[1]
    rows, width = min(sums.shape[0], a.shape[0] - top), min(sums.shape[1], b.shape[1] - left)
    for i in range(rows):
        fill(sums[i][:width], ZERO)
    for p in range(0, k, deep):
        depth = min(deep, k - p)
        copy_block(a, top, rows, p, depth, block_a)
        copy_block(b, p, depth, left, width, block_b)
        add_product(block_a, block_b, sums, rows, depth, 0, width)
    return rows, width
