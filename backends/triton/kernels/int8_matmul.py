"""c = (a w) * scale: weights are widened to the dtype of a in registers, just before the product,
and the scale of a column is applied to its finished sums. A few rows, as a decoder has, take narrow
tiles, so that there are enough of them to draw on the memory's whole bandwidth; one or two rows or
columns go without a dot, in float32 up to eight, their depth shared out where tiles are few."""

import torch
import triton
import triton.language as tl

BLOCK_M = 128  # knob: 64 128
BLOCK_N = 128  # knob: 64 128
BLOCK_K = 64  # knob: 32 64
NUM_WARPS = 8  # knob: 4 8
NUM_STAGES = 3  # knob: 2 3 4
# For float32, which runs on the ordinary multipliers.
BLOCK_F32 = 64  # knob: 32 64 128
BLOCK_K_F32 = 16  # knob: 16 32
# For at most 32 rows, unless there are columns enough for wide tiles.
NARROW_N = 32  # knob: 16 32 64
NARROW_K = 128  # knob: 64 128 256
ENOUGH = 256  # knob: 128 256 512
GROUP = 8  # knob: 1 4 8 16
TILES = 192  # knob: 64 128 192 256
PROGRAMS = 256  # knob: 128 256 512
PROGRAMS_THIN = 1024  # knob: 512 1024 2048
LEAST_DEPTH = 512  # knob: 256 512 1024
THIN_TILE = 8192  # knob: 4096 8192
THIN_LEAST = 1024  # knob: 512 1024 2048
THIN_COLS = 64  # knob: 32 64 128
# The most rows or columns that go without a dot; in 16 bits a dot's multipliers are much faster.
THIN_F32 = 8
THIN_16 = 2


@triton.jit
def _int8_matmul(
    a,
    weight,
    scale,
    c,
    m,
    n,
    k,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
):
    tiles_m = tl.cdiv(m, BLOCK_M)
    tiles_n = tl.cdiv(n, BLOCK_N)
    # GROUP rows of tiles are walked column by column, so that their operands stay in the L2.
    group = tl.program_id(0) // (GROUP * tiles_n)
    height = tl.minimum(tiles_m - group * GROUP, GROUP)
    within = tl.program_id(0) % (GROUP * tiles_n)
    row = (group * GROUP + within % height) * BLOCK_M + tl.arange(0, BLOCK_M)
    col = within // height * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    a_tile = a + row.to(tl.int64)[:, None] * k + depth[None, :]
    w_tile = weight + depth.to(tl.int64)[:, None] * n + col[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, k, BLOCK_K):
        left = k - start
        a_value = tl.load(a_tile, mask=(row < m)[:, None] & (depth < left)[None, :], other=0.0)
        w_value = tl.load(w_tile, mask=(depth < left)[:, None] & (col < n)[None, :], other=0)
        total = tl.dot(a_value, w_value.to(a_value.dtype), total, input_precision="ieee")
        a_tile += BLOCK_K
        w_tile += BLOCK_K * n
    total *= tl.load(scale + col, mask=col < n, other=0.0).to(tl.float32)[None, :]
    target = c + row.to(tl.int64)[:, None] * n + col[None, :]
    tl.store(target, total.to(c.dtype.element_ty), mask=(row < m)[:, None] & (col < n)[None, :])


@triton.jit
def _thin(a, weight, scale, c, m, n, k, span, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """Each lane multiplies at places of its own in the depth, which are added up at the end. There
    is no ``scale`` where other programs have other parts of it."""
    tiles_n = tl.cdiv(n, N)
    begin = tl.program_id(1) * span
    row = (tl.program_id(0) // tiles_n * M + tl.arange(0, M)).to(tl.int64)[:, None, None]
    col = tl.program_id(0) % tiles_n * N + tl.arange(0, N)[None, None, :]
    depth = begin + tl.arange(0, K)[None, :, None]
    end = begin + tl.minimum(k - begin, span)
    total = tl.zeros((M, K, N), tl.float32)
    for _ in range(begin, end, K):
        a_value = tl.load(a + row * k + depth, mask=(row < m) & (depth < end), other=0.0)
        w_mask = (depth < end) & (col < n)
        w_value = tl.load(weight + depth.to(tl.int64) * n + col, mask=w_mask, other=0)
        total += a_value.to(tl.float32) * w_value.to(tl.float32)
        depth += K
    result = tl.sum(total, axis=1)[:, None, :]
    if scale is not None:
        result *= tl.load(scale + col, mask=col < n, other=0.0).to(tl.float32)
    target = c + (tl.program_id(1).to(tl.int64) * m + row) * n + col
    tl.store(target, result.to(c.dtype.element_ty), mask=(row < m) & (col < n))


@triton.jit
def _add(parts, scale, c, n, count, many, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for _ in range(many):
        total += tl.load(parts + at, mask=at < count, other=0.0)
        parts += count
    total *= tl.load(scale + at % n, mask=at < count, other=0.0).to(tl.float32)
    tl.store(c + at, total.to(c.dtype.element_ty), mask=at < count)


def _thin_tile(m, n, k):
    """Rows, columns and depth of a program: as much of the longer side as there is room for beside
    the depth, of a smaller tile where programs are few."""
    deep = triton.next_power_of_2(max(k, 1))
    share = max(1, m * n * k // PROGRAMS)
    tile = max(THIN_LEAST, min(THIN_TILE, triton.next_power_of_2(share)))
    few, long = (m, n) if m <= n else (n, m)
    few = min(triton.next_power_of_2(few), 8)
    most = max(THIN_COLS if m <= n else 8, tile // (few * deep))
    long = min(triton.next_power_of_2(long), most)
    depth = min(deep, THIN_TILE // (few * long))
    return (few, long, depth) if m <= n else (long, few, depth)


def _without_dot(a, weight, scale, c):
    (m, k), n = a.shape, weight.shape[1]
    rows, cols, depth = _thin_tile(m, n, k)
    tiles = triton.cdiv(m, rows) * triton.cdiv(n, cols)
    parts = max(1, min(PROGRAMS_THIN // tiles, k // max(depth, LEAST_DEPTH)))
    span = max(1, triton.cdiv(triton.cdiv(k, parts), depth) * depth)
    parts = max(1, triton.cdiv(k, span))
    one = parts == 1
    sums = c if one else torch.empty((parts, c.numel()), dtype=torch.float32, device=c.device)
    _thin[(tiles, parts)](
        a,
        weight,
        scale if one else None,
        sums,
        m,
        n,
        k,
        span,
        M=rows,
        N=cols,
        K=depth,
        num_warps=max(1, min(8, rows * cols * depth // 1024)),
    )
    if not one:
        _add[(triton.cdiv(c.numel(), 512),)](sums, scale, c, n, c.numel(), parts, BLOCK=512)


def _fit(length, block):
    """A smaller block for a smaller matrix; 16 is the least that every dot unit takes."""
    return max(16, min(block, triton.next_power_of_2(length)))


def _blocks(m, n, most_m, most_n):
    """Of a smaller matrix smaller blocks, and of 64 at least where there would be few."""
    block_m, block_n = _fit(m, most_m), _fit(n, most_n)
    while max(block_m, block_n) > 64 and triton.cdiv(m, block_m) * triton.cdiv(n, block_n) < TILES:
        block_m, block_n = (
            (block_m, block_n // 2) if block_n >= block_m else (block_m // 2, block_n)
        )
    return block_m, block_n


def int8_matmul(a, weight, scale, c):
    (m, k), n = a.shape, weight.shape[1]
    if c.numel() == 0:
        return
    strict = a.dtype == torch.float32
    if min(m, n) <= (THIN_F32 if strict else THIN_16):
        _without_dot(a, weight, scale, c)
        return
    narrow = m <= 32 and n <= ENOUGH * BLOCK_N
    if narrow:
        block_m, block_n = _fit(m, BLOCK_F32 if strict else BLOCK_M), _fit(n, NARROW_N)
    else:
        most_m, most_n = (BLOCK_F32, BLOCK_F32) if strict else (BLOCK_M, BLOCK_N)
        block_m, block_n = _blocks(m, n, most_m, most_n)
    block_k = _fit(k, BLOCK_K_F32 if strict else NARROW_K if narrow else BLOCK_K)
    grid = (triton.cdiv(m, block_m) * triton.cdiv(n, block_n),)
    _int8_matmul[grid](
        a,
        weight,
        scale,
        c,
        m,
        n,
        k,
        BLOCK_M=block_m,
        BLOCK_N=block_n,
        BLOCK_K=block_k,
        GROUP=GROUP,
        num_warps=min(NUM_WARPS, max(4, block_m * block_n // 2048)),
        num_stages=NUM_STAGES,
    )
