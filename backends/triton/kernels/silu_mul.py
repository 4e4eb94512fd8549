"""y = silu(gate) * up, one block of elements per program."""

import triton
import triton.language as tl

BLOCK = 4096  # knob: 1024 2048 4096 8192
NUM_WARPS = 8  # knob: 4 8 16


@triton.jit
def _silu_mul(gate, up, y, n, BLOCK: tl.constexpr):
    # The block's start is a 64-bit scalar, so that the offsets within it stay 32-bit.
    start = tl.program_id(0).to(tl.int64) * BLOCK
    offset = tl.arange(0, BLOCK)
    mask = offset < n - start
    value = tl.load(gate + start + offset, mask=mask).to(tl.float32)
    factor = tl.load(up + start + offset, mask=mask).to(tl.float32)
    # Where the exponential overflows, the quotient is -0, as it should be.
    result = value / (1.0 + tl.exp(-value)) * factor
    tl.store(y + start + offset, result.to(y.dtype.element_ty), mask=mask)


def silu_mul(gate, up, y):
    n = gate.numel()
    if n:
        _silu_mul[(triton.cdiv(n, BLOCK),)](gate, up, y, n, BLOCK=BLOCK, num_warps=NUM_WARPS)
