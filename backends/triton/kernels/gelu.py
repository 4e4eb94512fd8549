"""y = x * Phi(x) with the exact error function, one block of elements per program."""

import triton
import triton.language as tl

BLOCK = 4096  # knob: 1024 2048 4096 8192
NUM_WARPS = 8  # knob: 4 8 16
FEW = 1 << 17  # elements: fewer than a GPU's threads


@triton.jit
def _gelu_of(value):
    value = value.to(tl.float32)
    return 0.5 * value * (1.0 + tl.erf(value * 0.7071067811865476))


@triton.jit
def _gelu(x, y, n, BLOCK: tl.constexpr, WHOLE: tl.constexpr):
    # The block's start is a 64-bit scalar, so that the offsets within it stay 32-bit.
    start = tl.program_id(0).to(tl.int64) * BLOCK
    offset = tl.arange(0, BLOCK)
    if WHOLE and start + BLOCK <= n:  # without a mask, 16 bytes at a time whatever n is
        value = tl.load(x + start + offset)
        tl.store(y + start + offset, _gelu_of(value).to(y.dtype.element_ty))
    else:
        mask = offset < n - start
        value = tl.load(x + start + offset, mask=mask)
        tl.store(y + start + offset, _gelu_of(value).to(y.dtype.element_ty), mask=mask)


def gelu(x, y):
    n = x.numel()
    # A cold kernel takes as long as its instructions take to arrive: of few elements it has few.
    few = n <= FEW
    block, warps = (512, 4) if few else (BLOCK, NUM_WARPS)
    if n:
        _gelu[(triton.cdiv(n, block),)](x, y, n, BLOCK=block, WHOLE=not few, num_warps=warps)
