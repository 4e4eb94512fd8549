"""y = silu(gate) * up, one block of elements per program."""

import triton
import triton.language as tl

BLOCK = 4096  # knob: 1024 2048 4096 8192
NUM_WARPS = 8  # knob: 4 8 16
FEW = 1 << 17  # elements: fewer than a GPU's threads


@triton.jit
def _exp(x):
    # GPUs have powers of two, and of a large x the rounded product with log2(e) is off by more than
    # the result may be: a power with a whole exponent is taken out first.
    power = tl.floor(x * 1.4426950408889634 + 0.5)
    power = tl.minimum(tl.maximum(power, -126.0), 127.0)
    # ln(2) in two parts, of which the first has so few bits that the product is exact.
    rest = x - power * 0.693359375 + power * 2.12194440e-4
    return tl.exp2(power) * tl.exp(rest)


@triton.jit
def _gated(gate, up):
    value = gate.to(tl.float32)
    if gate.dtype == tl.float32:
        power = _exp(-value)
    else:
        power = tl.exp(-value)
    # Where the exponential overflows, the quotient is -0, as it should be.
    return value / (1.0 + power) * up.to(tl.float32)


@triton.jit
def _silu_mul(gate, up, y, n, BLOCK: tl.constexpr, WHOLE: tl.constexpr):
    # The block's start is a 64-bit scalar, so that the offsets within it stay 32-bit.
    start = tl.program_id(0).to(tl.int64) * BLOCK
    offset = tl.arange(0, BLOCK)
    if WHOLE and start + BLOCK <= n:  # without a mask, 16 bytes at a time whatever n is
        value, factor = tl.load(gate + start + offset), tl.load(up + start + offset)
        tl.store(y + start + offset, _gated(value, factor).to(y.dtype.element_ty))
    else:
        mask = offset < n - start
        value = tl.load(gate + start + offset, mask=mask)
        factor = tl.load(up + start + offset, mask=mask)
        tl.store(y + start + offset, _gated(value, factor).to(y.dtype.element_ty), mask=mask)


def silu_mul(gate, up, y):
    n = gate.numel()
    # A cold kernel takes as long as its instructions take to arrive: of few elements it has few.
    few = n <= FEW
    block, warps = (512, 4) if few else (BLOCK, NUM_WARPS)
    if n:
        grid = (triton.cdiv(n, block),)
        _silu_mul[grid](gate, up, y, n, BLOCK=block, WHOLE=not few, num_warps=warps)
