"""y[o, i] = sum over r of x[o, r, i], accumulated in float32.

With too few outputs to fill a device the reduction is split, and a second launch of the same
kernel adds up the parts: no atomics, so the result does not depend on scheduling. Short slices
share a program.
"""

import torch
import triton
import triton.language as tl

TILE = 2048  # knob: 2048 4096 8192
BLOCK_INNER = 64  # knob: 32 64 128
PROGRAMS = 1024  # knob: 512 1024 2048
NUM_WARPS = 8  # knob: 4 8
SHORT = 1024  # knob: 512 1024
LEAST_INNER = 16
PER_WARP = 256
# Rows of a part, at least.
SPLIT = 256


@triton.jit
def _sum(x, y, length, inner, span, BLOCK_R: tl.constexpr, BLOCK_I: tl.constexpr):
    """Rows [part * span, part * span + span) of one outer slice, for BLOCK_I inner columns."""
    tiles = tl.cdiv(inner, BLOCK_I)
    outer = (tl.program_id(0) // tiles).to(tl.int64)
    column = tl.program_id(0) % tiles * BLOCK_I + tl.arange(0, BLOCK_I)[None, :]
    row = tl.arange(0, BLOCK_R)[:, None].to(tl.int64)
    first = tl.program_id(1) * span
    last = tl.minimum(first + span, length)
    block = x + (outer * length + first) * inner + row * inner + column
    total = tl.zeros((BLOCK_R, BLOCK_I), tl.float32)
    for start in range(first, last, BLOCK_R):
        mask = (row < last - start) & (column < inner)
        total += tl.load(block, mask=mask, other=0.0).to(tl.float32)
        block += BLOCK_R * inner
    result = tl.sum(total, axis=0)[None, :].to(y.dtype.element_ty)
    part = tl.program_id(1).to(tl.int64) * (tl.num_programs(0) // tiles) + outer
    tl.store(y + part * inner + column, result, mask=column < inner)


def _launch(x, y, outer, length, inner, parts):
    block_i = _columns(outer, length, inner)
    block_r = min(TILE // block_i, _padded(length))
    warps = max(1, min(NUM_WARPS, block_r * block_i // PER_WARP))
    span = triton.cdiv(triton.cdiv(length, parts), block_r) * block_r
    grid = (outer * triton.cdiv(inner, block_i), parts)
    _sum[grid](x, y, length, inner, span, BLOCK_R=block_r, BLOCK_I=block_i, num_warps=warps)


def _columns(outer, length, inner):
    """Of a program: more where they are short, and fewer where they would not fill a device."""
    rows = min(_padded(length), TILE // BLOCK_INNER)
    columns = min(TILE // rows, triton.next_power_of_2(inner))
    least = LEAST_INNER if length < 2 * SPLIT else BLOCK_INNER
    while columns > least and outer * triton.cdiv(inner, columns) < PROGRAMS // 4:
        columns //= 2
    return columns


@triton.jit
def _sum_short(
    x, y, outer, length, inner, OUTER: tl.constexpr, ROWS: tl.constexpr, INNER: tl.constexpr
):
    """OUTER slices of at most ROWS x INNER elements."""
    first = tl.program_id(0).to(tl.int64) * OUTER
    place = tl.arange(0, OUTER)[:, None, None]
    row = tl.arange(0, ROWS)[None, :, None]
    column = tl.arange(0, INNER)[None, None, :]
    mask = (place < outer - first) & (row < length) & (column < inner)
    element = (place * length + row) * inner + column
    value = tl.load(x + first * length * inner + element, mask=mask, other=0.0)
    total = tl.sum(value.to(tl.float32), axis=1)
    place = tl.arange(0, OUTER)[:, None]
    column = tl.arange(0, INNER)[None, :]
    mask = (place < outer - first) & (column < inner)
    tl.store(y + (first + place) * inner + column, total.to(y.dtype.element_ty), mask=mask)


def _padded(length):
    return triton.next_power_of_2(max(1, length))


def _launch_short(x, y, outer, length, inner):
    rows, columns = _padded(length), _padded(inner)
    places = TILE // (rows * columns)
    grid = (triton.cdiv(outer, places),)
    _sum_short[grid](x, y, outer, length, inner, OUTER=places, ROWS=rows, INNER=columns)


def sum(x, y):
    outer, length, inner = x.shape
    if y.numel() == 0:
        return
    if length == 1 and y.numel() < 2**31:
        outer, inner = 1, y.numel()
    if _padded(length) * _padded(inner) <= SHORT:
        _launch_short(x, y, outer, length, inner)
        return
    programs = outer * triton.cdiv(inner, BLOCK_INNER)
    parts = max(1, min(PROGRAMS // programs, length // SPLIT))
    if parts == 1:
        _launch(x, y, outer, length, inner, parts=1)
        return
    partial = torch.empty((parts, outer, inner), dtype=torch.float32, device=x.device)
    _launch(x, partial, outer, length, inner, parts)
    _launch(partial, y, 1, parts, outer * inner, parts=1)
