"""Root-mean-square normalisation of each row: held in registers when it fits, else two passes. Few
long rows are shared out: one program walking a row of millions leaves the rest of a device idle."""

import torch
import triton
import triton.language as tl

RESIDENT = 16384  # knob: 4096 8192 16384
LOOP_BLOCK = 8192  # knob: 2048 4096 8192
TILE = 2048  # knob: 1024 2048 4096
PER_THREAD = 16  # knob: 8 16 32
FEW = 1 << 17  # elements: fewer than a GPU's threads
PROGRAMS = 512  # knob: 256 512 1024


@triton.jit
def _resident(x, weight, y, rows, cols: tl.constexpr, eps, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    # Of a length that is a constant the compiler drops lanes beyond the end with their registers.
    start_row = tl.program_id(0) * ROWS
    # The tile's start is a 64-bit scalar, so that the offsets within it stay 32-bit.
    start = start_row.to(tl.int64) * cols
    row = tl.arange(0, ROWS)[:, None]
    col = tl.arange(0, BLOCK)[None, :]
    mask = (row < rows - start_row) & (col < cols)
    offset = row * cols + col
    value = tl.load(x + start + offset, mask=mask, other=0.0).to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(value * value, axis=1) / cols + eps)
    gain = tl.load(weight + col, mask=col < cols, other=0.0).to(tl.float32)
    result = value * scale[:, None] * gain
    tl.store(y + start + offset, result.to(y.dtype.element_ty), mask=mask)


@triton.jit
def _looped(x, weight, y, cols, eps, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * cols
    col = tl.arange(0, BLOCK)
    squares = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, cols, BLOCK):
        value = tl.load(x + start + first + col, mask=col < cols - first, other=0.0)
        value = value.to(tl.float32)
        squares += value * value
    scale = 1.0 / tl.sqrt(tl.sum(squares, axis=0) / cols + eps)
    for first in range(0, cols, BLOCK):
        mask = col < cols - first
        value = tl.load(x + start + first + col, mask=mask, other=0.0).to(tl.float32)
        gain = tl.load(weight + first + col, mask=mask, other=0.0).to(tl.float32)
        tl.store(y + start + first + col, (value * scale * gain).to(y.dtype.element_ty), mask=mask)


@triton.jit
def _part(x, squares, cols, parts, span, BLOCK: tl.constexpr):
    """Of a part of a row: the sum of its squares."""
    row = (tl.program_id(0) // parts).to(tl.int64)
    first = tl.program_id(0) % parts * span
    left = tl.minimum(cols - first, span)
    start = row * cols + first
    col = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for begin in range(0, left, BLOCK):
        value = tl.load(x + start + begin + col, mask=col < left - begin, other=0.0)
        value = value.to(tl.float32)
        total += value * value
    tl.store(squares + tl.program_id(0), tl.sum(total, axis=0))


@triton.jit
def _apply(
    x, weight, y, squares, rows, cols, parts, span, eps, BLOCK: tl.constexpr, MANY: tl.constexpr
):
    # The same part of all rows in turn: weights are read once, then found in a cache.
    row = (tl.program_id(0) % rows).to(tl.int64)
    first = tl.program_id(0) // rows * span
    left = tl.minimum(cols - first, span)
    part = tl.arange(0, MANY)
    total = tl.sum(tl.load(squares + row * parts + part, mask=part < parts, other=0.0), axis=0)
    scale = 1.0 / tl.sqrt(total / cols + eps)
    start = row * cols + first
    col = tl.arange(0, BLOCK)
    for begin in range(0, left, BLOCK):
        mask = col < left - begin
        value = tl.load(x + start + begin + col, mask=mask, other=0.0).to(tl.float32)
        gain = tl.load(weight + first + begin + col, mask=mask, other=0.0).to(tl.float32)
        tl.store(y + start + begin + col, (value * scale * gain).to(y.dtype.element_ty), mask=mask)


def _share(rows, cols):
    """How many programs take a row, and how much of it each. Many rows need one alone."""
    parts = max(1, min(PROGRAMS // rows, cols // LOOP_BLOCK))
    span = triton.cdiv(triton.cdiv(cols, parts), LOOP_BLOCK) * LOOP_BLOCK
    return triton.cdiv(cols, span), span


def _in_parts(x, weight, y, eps, parts, span):
    rows, cols = x.shape
    squares = torch.empty(rows * parts, dtype=torch.float32, device=x.device)
    grid = (rows * parts,)
    _part[grid](x, squares, cols, parts, span, BLOCK=LOOP_BLOCK, num_warps=16)
    many = triton.next_power_of_2(parts)
    _apply[grid](
        x,
        weight,
        y,
        squares,
        rows,
        cols,
        parts,
        span,
        eps,
        BLOCK=LOOP_BLOCK,
        MANY=many,
        num_warps=16,
    )


def rmsnorm(x, weight, y, eps):
    rows, cols = x.shape
    if x.numel() == 0:
        return
    if cols > RESIDENT:
        parts, span = _share(rows, cols)
        if parts > 1:
            _in_parts(x, weight, y, eps, parts, span)
        else:
            _looped[(rows,)](x, weight, y, cols, eps, BLOCK=LOOP_BLOCK, num_warps=16)
        return
    block = triton.next_power_of_2(cols)
    # A cold kernel takes as long as its instructions take to arrive: of few elements it has few.
    tile, per_thread = (512, 4) if x.numel() <= FEW else (TILE, PER_THREAD)
    tile_rows = max(1, tile // block)
    warps = max(1, min(16, tile_rows * block // (32 * per_thread)))
    grid = (triton.cdiv(rows, tile_rows),)
    _resident[grid](x, weight, y, rows, cols, eps, ROWS=tile_rows, BLOCK=block, num_warps=warps)
