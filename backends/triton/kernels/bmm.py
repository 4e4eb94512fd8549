"""c = a b for each pair of a batch, in tiles accumulated in float32; float32 inputs keep their
precision unless TF32. Of matrices smaller than the least tile of a dot, many share a program."""

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
TILE_SMALL = 1024  # knob: 512 1024 2048


@triton.jit
def _bmm(
    a,
    b,
    c,
    m,
    n,
    k,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    PRECISION: tl.constexpr,
):
    tiles_n = tl.cdiv(n, BLOCK_N)
    tiles = tl.cdiv(m, BLOCK_M) * tiles_n
    # One product's tiles follow each other, so that its operands stay in the L2.
    batch = (tl.program_id(0) // tiles).to(tl.int64)
    tile = tl.program_id(0) % tiles
    row = tile // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
    col = tile % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K)
    a_tile = a + batch * m * k + row.to(tl.int64)[:, None] * k + depth[None, :]
    b_tile = b + batch * k * n + depth.to(tl.int64)[:, None] * n + col[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, k, BLOCK_K):
        left = k - start
        a_value = tl.load(a_tile, mask=(row < m)[:, None] & (depth < left)[None, :], other=0.0)
        b_value = tl.load(b_tile, mask=(depth < left)[:, None] & (col < n)[None, :], other=0.0)
        total = tl.dot(a_value, b_value, total, input_precision=PRECISION)
        a_tile += BLOCK_K
        b_tile += BLOCK_K * n
    target = c + batch * m * n + row.to(tl.int64)[:, None] * n + col[None, :]
    tl.store(target, total.to(c.dtype.element_ty), mask=(row < m)[:, None] & (col < n)[None, :])


@triton.jit
def _small(a, b, c, batches, m, n, k, BATCHES: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    batch = tl.program_id(0).to(tl.int64) * BATCHES + tl.arange(0, BATCHES)[:, None, None]
    row = tl.arange(0, M)[None, :, None]
    col = tl.arange(0, N)[None, None, :]
    in_rows = (batch < batches) & (row < m)
    in_cols = (batch < batches) & (col < n)
    total = tl.zeros((BATCHES, M, N), tl.float32)
    for depth in range(k):
        a_value = tl.load(a + (batch * m + row) * k + depth, mask=in_rows, other=0.0)
        b_value = tl.load(b + (batch * k + depth) * n + col, mask=in_cols, other=0.0)
        total += a_value.to(tl.float32) * b_value.to(tl.float32)
    target = c + (batch * m + row) * n + col
    tl.store(target, total.to(c.dtype.element_ty), mask=in_rows & in_cols)


def _precision(x):
    """How a dot multiplies float32: as it is, or as TF32 where that is asked for and NVIDIA's."""
    if not TF32 or x.dtype != torch.float32 or not x.is_cuda:
        return "ieee"
    return "tf32" if triton.runtime.driver.active.get_current_target().backend == "cuda" else "ieee"


def _fit(length, block):
    """A smaller block for a smaller matrix; 16 is the least that every dot unit takes."""
    return max(16, min(block, triton.next_power_of_2(length)))


def bmm(a, b, c):
    (batch, m, k), n = a.shape, b.shape[2]
    if c.numel() == 0:
        return
    if m < 16 and n < 16:
        block_m, block_n = triton.next_power_of_2(m), triton.next_power_of_2(n)
        batches = TILE_SMALL // (block_m * block_n)
        grid = (triton.cdiv(batch, batches),)
        _small[grid](a, b, c, batch, m, n, k, BATCHES=batches, M=block_m, N=block_n)
        return
    strict = a.dtype == torch.float32
    block_m = _fit(m, BLOCK_F32 if strict else BLOCK_M)
    block_n = _fit(n, BLOCK_F32 if strict else BLOCK_N)
    block_k = _fit(k, BLOCK_K_F32 if strict else BLOCK_K)
    grid = (batch * triton.cdiv(m, block_m) * triton.cdiv(n, block_n),)
    _bmm[grid](
        a,
        b,
        c,
        m,
        n,
        k,
        BLOCK_M=block_m,
        BLOCK_N=block_n,
        BLOCK_K=block_k,
        PRECISION=_precision(a),
        num_warps=min(NUM_WARPS, max(4, block_m * block_n // 2048)),
        num_stages=NUM_STAGES,
    )
