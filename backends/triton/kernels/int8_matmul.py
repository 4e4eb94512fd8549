"""c = (a w) * scale: weights are widened to the dtype of a in registers, just before the product,
and the scale of a column is applied to its finished sums. A few rows, as a decoder has, take narrow
tiles, so that there are enough of them to draw on the memory's whole bandwidth."""

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


def _fit(length, block):
    """A smaller block for a smaller matrix; 16 is the least that every dot unit takes."""
    return max(16, min(block, triton.next_power_of_2(length)))


def int8_matmul(a, weight, scale, c):
    (m, k), n = a.shape, weight.shape[1]
    if c.numel() == 0:
        return
    strict = a.dtype == torch.float32
    narrow = m <= 32 and n <= ENOUGH * BLOCK_N
    block_m = _fit(m, BLOCK_F32 if strict else BLOCK_M)
    block_n = _fit(n, NARROW_N if narrow else BLOCK_F32 if strict else BLOCK_N)
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
