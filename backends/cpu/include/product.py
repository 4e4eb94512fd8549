"""Matrix products by blocks in buffers: four rows of sums stay in the L1 cache while four rows of b
at a time are added to them. Of few columns each result is a sum along memory."""

import numba
import numpy as np

from .rows import copy, fill
from .thin_product import few_columns_and_terms, few_rows_or_terms
from .threads import sharing

ZERO = np.float32(0.0)
NARROW, FLAT, THIN = 4, 8, 16  # so few columns, rows and terms that operands are read in place
PARALLEL_FROM = 65536  # multiplications
RUN = 1024  # terms of a sum in float32


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
    """Does what :func:`_multiply_terms` does, over all terms."""
    return _multiply_terms(a, b, top, left, 0, a.shape[1], buffers)


@numba.njit
def _multiply_terms(a, b, top, left, begin, end, buffers):
    """The sums become what the terms from ``begin`` to ``end`` add to the part of a @ b from
    (top, left) on; returns how many rows and columns of it there are, at most those that the sums
    hold.

    The buffers are a block of a, a block of b with as many rows as that has columns, and the sums;
    the number of rows of each is a multiple of four.
    """
    block_a, block_b, sums = buffers
    deep = block_a.shape[1]
    rows, width = min(sums.shape[0], a.shape[0] - top), min(sums.shape[1], b.shape[1] - left)
    for i in range(rows):
        fill(sums[i][:width], ZERO)
    for p in range(begin, end, deep):
        depth = min(deep, end - p)
        copy_block(a, top, rows, p, depth, block_a)
        copy_block(b, p, depth, left, width, block_b)
        add_product(block_a, block_b, sums, rows, depth, 0, width)
    return rows, width


# Sums of a vector's lanes, which no order is asked of.
@numba.njit(fastmath={"contract", "reassoc"}, forceinline=True)
def dot_at(a, here, b, there, count):
    """The sum of ``count`` products, of a from ``here`` and b from ``there`` on: slices would cost
    as much as a short sum does."""
    total = ZERO
    for p in range(count):
        total += a[np.uint64(here + p)] * b[np.uint64(there + p)]
    return total


@numba.njit(forceinline=True)
def _sum_of_products(a, here, b, there, count, run):
    """The sum of products, added in float32 over ``run`` terms at a time."""
    total = 0.0
    for p in range(0, count, run):
        total += dot_at(a, here + p, b, there + p, min(run, count - p))
    return np.float32(total)


@numba.njit
def _columns_of_rows(a, columns, c, first, last, run):
    """c = a @ columns.T from row ``first`` to ``last``; each result is summed by itself."""
    n, k = columns.shape
    x, y = a.reshape(a.size), columns.reshape(columns.size)
    for i in range(first, last):
        for j in range(n):
            c[i, j] = _sum_of_products(x, i * k, y, j * k, k, run)


@numba.njit
def _rows_of_few(begin, end, a, columns, c, run):
    _columns_of_rows(a, columns, c, begin, end, run)


@numba.njit
def _products_of_few(begin, end, a, b, c, run):
    """Whole ones of many products of few columns."""
    for one in range(begin, end):
        _columns_of_rows(a[one], turned(b[one]), c[one], 0, c.shape[1], run)


@numba.njit(parallel=True)
def _few_results(a, columns, c, part, run):
    """The same of few rows with many terms: threads share these, ``part`` at a time."""
    (m, n), k = c.shape, a.shape[1]
    parts = (k + part - 1) // part
    x, y = a.reshape(a.size), columns.reshape(columns.size)
    sums = np.empty((parts, m, n), np.float32)
    for job in numba.prange(parts):
        first, count = job * part, min(part, k - job * part)
        for i in range(m):
            for j in range(n):
                at, other = i * k + first, j * k + first
                sums[job, i, j] = _sum_of_products(x, at, y, other, count, run)
    for i in range(m):
        for j in range(n):
            total = 0.0
            for job in range(parts):
                total += sums[job, i, j]
            c[i, j] = total


@numba.njit
def turned(b):
    """Columns as rows."""
    columns = np.empty((b.shape[1], b.shape[0]), np.float32)
    for p in range(b.shape[0]):
        for j in range(b.shape[1]):
            columns[j, p] = b[p, j]
    return columns


@numba.njit(parallel=True)
def _few_tiles(a, b, c, sizes, parts):
    """c = a @ b, where it is one tile: threads share its terms, in so many parts."""
    mc, kc, nc = sizes
    m, k, n = a.shape[0], a.shape[1], b.shape[1]
    each = (k // parts + kc - 1) // kc * kc
    sums = np.zeros((parts, mc, nc), np.float32)
    for part in numba.prange(parts):
        begin, end = min(part * each, k), min((part + 1) * each, k)
        block_a, block_b = np.empty((mc, kc), np.float32), np.empty((kc, nc), np.float32)
        _multiply_terms(a, b, 0, 0, begin, end, (block_a, block_b, sums[part]))
    for i in range(m):
        copy(sums[0][i], c[i])
        for part in range(1, parts):
            for j in range(n):
                c[i, j] += sums[part, i, j]


@numba.njit
def _up_to(size, count):
    return min(size, max(4, (count + 3) // 4 * 4))


@numba.njit
def buffers_for(m, n, k, sizes):
    """A block of a, a block of b and their sums, no larger than the product is: the system makes
    fresh memory page by page."""
    mc, kc, nc = _up_to(sizes[0], m), _up_to(sizes[1], k), _up_to(sizes[2], n)
    return (
        np.empty((mc, kc), np.float32),
        np.empty((kc, nc), np.float32),
        np.empty((mc, nc), np.float32),
    )


_share_rows = sharing(_rows_of_few, PARALLEL_FROM)
_share_products = sharing(_products_of_few, PARALLEL_FROM)


@numba.njit
def meeting_rows(many, few, c):
    """c = few @ many.T, of a few rows: each of the others is read once, along memory."""
    _share_rows(many.shape[0], c.size * many.shape[1], many, few, c.T, RUN)


def multiplying(mc, kc, nc, few):
    """A function ``multiply(a, b, c)`` that makes c = a @ b of a batch by tiles of mc x nc results
    and kc terms, or by the way that suits its shape: ``few`` columns, one tile with many terms."""
    part, run = 16384, RUN  # terms of a thread, and of a sum in float32
    deep = 8 * kc  # terms that are worth a thread

    @numba.njit
    def tiles(begin, end, a, b, c):
        """Multiplies tiles of a batch; the buffers are made once."""
        _, m, n = c.shape
        across = (n + nc - 1) // nc
        each = (m + mc - 1) // mc * across
        buffers = buffers_for(m, n, a.shape[2], (mc, kc, nc))
        for job in range(begin, end):
            one, top, left = job // each, job % each // across * mc, job % across * nc
            rows, width = multiply_tile(a[one], b[one], top, left, buffers)
            for i in range(rows):
                copy(buffers[2][i], c[one][top + i][left : left + width])

    share_tiles = sharing(tiles, PARALLEL_FROM)

    @numba.njit
    def by_columns(a, columns, c):
        """Multiplies by few columns, in one product: threads share rows, or the terms of few
        results."""
        m, k = a.shape
        if m < 4 * numba.get_num_threads() and k >= 2 * part:
            _few_results(a, columns, c, part, run)
        else:
            _share_rows(m, c.size * k, a, columns, c, run)

    @numba.njit
    def multiply(a, b, c):
        batch, m, n = c.shape
        k = a.shape[2]
        one_tile = m <= mc and n <= nc and k >= 2 * deep
        if n <= NARROW and k <= THIN:
            few_columns_and_terms(a, b, c)
        elif k <= THIN:
            few_rows_or_terms(a, b, c)
        elif n <= few and batch >= numba.get_num_threads():
            _share_products(batch, c.size * k, a, b, c, run)
        elif n <= few:
            for one in range(batch):
                if n == 1:
                    by_columns(a[one], b[one].reshape(1, k), c[one])
                else:
                    by_columns(a[one], turned(b[one]), c[one])
        elif one_tile and batch < numba.get_num_threads():
            parts = min(k // deep, 2 * numba.get_num_threads())
            for one in range(batch):
                _few_tiles(a[one], b[one], c[one], (mc, kc, nc), parts)
        elif m <= FLAT:
            few_rows_or_terms(a, b, c)
        else:
            jobs = batch * ((m + mc - 1) // mc) * ((n + nc - 1) // nc)
            share_tiles(jobs, c.size * k, a, b, c)

    return multiply
