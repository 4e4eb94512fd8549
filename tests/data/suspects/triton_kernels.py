"""Kernels of our own in the shape of those that public reports say AMD's compilers get wrong."""

import triton
import triton.language as tl


@triton.jit
def rows_in_a_loop(x, scales, out, rows, N: tl.constexpr):
    """One program for all rows: a scale of each, and its numbers in bytes, two to a byte."""
    k = tl.arange(0, N)
    for row in range(0, rows):
        even = tl.load(x + row * 2 * N + 2 * k)
        odd = tl.load(x + row * 2 * N + 2 * k + 1)
        scale = tl.maximum(tl.max(tl.abs(even)), tl.max(tl.abs(odd))) / 7.0
        low = (even / scale + 8.5).to(tl.int32) & 15
        high = (odd / scale + 8.5).to(tl.int32) & 15
        tl.store(scales + row, scale)
        tl.store(out + row * N + k, (low | high << 4).to(tl.uint8))


@triton.jit
def _log_of_sum(a, b):
    most = tl.maximum(a, b)
    return most + tl.log(1.0 + tl.exp(tl.minimum(a, b) - most))


@triton.jit
def running_log_of_sums(x, out, n, N: tl.constexpr):
    """A scan over more lanes than a wave has, carried on from block to block."""
    k = tl.arange(0, N)
    before = tl.full((1,), -1e30, tl.float32)
    for first in range(0, n, N):
        here = tl.load(x + first + k, mask=first + k < n, other=-1e30)
        scanned = tl.associative_scan(here, 0, _log_of_sum)
        scanned = _log_of_sum(scanned, before)
        tl.store(out + first + k, scanned, mask=first + k < n)
        before = tl.sum(tl.where(k == N - 1, scanned, 0.0), 0)[None]


@triton.jit
def times_log(x, number, out, n, N: tl.constexpr):
    k = tl.program_id(0) * N + tl.arange(0, N)
    mask = k < n
    factor = tl.log(tl.load(number + k // 64, mask).to(tl.float32) + 1.0)
    value = tl.load(x + k, mask).to(tl.float32) * factor
    tl.store(out + k, value.to(tl.bfloat16), mask)


@triton.jit
def bins_in_use(x, out, N: tl.constexpr, BINS: tl.constexpr):
    counts = tl.histogram(tl.load(x + tl.arange(0, N)), BINS)
    tl.store(out + tl.arange(0, BINS), (counts > 0).to(tl.int32))


@triton.jit
def places_by_truth(x, out, N: tl.constexpr):
    k = tl.arange(0, N)
    value = tl.load(x + k)
    place = tl.cumsum(value >= 0, 0) - 1
    tl.store(out + place, value, mask=value >= 0)


@triton.jit
def nearest_counted(points, centres, counts, N: tl.constexpr, D: tl.constexpr, C: tl.constexpr):
    d, c = tl.arange(0, D), tl.arange(0, C)
    p = tl.load(points + tl.arange(0, N)[:, None] * D + d[None, :])
    q = tl.load(centres + c[:, None] * D + d[None, :])
    nearest = tl.argmin(tl.dot(p, tl.trans(q)), axis=1)
    tl.store(counts + c, tl.histogram(nearest.to(tl.int32), C))


@triton.jit
def doubled_beside_a_lone_store(x, y, other, flag, n, N: tl.constexpr):
    """A store that the first program alone makes, between two that all make."""
    k = tl.program_id(0) * N + tl.arange(0, N)
    value = tl.load(x + k, mask=k < n, other=0.0)
    if tl.load(flag) > 0:
        tl.store(other, 1.0, mask=tl.program_id(0) == 0)
    value = value + value
    if tl.load(flag) > 0:
        tl.store(other + 1, 1.0, mask=tl.program_id(0) == 0)
    tl.store(y + k, value, mask=k < n)


@triton.jit
def first_of_the_greatest(x, out, rows, columns, R: tl.constexpr, C: tl.constexpr):
    """Where in each column the greatest stands first, many being equal."""
    c = tl.program_id(0) * C + tl.arange(0, C)
    best = tl.full((C,), -1e30, tl.float32)
    at = tl.zeros((C,), tl.int32)
    for first in range(0, rows, R):
        r = first + tl.arange(0, R)
        inside = (r < rows)[:, None] & (c < columns)[None, :]
        here = tl.load(x + r[:, None] * columns + c[None, :], mask=inside, other=-1e30)
        most, where = tl.max(here, 0, return_indices=True, return_indices_tie_break_left=True)
        at = tl.where(most > best, where + first, at)
        best = tl.maximum(most, best)
    tl.store(out + c, at, mask=c < columns)


@triton.jit
def gated(x, out, width, N: tl.constexpr):
    row = tl.program_id(0)
    for first in range(0, width, N):
        k = first + tl.arange(0, N)
        mask = k < width
        gate = tl.load(x + row * 2 * width + k, mask=mask, other=0.0).to(tl.float32)
        up = tl.load(x + row * 2 * width + width + k, mask=mask, other=0.0).to(tl.float32)
        value = gate / (1.0 + tl.exp(-gate)) * up
        tl.store(out + row * width + k, value.to(tl.bfloat16), mask=mask)


@triton.jit
def product(a, b, c, m, n, depth, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    i = tl.program_id(0) * M + tl.arange(0, M)
    j = tl.program_id(1) * N + tl.arange(0, N)
    total = tl.zeros((M, N), tl.float32)
    for first in range(0, depth, K):
        k = first + tl.arange(0, K)
        x = tl.load(
            a + i[:, None] * depth + k[None, :],
            mask=(i < m)[:, None] & (k < depth)[None, :], other=0.0,
        )  # fmt: skip
        y = tl.load(
            b + k[:, None] * n + j[None, :],
            mask=(k < depth)[:, None] & (j < n)[None, :], other=0.0,
        )  # fmt: skip
        total = tl.dot(x, y, total)
    tl.store(c + i[:, None] * n + j[None, :], total, mask=(i < m)[:, None] & (j < n)[None, :])


@triton.jit
def two_products(a, b, c, d, out, depth, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    i, j = tl.arange(0, M), tl.arange(0, N)
    total = tl.zeros((M, N), tl.float32)
    for first in range(0, depth, K):
        k = first + tl.arange(0, K)
        left, right = i[:, None] * depth + k[None, :], k[:, None] * N + j[None, :]
        total = tl.dot(tl.load(a + left), tl.load(b + right), total)
        total = tl.dot(tl.load(c + left), tl.load(d + right), total)
    tl.store(out + i[:, None] * N + j[None, :], total)


@triton.jit
def normed_and_gated(x, weight, out, width, N: tl.constexpr):
    """Normalises bfloat16 rows by mean and variance, then gates them by GELU."""
    k = tl.arange(0, N)
    mask = k < width
    row = tl.load(x + tl.program_id(0) * width + k, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(row, 0) / width
    apart = tl.where(mask, row - mean, 0.0)
    row = apart * tl.rsqrt(tl.sum(apart * apart, 0) / width + 1e-5)
    row = row * tl.load(weight + k, mask=mask, other=0.0).to(tl.float32)
    value = 0.5 * row * (1.0 + tl.erf(row * 0.70710678))
    tl.store(out + tl.program_id(0) * width + k, value.to(tl.bfloat16), mask=mask)


@triton.jit
def attended(q, k, v, out, length, causal, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr):
    """Attention of one head; whether what follows is hidden is known at run time alone."""
    i, d = tl.program_id(0) * M + tl.arange(0, M), tl.arange(0, D)
    x = tl.load(q + i[:, None] * D + d[None, :], mask=(i < length)[:, None], other=0.0)
    most = tl.full((M,), -1e30, tl.float32)
    total = tl.zeros((M,), tl.float32)
    sums = tl.zeros((M, D), tl.float32)
    for first in range(0, length, N):
        j = first + tl.arange(0, N)
        inside = (j < length)[None, :]
        y = tl.load(k + j[None, :] * D + d[:, None], mask=inside, other=0.0)
        seen = inside & ((j[None, :] <= i[:, None]) | (causal == 0))
        score = tl.where(seen, tl.dot(x, y) * 0.125, -1e30)
        higher = tl.maximum(most, tl.max(score, 1))
        weight = tl.where(seen, tl.exp(score - higher[:, None]), 0.0)
        kept = tl.exp(most - higher)
        z = tl.load(v + j[:, None] * D + d[None, :], mask=(j < length)[:, None], other=0.0)
        sums = sums * kept[:, None] + tl.dot(weight.to(z.dtype), z)
        total = total * kept + tl.sum(weight, 1)
        most = higher
    value = sums / total[:, None]
    tl.store(out + i[:, None] * D + d[None, :], value, mask=(i < length)[:, None])
