"""c = a b in tiles, accumulated in float32; float32 inputs keep their precision unless TF32."""

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


@triton.jit
def _matmul(
    a,
    b,
    c,
    m,
    n,
    k,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
    PRECISION: tl.constexpr,
):
    tiles_m = tl.cdiv(m, BLOCK_M)
    tiles_n = tl.cdiv(n, BLOCK_N)
    # GROUP rows of tiles are walked column by column, so that their operands stay in the L2.
    group = tl.program_id(0) // (GROUP * tiles_n)
    height = tl.minimum(tiles_m - group * GROUP, GROUP)
    within = tl.program_id(0) % (GROUP * tiles_n)
    # The tile's start is a 64-bit scalar, which takes fewer registers than such rows.
    first_row = (group * GROUP + within % height) * BLOCK_M
    first_col = within // height * BLOCK_N
    row = tl.arange(0, BLOCK_M)
    col = tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    in_rows = (row < m - first_row)[:, None]
    in_cols = (col < n - first_col)[None, :]
    a_tile = a + first_row.to(tl.int64) * k + row.to(tl.int64)[:, None] * k + depth[None, :]
    b_tile = b + first_col + depth.to(tl.int64)[:, None] * n + col[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, k, BLOCK_K):
        left = k - start
        a_value = tl.load(a_tile, mask=in_rows & (depth < left)[None, :], other=0.0)
        b_value = tl.load(b_tile, mask=(depth < left)[:, None] & in_cols, other=0.0)
        total = tl.dot(a_value, b_value, total, input_precision=PRECISION)
        a_tile += BLOCK_K
        b_tile += BLOCK_K * n
    target = c + first_row.to(tl.int64) * n + first_col
    target += row.to(tl.int64)[:, None] * n + col[None, :]
    tl.store(target, total.to(c.dtype.element_ty), mask=in_rows & in_cols)


def _precision(x):
    """How a dot multiplies float32: as it is, or as TF32 where that is asked for and NVIDIA's."""
    if not TF32 or x.dtype != torch.float32 or not x.is_cuda:
        return "ieee"
    return "tf32" if triton.runtime.driver.active.get_current_target().backend == "cuda" else "ieee"


def _fit(length, block):
    """A smaller block for a smaller matrix; 16 is the least that every dot unit takes."""
    return max(16, min(block, triton.next_power_of_2(length)))


def matmul(a, b, c):
    (m, k), n = a.shape, b.shape[1]
    if c.numel() == 0:
        return
    strict = a.dtype == torch.float32
    block_m = _fit(m, BLOCK_F32 if strict else BLOCK_M)
    block_n = _fit(n, BLOCK_F32 if strict else BLOCK_N)
    block_k = _fit(k, BLOCK_K_F32 if strict else BLOCK_K)
    grid = (triton.cdiv(m, block_m) * triton.cdiv(n, block_n),)
    _matmul[grid](
        a,
        b,
        c,
        m,
        n,
        k,
        BLOCK_M=block_m,
        BLOCK_N=block_n,
        BLOCK_K=block_k,
        GROUP=GROUP,
        PRECISION=_precision(a),
        num_warps=min(NUM_WARPS, max(4, block_m * block_n // 2048)),
        num_stages=NUM_STAGES,
    )
