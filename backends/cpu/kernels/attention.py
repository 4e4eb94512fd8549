"""Keys a block at a time, with a running maximum (online softmax).

Scores lie as (keys, queries) and sums as (dim, queries): maxima, powers and both products then run
along the queries, and no loop adds up neighbours.
"""

import math

import numba
import numpy as np

QUERIES = 128  # knob: 64 128 256
KEYS = 64  # knob: 32 64 128
LOG2E = np.float32(1.44269504)
MAGIC = np.float32(12582912.0)  # 1.5 * 2**23: adding it leaves the nearest integer in the low bits
LN2_HIGH = np.float32(0.693359375)
LN2_LOW = np.float32(-2.12194440e-4)
LOWEST = np.float32(-87.0)
ONE = np.float32(1.0)
E2 = np.float32(4.99999934e-1)
E3 = np.float32(1.66665206e-1)
E4 = np.float32(4.16683881e-2)
E5 = np.float32(8.36871709e-3)
E6 = np.float32(1.38145964e-3)
ZERO = np.float32(0.0)
LEAST = np.float32(-np.inf)


# Fused multiply-adds, as C++ compilers make them unasked.
@numba.njit(fastmath={"contract"})
def exp_below_zero(x):
    """e**x for x <= 0, but not less than 1e-38: next to a term that is 1, smaller ones are lost,
    and they are slow to compute. A call of the C library's exp would not be vectorised."""
    x = LOWEST if x < LOWEST else x
    shifted = x * LOG2E + MAGIC
    whole = shifted - MAGIC
    r = (x - whole * LN2_HIGH) - whole * LN2_LOW
    p = (((E6 * r + E5) * r + E4) * r + E3) * r + E2
    n = np.int32(np.float32(shifted).view(np.int32) - np.int32(0x4B400000))
    return ((p * r) * r + r + ONE) * np.int32(np.int32(n + 127) << 23).view(np.float32)


@numba.njit
def fill(to, value):
    for j in range(to.size):
        to[j] = value


@numba.njit
def copy(x, to):
    for j in range(to.size):
        to[j] = x[j]


@numba.njit(fastmath={"contract"})
def add_product(a, b, sums, rows, depth, left, right):
    """Add a[:rows, :depth] @ b[:depth, left:right] to sums, four rows and four terms at a time."""
    whole = rows - rows % 4
    for i in range(0, whole, 4):
        c0, c1 = sums[i][left:right], sums[i + 1][left:right]
        c2, c3 = sums[i + 2][left:right], sums[i + 3][left:right]
        for p in range(0, depth, 4):
            a00, a01, a02, a03 = a[i, p], a[i, p + 1], a[i, p + 2], a[i, p + 3]
            a10, a11, a12, a13 = a[i + 1, p], a[i + 1, p + 1], a[i + 1, p + 2], a[i + 1, p + 3]
            a20, a21, a22, a23 = a[i + 2, p], a[i + 2, p + 1], a[i + 2, p + 2], a[i + 2, p + 3]
            a30, a31, a32, a33 = a[i + 3, p], a[i + 3, p + 1], a[i + 3, p + 2], a[i + 3, p + 3]
            b0, b1 = b[p][left:right], b[p + 1][left:right]
            b2, b3 = b[p + 2][left:right], b[p + 3][left:right]
            for j in range(right - left):
                v0, v1, v2, v3 = b0[j], b1[j], b2[j], b3[j]
                c0[j] += a00 * v0 + a01 * v1 + a02 * v2 + a03 * v3
                c1[j] += a10 * v0 + a11 * v1 + a12 * v2 + a13 * v3
                c2[j] += a20 * v0 + a21 * v1 + a22 * v2 + a23 * v3
                c3[j] += a30 * v0 + a31 * v1 + a32 * v2 + a33 * v3
    for i in range(whole, rows):
        c0 = sums[i][left:right]
        for p in range(0, depth, 4):
            a0, a1, a2, a3 = a[i, p], a[i, p + 1], a[i, p + 2], a[i, p + 3]
            b0, b1 = b[p][left:right], b[p + 1][left:right]
            b2, b3 = b[p + 2][left:right], b[p + 3][left:right]
            for j in range(right - left):
                c0[j] += a0 * b0[j] + a1 * b1[j] + a2 * b2[j] + a3 * b3[j]


@numba.njit
def weigh(scores, count, left, right, top, total, shrink):
    """Scores become powers under the new maxima; what was added before has to shrink with them."""
    copy(top[left:right], shrink[left:right])
    for i in range(count):
        row, most = scores[i][left:right], top[left:right]
        for j in range(row.size):
            most[j] = max(row[j], most[j] + ZERO)  # the sum keeps the store unconditional
    most, small, sums = top[left:right], shrink[left:right], total[left:right]
    for j in range(most.size):
        small[j] = exp_below_zero(small[j] - most[j])
        sums[j] *= small[j]
    for i in range(count):
        row = scores[i][left:right]
        for j in range(row.size):
            row[j] = exp_below_zero(row[j] - most[j])
            sums[j] += row[j]


@numba.njit
def multiply(row, factors):
    for j in range(row.size):
        row[j] *= factors[j]


@numba.njit
def attend(q, k, v, first, y):
    """The queries from ``first`` on, at most QUERIES."""
    length, dim = q.shape
    width, wide = min(QUERIES, length - first), (dim + 3) // 4 * 4
    turned = np.zeros((wide, QUERIES), np.float32)
    sums = np.zeros((dim, QUERIES), np.float32)
    keys = np.zeros((KEYS, wide), np.float32)
    values = np.zeros((KEYS, dim), np.float32)
    scores = np.zeros((KEYS, QUERIES), np.float32)
    top, total = np.full(QUERIES, -np.inf, np.float32), np.zeros(QUERIES, np.float32)
    shrink = np.empty(QUERIES, np.float32)
    scale = np.float32(1.0 / math.sqrt(dim))
    for j in range(width):
        for d in range(dim):
            turned[d, j] = q[first + j, d] * scale
    for start in range(0, first + width, KEYS):
        count = min(KEYS, first + width - start)
        left = max(start - first, 0)  # earlier queries see none of these keys
        for i in range(count):
            copy(k[start + i], keys[i][:dim])
            copy(v[start + i], values[i])
            fill(scores[i][left:width], ZERO)
        add_product(keys, turned, scores, count, wide, left, width)
        for i in range(count):
            fill(scores[i][left : max(start + i - first, 0)], LEAST)
        weigh(scores, count, left, width, top, total, shrink)
        for i in range(count, (count + 3) // 4 * 4):  # the product takes four terms at a time
            fill(scores[i][left:width], ZERO)
        for d in range(dim):
            multiply(sums[d][left:width], shrink[left:width])
        add_product(values.T, scores, sums, dim, count, left, width)
    for j in range(width):
        for d in range(dim):
            y[first + j, d] = sums[d, j] / total[j]


@numba.njit(parallel=True)
def attention(q, k, v, y):
    batch, heads, length, _ = q.shape
    blocks = (length + QUERIES - 1) // QUERIES
    pairs = (blocks + 1) // 2  # late queries see many keys, early ones few
    for job in numba.prange(batch * heads * pairs):
        one, pair = job // pairs, job % pairs
        b, h = one // heads, one % heads
        attend(q[b, h], k[b, h], v[b, h], pair * QUERIES, y[b, h])
        if pair != blocks - 1 - pair:
            attend(q[b, h], k[b, h], v[b, h], (blocks - 1 - pair) * QUERIES, y[b, h])
