"""Keys a block at a time, with a running maximum (online softmax).

Scores lie as (keys, queries) and sums as (dim, queries): maxima, powers and both products then run
along the queries, and no loop adds up neighbours.
"""

import math

import numba
import numpy as np

from portkern.backends.cpu.include.exponential import exp_beside_one
from portkern.backends.cpu.include.product import add_product
from portkern.backends.cpu.include.rows import copy, fill

QUERIES = 128  # knob: 64 128 256
KEYS = 64  # knob: 32 64 128
ZERO = np.float32(0.0)
LEAST = np.float32(-np.inf)


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
        small[j] = exp_beside_one(small[j] - most[j])
        sums[j] *= small[j]
    for i in range(count):
        row = scores[i][left:right]
        for j in range(row.size):
            row[j] = exp_beside_one(row[j] - most[j])
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
