"""Keys a block at a time, with a running maximum (online softmax); of short heads query by query.

Scores lie as (keys, queries) and sums as (dim, queries): maxima, powers and both products then run
along the queries, and no loop adds up neighbours.
"""

import math

import numba
import numpy as np

from portkern.backends.cpu.include.exponential import exp_beside_one
from portkern.backends.cpu.include.product import add_product, copy_block, dot_at
from portkern.backends.cpu.include.rows import copy, fill
from portkern.backends.cpu.include.threads import sharing

QUERIES = 128  # knob: 64 128 256
KEYS = 64  # knob: 32 64 128
SHORT = 64  # knob: 16 32 64
PARALLEL_FROM = 100000  # knob: 30000 100000 300000
ZERO = np.float32(0.0)
ONE = np.float32(1.0)
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
def attend(q, k, v, first, y, buffers):
    """The queries from ``first`` on, at most QUERIES."""
    turned, keys, values, scores, sums, lines = buffers
    top, total, shrink = lines[0], lines[1], lines[2]
    length, dim = q.shape
    width, wide = min(QUERIES, length - first), keys.shape[1]
    fill(top, LEAST)
    fill(total, ZERO)
    scale = np.float32(1.0 / math.sqrt(dim))
    for d in range(dim):
        fill(sums[d][:width], ZERO)
    for j in range(width):
        for d in range(dim):
            turned[d, j] = q[first + j, d] * scale
    for start in range(0, first + width, KEYS):
        count = min(KEYS, first + width - start)
        left = max(start - first, 0)  # earlier queries see none of these keys
        copy_block(k, start, count, 0, dim, keys)
        copy_block(v, start, count, 0, dim, values)
        for i in range(count):
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


@numba.njit
def heads(begin, end, q, k, v, y):
    """Jobs are pairs of blocks, since late queries see many keys and early ones few."""
    _, length, dim = q.shape
    width, wide = min(QUERIES, length), (dim + 3) // 4 * 4
    turned, sums = np.zeros((wide, width), np.float32), np.empty((wide, width), np.float32)
    keys, values = np.empty((KEYS, wide), np.float32), np.empty((KEYS, wide), np.float32)
    scores, lines = np.empty((KEYS, width), np.float32), np.empty((3, width), np.float32)
    buffers = (turned, keys, values, scores, sums, lines)
    blocks = (length + QUERIES - 1) // QUERIES
    pairs = (blocks + 1) // 2
    for job in range(begin, end):
        one, pair = job // pairs, job % pairs
        attend(q[one], k[one], v[one], pair * QUERIES, y[one], buffers)
        if pair != blocks - 1 - pair:
            last = (blocks - 1 - pair) * QUERIES
            attend(q[one], k[one], v[one], last, y[one], buffers)


@numba.njit(fastmath={"contract"})
def add_weighted(weights, v, at, y):
    """The sum of rows of v, from ``at`` on, by four."""
    dim = y.size
    fill(y, ZERO)
    for i in range(0, weights.size - 3, 4):
        w0, w1, w2, w3 = weights[i], weights[i + 1], weights[i + 2], weights[i + 3]
        a, b, c, e = at, at + dim, at + 2 * dim, at + 3 * dim
        for d in range(dim):
            low = w0 * v[np.uint64(a + d)] + w1 * v[np.uint64(b + d)]
            y[d] += low + w2 * v[np.uint64(c + d)] + w3 * v[np.uint64(e + d)]
        at += 4 * dim
    for i in range(weights.size - weights.size % 4, weights.size):
        for d in range(dim):
            y[d] += weights[i] * v[np.uint64(at + d)]
        at += dim


@numba.njit
def weights_of(row, scale):
    """Scores become powers, whose sum is 1."""
    top, total = LEAST, ZERO
    for i in range(row.size):
        row[i] *= scale
        top = max(top, row[i])
    for i in range(row.size):
        row[i] = exp_beside_one(row[i] - top)
    for i in range(row.size):
        total += row[i]
    for i in range(row.size):
        row[i] /= total


@numba.njit
def short_heads(begin, end, q, k, v, y):
    """Query by query, with loops along the elements of a head: those along few queries would be
    too short."""
    _, length, dim = q.shape
    queries, keys, values = q.reshape(q.size), k.reshape(q.size), v.reshape(q.size)
    scores = np.empty(length, np.float32)
    scale = np.float32(1.0 / math.sqrt(dim))
    for one in range(begin, end):
        head = one * length * dim
        for j in range(length):
            row = scores[: j + 1]
            for i in range(j + 1):
                row[i] = dot_at(queries, head + j * dim, keys, head + i * dim, dim)
            weights_of(row, scale)
            add_weighted(row, values, head, y[one, j])


@numba.njit
def single_keys(begin, end, q, k, v, y):
    """A weight is 1, unless its score is infinite or no number."""
    _, _, dim = q.shape
    queries, keys = q.reshape(q.size), k.reshape(q.size)
    values, sums = v.reshape(q.size), y.reshape(q.size)
    for at in range(begin * dim, end * dim, dim):
        score = dot_at(queries, at, keys, at, dim)
        weight = ONE + (score - score)
        for d in range(dim):
            sums[np.uint64(at + d)] = weight * values[np.uint64(at + d)]


share_heads = sharing(heads, PARALLEL_FROM)
share_short = sharing(short_heads, PARALLEL_FROM)
share_single = sharing(single_keys, PARALLEL_FROM)


@numba.njit
def attention(q, k, v, y):
    batch, each, length, dim = q.shape
    count = batch * each
    shape = (count, length, dim)
    q, k, v, y = q.reshape(shape), k.reshape(shape), v.reshape(shape), y.reshape(shape)
    if length == 1:
        share_single(count, q.size, q, k, v, y)
    elif length <= SHORT:
        share_short(count, q.size * length, q, k, v, y)
    else:
        pairs = ((length + QUERIES - 1) // QUERIES + 1) // 2
        share_heads(count * pairs, q.size * length, q, k, v, y)
