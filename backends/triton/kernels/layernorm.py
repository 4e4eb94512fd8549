"""Layer normalisation of each row: held in registers when it fits, else taken in parts, whose
moments are put together between two passes.

The mean is taken twice, the second time of what is left after subtracting the first: where the
mean is far larger than the deviation, its rounding error would otherwise be the result's.
"""

import torch
import triton
import triton.language as tl

RESIDENT = 16384  # knob: 4096 8192 16384
TILE = 2048  # knob: 1024 2048 4096
PER_THREAD = 16  # knob: 8 16 32
FEW = 1 << 17  # elements: fewer than a GPU's threads
PART = 8192  # knob: 4096 8192 16384


@triton.jit
def _resident(
    x, weight, bias, y, rows, cols: tl.constexpr, eps, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    # Of a length that is a constant the compiler drops lanes beyond the end with their registers.
    start_row = tl.program_id(0) * ROWS
    # The tile's start is a 64-bit scalar, so that the offsets within it stay 32-bit.
    start = start_row.to(tl.int64) * cols
    row = tl.arange(0, ROWS)[:, None]
    col = tl.arange(0, BLOCK)[None, :]
    in_row = col < cols
    mask = (row < rows - start_row) & in_row
    offset = row * cols + col
    value = tl.load(x + start + offset, mask=mask, other=0.0).to(tl.float32)
    value = tl.where(mask, value - (tl.sum(value, axis=1) / cols)[:, None], 0.0)
    value = tl.where(mask, value - (tl.sum(value, axis=1) / cols)[:, None], 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(value * value, axis=1) / cols + eps)
    gain = tl.load(weight + col, mask=in_row, other=0.0).to(tl.float32)
    shift = tl.load(bias + col, mask=in_row, other=0.0).to(tl.float32)
    result = value * scale[:, None] * gain + shift
    tl.store(y + start + offset, result.to(y.dtype.element_ty), mask=mask)


@triton.jit
def _moments(x, means, squares, cols, parts, PART: tl.constexpr):
    """Of each part of a row: the mean, and the sum of squared deviations from it."""
    row = (tl.program_id(0) // parts).to(tl.int64)
    first = tl.program_id(0) % parts * PART
    col = first + tl.arange(0, PART)
    value = tl.load(x + row * cols + col, mask=col < cols, other=0.0).to(tl.float32)
    count = tl.minimum(cols - first, PART)
    mean = tl.sum(value, axis=0) / count
    off = tl.where(col < cols, value - mean, 0.0)
    rest = tl.sum(off, axis=0)
    tl.store(means + tl.program_id(0), mean + rest / count)
    tl.store(squares + tl.program_id(0), tl.sum(off * off, axis=0) - rest * rest / count)


@triton.jit
def _combine(
    means, squares, shifts, scales, cols, parts, eps, PART: tl.constexpr, MANY: tl.constexpr
):
    """Of each row, by Chan's formula: how far its mean is from its first part's, and its scale."""
    means += tl.program_id(0) * parts
    squares += tl.program_id(0) * parts
    near = tl.load(means)
    lane = tl.arange(0, MANY)
    off = tl.zeros((MANY,), tl.float32)
    square = tl.zeros((MANY,), tl.float32)
    for first in range(0, parts, MANY):
        there = lane < parts - first
        count = tl.minimum(cols - (first + lane) * PART, PART).to(tl.float32)
        here = tl.load(means + first + lane, mask=there, other=0.0) - near
        here = tl.where(there, here, 0.0)
        off += count * here
        square += tl.load(squares + first + lane, mask=there, other=0.0) + count * here * here
    shift = tl.sum(off, axis=0) / cols
    variance = tl.maximum(tl.sum(square, axis=0) / cols - shift * shift, 0.0)
    tl.store(shifts + tl.program_id(0), shift)
    tl.store(scales + tl.program_id(0), 1.0 / tl.sqrt(variance + eps))


@triton.jit
def _apply(x, weight, bias, y, means, shifts, scales, rows, cols, parts, PART: tl.constexpr):
    # The same part of all rows in turn: weights and biases are read once, then found in a cache.
    row = (tl.program_id(0) % rows).to(tl.int64)
    col = tl.program_id(0) // rows * PART + tl.arange(0, PART)
    mask = col < cols
    near, shift = tl.load(means + row * parts), tl.load(shifts + row)
    value = tl.load(x + row * cols + col, mask=mask, other=0.0).to(tl.float32)
    gain = tl.load(weight + col, mask=mask, other=0.0).to(tl.float32)
    rise = tl.load(bias + col, mask=mask, other=0.0).to(tl.float32)
    result = (value - near - shift) * tl.load(scales + row) * gain + rise
    tl.store(y + row * cols + col, result.to(y.dtype.element_ty), mask=mask)


def _in_parts(x, weight, bias, y, eps):
    rows, cols = x.shape
    parts = triton.cdiv(cols, PART)
    means, squares = torch.empty((2, rows * parts), dtype=torch.float32, device=x.device)
    shifts, scales = torch.empty((2, rows), dtype=torch.float32, device=x.device)
    _moments[(rows * parts,)](x, means, squares, cols, parts, PART=PART, num_warps=8)
    _combine[(rows,)](means, squares, shifts, scales, cols, parts, eps, PART=PART, MANY=1024)
    _apply[(rows * parts,)](
        x, weight, bias, y, means, shifts, scales, rows, cols, parts, PART=PART, num_warps=8
    )


def layernorm(x, weight, bias, y, eps):
    rows, cols = x.shape
    if x.numel() == 0:
        return
    if cols > RESIDENT:
        _in_parts(x, weight, bias, y, eps)
        return
    block = triton.next_power_of_2(cols)
    # A cold kernel takes as long as its instructions take to arrive: of few elements it has few.
    tile, per_thread = (512, 4) if x.numel() <= FEW else (TILE, PER_THREAD)
    tile_rows = max(1, tile // block)
    warps = max(1, min(16, tile_rows * block // (32 * per_thread)))
    _resident[(triton.cdiv(rows, tile_rows),)](
        x, weight, bias, y, rows, cols, eps, ROWS=tile_rows, BLOCK=block, num_warps=warps
    )
