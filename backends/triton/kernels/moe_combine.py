"""Of the rows that a token's indices name the sum, each times its gate: a part of a token's row per
program."""

import triton
import triton.language as tl

BLOCK = 1024  # knob: 512 1024 2048
NUM_WARPS = 4  # knob: 2 4 8
UNROLLED = 8  # knob: 4 8 16


@triton.jit
def _more(total, x, index, gates, dim, col):
    start = tl.load(index) * dim
    value = tl.load(x + start + col, mask=col < dim, other=0.0).to(tl.float32)
    return total + value * tl.load(gates).to(tl.float32)


@triton.jit
def _combine(x, index, gates, y, dim, k, K: tl.constexpr, BLOCK: tl.constexpr):
    """K of 0: as many as ``k`` says."""
    tiles = tl.cdiv(dim, BLOCK)
    token = (tl.program_id(0) // tiles).to(tl.int64)
    col = tl.program_id(0) % tiles * BLOCK + tl.arange(0, BLOCK)
    index += token * k
    gates += token * k
    total = tl.zeros((BLOCK,), tl.float32)
    if K > 0:
        for number in tl.static_range(K):
            total = _more(total, x, index + number, gates + number, dim, col)
    else:
        for number in range(k):
            total = _more(total, x, index + number, gates + number, dim, col)
    tl.store(y + token * dim + col, total.to(y.dtype.element_ty), mask=col < dim)


def moe_combine(x, index, gates, y):
    tokens, dim = y.shape
    k = index.shape[1]
    if y.numel() == 0:
        return
    block = max(32, min(BLOCK, triton.next_power_of_2(dim)))
    grid = (tokens * triton.cdiv(dim, block),)
    unrolled = k if k <= UNROLLED else 0
    _combine[grid](x, index, gates, y, dim, k, K=unrolled, BLOCK=block, num_warps=NUM_WARPS)
