"""c = a b, accumulated in float32; float32 inputs keep their precision unless TF32.

In tiles of a dot, whose depth is shared out where too few tiles would fill a device; few rows or
columns go without a dot, since its least tile would be empty for the most part. Rows that no vector
load can take in 16 bits are copied to aligned ones first, where the product is large.
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
TF32 = 0  # knob: 0 1
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
# Of so little depth a dot would be empty too, and writing is what takes time.
SHALLOW = 4
SHALLOW_COLS = 256
# Multiplications from which a copy of 16-bit operands is cheap beside the product.
ALIGN_FROM = 1 << 30
WIDTH = 16


@triton.jit
def _matmul(
    a,
    b,
    c,
    m,
    n,
    k,
    b_width,
    span,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Of the depth ``[part * span, part * span + span)``; ``b_width`` elements are a row of b."""
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
    in_width = (col < b_width - first_col)[None, :]
    a_tile = a + first_row.to(tl.int64) * k + begin
    a_tile += row.to(tl.int64)[:, None] * k + depth[None, :]
    b_tile = b + begin.to(tl.int64) * b_width + first_col
    b_tile += depth.to(tl.int64)[:, None] * b_width + col[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, tl.minimum(k - begin, span), BLOCK_K):
        left = k - begin - start
        a_value = tl.load(a_tile, mask=in_rows & (depth < left)[None, :], other=0.0)
        b_value = tl.load(b_tile, mask=(depth < left)[:, None] & in_width, other=0.0)
        total = tl.dot(a_value, b_value, total, input_precision=PRECISION)
        a_tile += BLOCK_K
        b_tile += BLOCK_K * b_width
    target = c + (tl.program_id(1).to(tl.int64) * m + first_row) * n + first_col
    target += row.to(tl.int64)[:, None] * n + col[None, :]
    in_cols = (col < n - first_col)[None, :]
    tl.store(target, total.to(c.dtype.element_ty), mask=in_rows & in_cols)


@triton.jit
def _thin(a, b, c, m, n, k, span, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """Each lane multiplies at places of its own in the depth, which are added up at the end."""
    tiles_n = tl.cdiv(n, N)
    begin = tl.program_id(1) * span
    row = (tl.program_id(0) // tiles_n * M + tl.arange(0, M)).to(tl.int64)[:, None, None]
    col = tl.program_id(0) % tiles_n * N + tl.arange(0, N)[None, None, :]
    depth = begin + tl.arange(0, K)[None, :, None]
    end = begin + tl.minimum(k - begin, span)
    total = tl.zeros((M, K, N), tl.float32)
    for _ in range(begin, end, K):
        a_value = tl.load(a + row * k + depth, mask=(row < m) & (depth < end), other=0.0)
        b_mask = (depth < end) & (col < n)
        b_value = tl.load(b + depth.to(tl.int64) * n + col, mask=b_mask, other=0.0)
        total += a_value.to(tl.float32) * b_value.to(tl.float32)
        depth += K
    result = tl.sum(total, axis=1)[:, None, :].to(c.dtype.element_ty)
    target = c + (tl.program_id(1).to(tl.int64) * m + row) * n + col
    tl.store(target, result, mask=(row < m) & (col < n))


@triton.jit
def _add(parts, c, count, many, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for _ in range(many):
        total += tl.load(parts + at, mask=at < count, other=0.0)
        parts += count
    tl.store(c + at, total.to(c.dtype.element_ty), mask=at < count)


@triton.jit
def _align(x, y, rows, cols, all_rows, width, BLOCK: tl.constexpr):
    """x in rows of ``width``, with zeros around."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    row, col = at // width, at % width
    value = tl.load(x + row * cols + col, mask=(row < rows) & (col < cols), other=0.0)
    tl.store(y + at, value, mask=row < all_rows)


def _precision(x):
    """How a dot multiplies float32: as it is, or as TF32 where that is asked for and NVIDIA's."""
    if not TF32 or x.dtype != torch.float32 or not x.is_cuda:
        return "ieee"
    return "tf32" if triton.runtime.driver.active.get_current_target().backend == "cuda" else "ieee"


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


def _in_parts(c, k, tiles, programs, block, launch):
    """``launch(target, parts, span)``, into parts of the depth where there are few tiles."""
    parts = max(1, min(programs // tiles, k // max(block, LEAST_DEPTH)))
    span = triton.cdiv(triton.cdiv(k, parts), block) * block
    parts = max(1, triton.cdiv(k, span)) if span else 1
    if parts == 1:
        launch(c, 1, max(span, 1))
        return
    sums = torch.empty((parts, c.numel()), dtype=torch.float32, device=c.device)
    launch(sums, parts, span)
    _add[(triton.cdiv(c.numel(), 512),)](sums, c, c.numel(), parts, BLOCK=512)


def _thin_tile(m, n, k):
    """Rows, columns and depth of a program: as much of the longer side as there is room for beside
    the depth, of a smaller tile where programs are few."""
    deep = triton.next_power_of_2(max(k, 1))
    share = max(1, m * n * k // PROGRAMS)
    tile = max(THIN_LEAST, min(THIN_TILE, triton.next_power_of_2(share)))
    if k <= SHALLOW:
        cols = min(triton.next_power_of_2(n), SHALLOW_COLS)
        return min(triton.next_power_of_2(m), tile // (cols * deep)), cols, deep
    few, long = (m, n) if m <= n else (n, m)
    few = min(triton.next_power_of_2(few), 8)
    most = max(THIN_COLS if m <= n else 8, tile // (few * deep))
    long = min(triton.next_power_of_2(long), most)
    depth = min(deep, THIN_TILE // (few * long))
    return (few, long, depth) if m <= n else (long, few, depth)


def _without_dot(a, b, c):
    (m, k), n = a.shape, b.shape[1]
    rows, cols, depth = _thin_tile(m, n, k)
    tiles = triton.cdiv(m, rows) * triton.cdiv(n, cols)
    warps = max(1, min(8, rows * cols * depth // 1024))

    def launch(target, parts, span):
        _thin[(tiles, parts)](a, b, target, m, n, k, span, M=rows, N=cols, K=depth, num_warps=warps)

    _in_parts(c, k, tiles, PROGRAMS_THIN, depth, launch)


def _aligned(x, rows, cols):
    y = torch.empty((rows, cols), dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(y.numel(), 2048),)
    _align[grid](x, y, x.shape[0], x.shape[1], rows, cols, BLOCK=2048, num_warps=8)
    return y


def matmul(a, b, c):
    (m, k), n = a.shape, b.shape[1]
    if c.numel() == 0:
        return
    strict = a.dtype == torch.float32
    if min(m, n) <= (THIN_F32 if strict else THIN_16) or k <= SHALLOW:
        _without_dot(a, b, c)
        return
    if not strict and (k % 8 or n % 8) and m * n * k >= ALIGN_FROM:
        k = triton.cdiv(k, WIDTH) * WIDTH
        a, b = _aligned(a, m, k), _aligned(b, k, triton.cdiv(n, WIDTH) * WIDTH)
    most_m, most_n = (BLOCK_F32, BLOCK_F32) if strict else (BLOCK_M, BLOCK_N)
    block_m, block_n = _blocks(m, n, most_m, most_n)
    block_k = _fit(k, BLOCK_K_F32 if strict else BLOCK_K)
    tiles = triton.cdiv(m, block_m) * triton.cdiv(n, block_n)

    def launch(target, parts, span):
        _matmul[(tiles, parts)](
            a,
            b,
            target,
            m,
            n,
            k,
            b.shape[1],
            span,
            BLOCK_M=block_m,
            BLOCK_N=block_n,
            BLOCK_K=block_k,
            GROUP=GROUP,
            PRECISION=_precision(a),
            num_warps=min(NUM_WARPS, max(4, block_m * block_n // 2048)),
            num_stages=NUM_STAGES,
        )

    _in_parts(c, k, tiles, PROGRAMS, block_k, launch)
