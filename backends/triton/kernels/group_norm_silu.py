"""Group normalisation and silu: a group that fits is read once by one program; of a larger one
programs find the moments of parts, which a second kernel puts together as it reads the group
again."""

import torch
import triton
import triton.language as tl

RESIDENT = 16384  # knob: 8192 16384 32768
PART = 8192  # knob: 4096 8192 16384
PER_THREAD = 32  # knob: 16 32 64


@triton.jit
def _finished(
    value, at, row, groups, channels, weight, bias, mean, scale, mask, pixels: tl.constexpr
):
    channel = row % groups * channels + at // pixels
    gain = tl.load(weight + channel, mask=mask, other=0.0).to(tl.float32)
    more = tl.load(bias + channel, mask=mask, other=0.0).to(tl.float32)
    result = (value - mean) * scale * gain + more
    # Where the exponential overflows, the quotient is -0, as it should be.
    return result / (1.0 + tl.exp(-result))


@triton.jit
def _resident(
    x, weight, bias, y, groups, channels, eps, pixels: tl.constexpr, length, BLOCK: tl.constexpr
):
    row = tl.program_id(0)
    start = row.to(tl.int64) * length
    at = tl.arange(0, BLOCK)
    mask = at < length
    value = tl.load(x + start + at, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(value, axis=0) / length
    off = tl.where(mask, value - mean, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(off * off, axis=0) / length + eps)
    result = _finished(value, at, row, groups, channels, weight, bias, mean, scale, mask, pixels)
    tl.store(y + start + at, result.to(y.dtype.element_ty), mask=mask)


@triton.jit
def _look(x, seen, length, parts, PART: tl.constexpr):
    part = tl.program_id(0) % parts
    start = (tl.program_id(0) // parts).to(tl.int64) * length + part.to(tl.int64) * PART
    left = length - part * PART
    at = tl.arange(0, PART)
    value = tl.load(x + start + at, mask=at < left, other=0.0).to(tl.float32)
    mean = tl.sum(value, axis=0) / tl.minimum(left, PART)
    off = tl.where(at < left, value - mean, 0.0)
    tl.store(seen + 2 * tl.program_id(0), mean)
    tl.store(seen + 2 * tl.program_id(0) + 1, tl.sum(off * off, axis=0))


@triton.jit
def _finish(
    x,
    seen,
    weight,
    bias,
    y,
    groups,
    channels,
    eps,
    pixels: tl.constexpr,
    length,
    parts,
    PART: tl.constexpr,
    PARTS: tl.constexpr,
):
    part, row = tl.program_id(0) % parts, tl.program_id(0) // parts
    own = tl.arange(0, PARTS)
    count = tl.where(own < parts, tl.minimum(length - own * PART, PART), 0).to(tl.float32)
    notes = seen + 2 * (row.to(tl.int64) * parts + own)
    means = tl.load(notes, mask=own < parts, other=0.0)
    # About the first part's mean, by Chan's formula.
    near = tl.load(seen + 2 * row.to(tl.int64) * parts)
    off = means - near
    squares = tl.load(notes + 1, mask=own < parts, other=0.0) + count * off * off
    shift = tl.sum(count * off, axis=0) / length
    variance = tl.maximum(tl.sum(squares, axis=0) / length - shift * shift, 0.0)
    scale, mean = 1.0 / tl.sqrt(variance + eps), near + shift
    start = row.to(tl.int64) * length
    at = part * PART + tl.arange(0, PART)
    mask = at < length
    value = tl.load(x + start + at, mask=mask, other=0.0).to(tl.float32)
    result = _finished(value, at, row, groups, channels, weight, bias, mean, scale, mask, pixels)
    tl.store(y + start + at, result.to(y.dtype.element_ty), mask=mask)


def group_norm_silu(x, weight, bias, y, eps):
    batch, groups, channels, pixels = x.shape
    rows, length = batch * groups, channels * pixels
    if x.numel() == 0:
        return
    if length <= RESIDENT:
        block = max(16, triton.next_power_of_2(length))
        warps = max(1, min(16, block // (32 * PER_THREAD // 2)))
        _resident[(rows,)](
            x, weight, bias, y, groups, channels, eps, pixels, length, BLOCK=block, num_warps=warps
        )
        return
    parts, warps = triton.cdiv(length, PART), PART // (32 * PER_THREAD)
    seen = torch.empty(2 * rows * parts, dtype=torch.float32, device=x.device)
    _look[(rows * parts,)](x, seen, length, parts, PART=PART, num_warps=warps)
    _finish[(rows * parts,)](
        x,
        seen,
        weight,
        bias,
        y,
        groups,
        channels,
        eps,
        pixels,
        length,
        parts,
        PART=PART,
        PARTS=triton.next_power_of_2(parts),
        num_warps=warps,
    )
