"""y = x W' + bias, of a weight that has a row for each column of y; accumulated in float32.

In tiles of a dot, whose depth is shared out where too few tiles would fill a device; few rows or
columns go without a dot: lanes lie along the depth, as both operands do.
"""

import torch
import triton
import triton.language as tl

BLOCK_M = 128  # knob: 64 128
BLOCK_N = 128  # knob: 64 128 256
BLOCK_K = 64  # knob: 32 64
NUM_WARPS = 8  # knob: 4 8
NUM_STAGES = 3  # knob: 2 3 4
BLOCK_F32 = 64  # knob: 32 64 128
BLOCK_K_F32 = 16  # knob: 8 16 32
GROUP = 8  # knob: 1 4 8 16
TILES = 192  # knob: 64 128 192 256
PROGRAMS = 256  # knob: 128 256 512
PROGRAMS_THIN = 1024  # knob: 512 1024 2048
LEAST_DEPTH = 512  # knob: 256 512 1024
THIN_TILE = 4096  # knob: 2048 4096 8192
THIN_DEPTH = 512  # knob: 256 512 1024
# The most rows or columns that go without a dot, whose least tile would be empty for the most part.
THIN = 8
# Multiplications in float32 from which a copy of the weight with the depth outside, which such
# multipliers take faster, is cheap beside the product.
TURN_FROM = 1 << 30
SIDE = 64


@triton.jit
def _tiles(
    x,
    weight,
    bias,
    y,
    m,
    n,
    k,
    across,
    deep,
    span,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
):
    """Of the depth ``[part * span, part * span + span)``. Rows of the weight are ``across``
    elements apart, columns ``deep``."""
    tiles_m = tl.cdiv(m, BLOCK_M)
    tiles_n = tl.cdiv(n, BLOCK_N)
    # GROUP rows of tiles are walked column by column, so that their operands stay in the L2.
    group = tl.program_id(0) // (GROUP * tiles_n)
    height = tl.minimum(tiles_m - group * GROUP, GROUP)
    within = tl.program_id(0) % (GROUP * tiles_n)
    begin = tl.program_id(1) * span
    # The tile's start is a 64-bit scalar, which takes fewer registers than such rows.
    first_row = (group * GROUP + within % height) * BLOCK_M
    first_col = within // height * BLOCK_N
    row = tl.arange(0, BLOCK_M)
    col = tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    in_rows = (row < m - first_row)[:, None]
    in_cols = (col < n - first_col)[None, :]
    x_tile = x + first_row.to(tl.int64) * k + begin
    x_tile += row.to(tl.int64)[:, None] * k + depth[None, :]
    weight_tile = weight + first_col.to(tl.int64) * across + begin.to(tl.int64) * deep
    weight_tile += col.to(tl.int64)[None, :] * across + depth.to(tl.int64)[:, None] * deep
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, tl.minimum(k - begin, span), BLOCK_K):
        left = k - begin - start
        x_value = tl.load(x_tile, mask=in_rows & (depth < left)[None, :], other=0.0)
        weight_value = tl.load(weight_tile, mask=(depth < left)[:, None] & in_cols, other=0.0)
        total = tl.dot(x_value, weight_value, total, input_precision="ieee")
        x_tile += BLOCK_K
        weight_tile += BLOCK_K * deep
    if tl.program_id(1) == 0:  # the first part of the depth has it
        more = tl.load(bias + first_col + col, mask=col < n - first_col, other=0.0)
        total += more.to(tl.float32)[None, :]
    target = y + (tl.program_id(1).to(tl.int64) * m + first_row) * n + first_col
    target += row.to(tl.int64)[:, None] * n + col[None, :]
    tl.store(target, total.to(y.dtype.element_ty), mask=in_rows & in_cols)


@triton.jit
def _thin(x, weight, bias, y, m, n, k, span, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """Each lane multiplies at places of its own in the depth, which are added up at the end."""
    tiles_n = tl.cdiv(n, N)
    begin = tl.program_id(1) * span
    row = (tl.program_id(0) // tiles_n * M + tl.arange(0, M)).to(tl.int64)[:, None, None]
    col = (tl.program_id(0) % tiles_n * N + tl.arange(0, N)).to(tl.int64)[None, :, None]
    depth = begin + tl.arange(0, K)[None, None, :]
    end = begin + tl.minimum(k - begin, span)
    total = tl.zeros((M, N, K), tl.float32)
    for _ in range(begin, end, K):
        x_value = tl.load(x + row * k + depth, mask=(row < m) & (depth < end), other=0.0)
        weight_value = tl.load(weight + col * k + depth, mask=(col < n) & (depth < end), other=0.0)
        total += x_value.to(tl.float32) * weight_value.to(tl.float32)
        depth += K
    result = tl.sum(total, axis=2)[:, :, None]
    if tl.program_id(1) == 0:
        result += tl.load(bias + col, mask=col < n, other=0.0).to(tl.float32)
    target = y + (tl.program_id(1).to(tl.int64) * m + row) * n + col
    tl.store(target, result.to(y.dtype.element_ty), mask=(row < m) & (col < n))


@triton.jit
def _turn(x, y, rows, cols, SIDE: tl.constexpr):
    tiles = tl.cdiv(cols, SIDE)
    row = (tl.program_id(0) // tiles * SIDE + tl.arange(0, SIDE)).to(tl.int64)
    col = (tl.program_id(0) % tiles * SIDE + tl.arange(0, SIDE)).to(tl.int64)
    mask = (row < rows)[:, None] & (col < cols)[None, :]
    value = tl.load(x + row[:, None] * cols + col[None, :], mask=mask, other=0.0)
    tl.store(y + col[:, None] * rows + row[None, :], tl.trans(value), mask=tl.trans(mask))


@triton.jit
def _add(parts, y, count, many, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for _ in range(many):
        total += tl.load(parts + at, mask=at < count, other=0.0)
        parts += count
    tl.store(y + at, total.to(y.dtype.element_ty), mask=at < count)


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


def _in_parts(y, k, tiles, programs, block, launch):
    """``launch(target, parts, span)``, into parts of the depth where there are few tiles."""
    parts = max(1, min(programs // tiles, k // max(block, LEAST_DEPTH)))
    span = triton.cdiv(triton.cdiv(k, parts), block) * block
    parts = max(1, triton.cdiv(k, span)) if span else 1
    if parts == 1:
        launch(y, 1, max(span, 1))
        return
    sums = torch.empty((parts, y.numel()), dtype=torch.float32, device=y.device)
    launch(sums, parts, span)
    _add[(triton.cdiv(y.numel(), 512),)](sums, y, y.numel(), parts, BLOCK=512)


def _without_dot(x, weight, bias, y):
    (m, k), n = x.shape, weight.shape[0]
    depth = min(triton.next_power_of_2(max(k, 1)), THIN_DEPTH)
    room = THIN_TILE // depth
    few = min(triton.next_power_of_2(min(m, n)), THIN)
    many = max(1, min(triton.next_power_of_2(max(m, n)), room // few))
    rows, cols = (few, many) if m <= n else (many, few)
    tiles = triton.cdiv(m, rows) * triton.cdiv(n, cols)
    warps = max(1, min(8, rows * cols * depth // 1024))

    def launch(target, parts, span):
        _thin[(tiles, parts)](
            x, weight, bias, target, m, n, k, span, M=rows, N=cols, K=depth, num_warps=warps
        )

    _in_parts(y, k, tiles, PROGRAMS_THIN, depth, launch)


def linear_bias(x, weight, bias, y):
    (m, k), n = x.shape, weight.shape[0]
    if y.numel() == 0:
        return
    if min(m, n) <= THIN:
        _without_dot(x, weight, bias, y)
        return
    strict = x.dtype == torch.float32
    most_m, most_n = (BLOCK_F32, BLOCK_F32) if strict else (BLOCK_M, BLOCK_N)
    block_m, block_n = _blocks(m, n, most_m, most_n)
    block_k = _fit(k, BLOCK_K_F32 if strict else BLOCK_K)
    tiles = triton.cdiv(m, block_m) * triton.cdiv(n, block_n)
    across, deep = k, 1
    if strict and m * n * k >= TURN_FROM:
        own, weight = weight, torch.empty((k, n), dtype=weight.dtype, device=weight.device)
        grid = (triton.cdiv(n, SIDE) * triton.cdiv(k, SIDE),)
        _turn[grid](own, weight, n, k, SIDE=SIDE, num_warps=8)
        across, deep = 1, n

    def launch(target, parts, span):
        _tiles[(tiles, parts)](
            x,
            weight,
            bias,
            target,
            m,
            n,
            k,
            across,
            deep,
            span,
            BLOCK_M=block_m,
            BLOCK_N=block_n,
            BLOCK_K=block_k,
            GROUP=GROUP,
            num_warps=min(NUM_WARPS, max(4, block_m * block_n // 2048)),
            num_stages=NUM_STAGES,
        )

    _in_parts(y, k, tiles, PROGRAMS, block_k, launch)
