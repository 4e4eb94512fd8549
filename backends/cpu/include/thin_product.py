"""Products of so few rows, columns or terms that copying blocks would take longer than multiplying:
operands are read where they lie, in batches that lie flat, by indices that cannot be negative."""

import numba
import numpy as np

from .rows import fill
from .threads import sharing

STRIP = 1024  # results of a job in one direction
DEPTH = 64  # terms, of which a strip of b stays in the L2 cache for all rows
PARALLEL_FROM = 65536  # multiplications
ZERO = np.float32(0.0)


# Fused multiply-adds, as C++ compilers make them unasked.
@numba.njit(fastmath={"contract"}, forceinline=True)
def _add_terms(a, left, b, step, at, terms, to):
    """Products of ``terms`` elements of a, from ``left`` on, and rows of b, from ``at`` on."""
    for _ in range(0, terms - 3, 4):
        a0, a1 = a[np.uint64(left)], a[np.uint64(left + 1)]
        a2, a3 = a[np.uint64(left + 2)], a[np.uint64(left + 3)]
        for j in range(to.size):
            low = a0 * b[np.uint64(at + j)] + a1 * b[np.uint64(at + step + j)]
            high = a2 * b[np.uint64(at + 2 * step + j)] + a3 * b[np.uint64(at + 3 * step + j)]
            to[j] += low + high
        left, at = left + 4, at + 4 * step
    for _ in range(terms % 4):
        factor = a[np.uint64(left)]
        for j in range(to.size):
            to[j] += factor * b[np.uint64(at + j)]
        left, at = left + 1, at + step


@numba.njit
def _strips_of_columns(begin, end, a, b, c, m, n, k):
    across = (n + STRIP - 1) // STRIP
    for job in range(begin, end):
        one, left = job // across, job % across * STRIP
        width, start = min(STRIP, n - left), one * m * n + left
        for i in range(m):
            fill(c[start + i * n : start + i * n + width], ZERO)
        for p in range(0, k, DEPTH):
            terms, at = min(DEPTH, k - p), (one * k + p) * n + left
            for i in range(m):
                to = c[start + i * n : start + i * n + width]
                _add_terms(a, (one * m + i) * k + p, b, n, at, terms, to)


@numba.njit(fastmath={"contract"}, forceinline=True)
def _add_column(a, step, factor, to, apart, rows):
    for i in range(rows):
        to[np.uint64(i * apart)] += a[np.uint64(i * step)] * factor


@numba.njit
def _strips_of_rows(begin, end, a, b, c, m, n, k):
    down = (m + STRIP - 1) // STRIP
    for job in range(begin, end):
        one, top = job // down, job % down * STRIP
        rows, first = min(STRIP, m - top), one * m + top
        fill(c[first * n : (first + rows) * n], ZERO)
        for p in range(k):
            for j in range(n):
                factor = np.float32(b[(one * k + p) * n + j])
                _add_column(a[first * k + p :], k, factor, c[first * n + j :], n, rows)


_share_columns = sharing(_strips_of_columns, PARALLEL_FROM)
_share_rows = sharing(_strips_of_rows, PARALLEL_FROM)


@numba.njit
def few_rows_or_terms(a, b, c):
    """c = a @ b of each of a batch, along the columns of b."""
    (batch, m, n), k = c.shape, a.shape[2]
    jobs = batch * ((n + STRIP - 1) // STRIP)
    x, y, to = a.reshape(a.size), b.reshape(b.size), c.reshape(c.size)
    _share_columns(jobs, c.size * k, x, y, to, m, n, k)


@numba.njit
def few_columns_and_terms(a, b, c):
    """The same along the rows of a."""
    (batch, m, n), k = c.shape, a.shape[2]
    jobs = batch * ((m + STRIP - 1) // STRIP)
    x, y, to = a.reshape(a.size), b.reshape(b.size), c.reshape(c.size)
    _share_rows(jobs, c.size * k, x, y, to, m, n, k)
