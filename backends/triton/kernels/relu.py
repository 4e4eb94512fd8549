"""y = max(x, 0), one block of elements per program."""

import triton
import triton.language as tl

BLOCK = 4096  # knob: 1024 2048 4096 8192
NUM_WARPS = 8  # knob: 4 8 16
FEW = 1 << 17  # elements: fewer than a GPU's threads


@triton.jit
def _relu_of(value):
    value = value.to(tl.float32)
    # Not tl.maximum(value, 0), which would turn NaN into 0.
    return tl.where(value < 0, 0.0, value)


@triton.jit
def _relu(x, y, n, BLOCK: tl.constexpr, WHOLE: tl.constexpr):
    # The block's start is a 64-bit scalar, so that the offsets within it stay 32-bit.
    start = tl.program_id(0).to(tl.int64) * BLOCK
    offset = tl.arange(0, BLOCK)
    if WHOLE and start + BLOCK <= n:  # without a mask, 16 bytes at a time whatever n is
        value = tl.load(x + start + offset)
        tl.store(y + start + offset, _relu_of(value).to(y.dtype.element_ty))
    else:
        mask = offset < n - start
        value = tl.load(x + start + offset, mask=mask)
        tl.store(y + start + offset, _relu_of(value).to(y.dtype.element_ty), mask=mask)


def relu(x, y):
    n = x.numel()
    # A cold kernel takes as long as its instructions take to arrive: of few elements it has few.
    few = n <= FEW
    block, warps = (512, 4) if few else (BLOCK, NUM_WARPS)
    if n:
        _relu[(triton.cdiv(n, block),)](x, y, n, BLOCK=block, WHOLE=not few, num_warps=warps)
