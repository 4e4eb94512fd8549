"""Products of experts, in tiles of a dot: a program finds the expert whose rows its tile has by the
tiles of those before, which it counts side by side. Accumulated in float32, without TF32."""

import triton
import triton.language as tl

BLOCK_M = 128  # knob: 64 128
BLOCK_N = 128  # knob: 64 128 256
BLOCK_K = 64  # knob: 32 64
NUM_WARPS = 8  # knob: 4 8
NUM_STAGES = 3  # knob: 2 3 4
BLOCK_F32 = 64  # knob: 32 64 128
BLOCK_K_F32 = 16  # knob: 8 16 32


@triton.jit
def _larger(a, b):
    return tl.maximum(a, b)


@triton.jit
def _ends_until(ends, number, rows, experts):
    """Of each number of experts the end of their rows."""
    there = (number >= 0) & (number < experts)
    given = tl.load(ends + number, mask=there, other=0)
    return tl.associative_scan(tl.minimum(given, rows), 0, _larger)


@triton.jit
def _tiles(
    x,
    weight,
    ends,
    y,
    rows,
    n,
    k,
    experts,
    EXPERTS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    tiles_n = tl.cdiv(n, BLOCK_N)
    tile = tl.program_id(0) // tiles_n
    first_col = tl.program_id(0) % tiles_n * BLOCK_N
    number = tl.arange(0, EXPERTS)
    end = _ends_until(ends, number, rows, experts)
    start = _ends_until(ends, number - 1, rows, experts)
    count = tl.cdiv(end - start, BLOCK_M)
    until = tl.cumsum(count, axis=0)
    own = (until > tile) & (until - count <= tile)
    found = tl.sum(own.to(tl.int32), axis=0) > 0
    expert = tl.sum(tl.where(own, number, 0), axis=0)
    # Rows behind the last end are nobody's: there is nothing to add up.
    begin = tl.sum(tl.where(own, start, 0), axis=0)
    begin = tl.where(found, begin, tl.max(end, axis=0))
    last = tl.where(found, tl.sum(tl.where(own, end, 0), axis=0), rows)
    skipped = tl.sum(tl.where(own, until - count, 0), axis=0)
    skipped = tl.where(found, skipped, tl.max(until, axis=0))
    first_row = begin + (tile - skipped) * BLOCK_M
    deep = tl.where(found, k, 0)
    row = tl.arange(0, BLOCK_M)
    col = tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    in_rows = (row < last - first_row)[:, None]
    in_cols = (col < n - first_col)[None, :]
    x_tile = x + first_row.to(tl.int64) * k + row.to(tl.int64)[:, None] * k + depth[None, :]
    weight_tile = weight + (expert.to(tl.int64) * n + first_col) * k
    weight_tile += col.to(tl.int64)[None, :] * k + depth[:, None]
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for at in range(0, deep, BLOCK_K):
        x_value = tl.load(x_tile, mask=in_rows & (depth < k - at)[None, :], other=0.0)
        weight_value = tl.load(weight_tile, mask=(depth < k - at)[:, None] & in_cols, other=0.0)
        total = tl.dot(x_value, weight_value, total, input_precision="ieee")
        x_tile += BLOCK_K
        weight_tile += BLOCK_K
    target = y + first_row.to(tl.int64) * n + first_col
    target += row.to(tl.int64)[:, None] * n + col[None, :]
    tl.store(target, total.to(y.dtype.element_ty), mask=in_rows & in_cols)


def _fit(length, block):
    """A smaller block for fewer rows; 16 is the least that every dot unit takes."""
    return max(16, min(block, triton.next_power_of_2(length)))


def grouped_linear(x, weight, ends, y):
    rows, k = x.shape
    experts, n = weight.shape[:2]
    if y.numel() == 0:
        return
    wide = x.element_size() == 4
    most_m, most_n, block_k = (
        (BLOCK_F32, BLOCK_F32, BLOCK_K_F32) if wide else (BLOCK_M, BLOCK_N, BLOCK_K)
    )
    block_m, block_n = _fit(triton.cdiv(rows, max(experts, 1)), most_m), _fit(n, most_n)
    tiles = rows // block_m + min(experts + 1, rows)
    _tiles[(tiles * triton.cdiv(n, block_n),)](
        x,
        weight,
        ends,
        y,
        rows,
        n,
        k,
        experts,
        EXPERTS=max(16, triton.next_power_of_2(experts)),
        BLOCK_M=block_m,
        BLOCK_N=block_n,
        BLOCK_K=block_k,
        num_warps=NUM_WARPS if block_m * block_n >= 8192 else 4,
        num_stages=NUM_STAGES,
    )
