"""Softmax of each row: held in registers when it fits, else two passes with a running maximum. Few
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
PER_LANE = 4  # knob: 4 8


@triton.jit
def _resident(x, y, rows, cols: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    # Of a length that is a constant the compiler drops lanes beyond the end with their registers.
    start_row = tl.program_id(0) * ROWS
    # The tile's start is a 64-bit scalar, so that the offsets within it stay 32-bit.
    start = start_row.to(tl.int64) * cols
    row = tl.arange(0, ROWS)[:, None]
    col = tl.arange(0, BLOCK)[None, :]
    mask = (row < rows - start_row) & (col < cols)
    offset = row * cols + col
    value = tl.load(x + start + offset, mask=mask, other=0.0).to(tl.float32)
    value = tl.where(col < cols, value, -float("inf"))
    power = tl.exp(value - tl.max(value, axis=1)[:, None])
    result = power / tl.sum(power, axis=1)[:, None]
    tl.store(y + start + offset, result.to(y.dtype.element_ty), mask=mask)


@triton.jit
def _looped(x, y, cols, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * cols
    col = tl.arange(0, BLOCK)
    top = -float("inf")
    total = 0.0
    for first in range(0, cols, BLOCK):
        mask = col < cols - first
        value = tl.load(x + start + first + col, mask=mask, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(top, tl.max(value, axis=0))
        # While all is -inf, -inf - -inf would make NaN of a row that may yet have a maximum.
        shift = tl.where(higher == -float("inf"), 0.0, higher)
        total = total * tl.exp(top - shift) + tl.sum(tl.exp(value - shift), axis=0)
        top = higher
    for first in range(0, cols, BLOCK):
        mask = col < cols - first
        value = tl.load(x + start + first + col, mask=mask, other=-float("inf")).to(tl.float32)
        result = tl.exp(value - top) / total
        tl.store(y + start + first + col, result.to(y.dtype.element_ty), mask=mask)


@triton.jit
def _part(x, tops, totals, cols, parts, span, LANES: tl.constexpr, PER_LANE: tl.constexpr):
    """Of a part of a row: its maximum, and the sum of its powers over that."""
    row = (tl.program_id(0) // parts).to(tl.int64)
    first = tl.program_id(0) % parts * span
    left = tl.minimum(cols - first, span)
    start = row * cols + first
    col = tl.arange(0, LANES)[:, None] * PER_LANE + tl.arange(0, PER_LANE)[None, :]
    top = tl.full((LANES,), -float("inf"), tl.float32)
    total = tl.zeros((LANES,), tl.float32)
    for begin in range(0, left, LANES * PER_LANE):
        value = tl.load(x + start + begin + col, mask=col < left - begin, other=-float("inf"))
        value = value.to(tl.float32)
        higher = tl.maximum(top, tl.max(value, axis=1))
        # While a lane has seen only -inf, -inf - -inf would make NaN of it.
        shift = tl.where(higher == -float("inf"), 0.0, higher)
        total = total * tl.exp(top - shift) + tl.sum(tl.exp(value - shift[:, None]), axis=1)
        top = higher
    highest = tl.max(top, axis=0)
    shift = tl.where(highest == -float("inf"), 0.0, highest)
    tl.store(tops + tl.program_id(0), highest)
    tl.store(totals + tl.program_id(0), tl.sum(total * tl.exp(top - shift), axis=0))


@triton.jit
def _apply(x, y, tops, totals, cols, parts, span, BLOCK: tl.constexpr, MANY: tl.constexpr):
    row = (tl.program_id(0) // parts).to(tl.int64)
    first = tl.program_id(0) % parts * span
    left = tl.minimum(cols - first, span)
    start = row * cols + first
    part = row * parts + tl.arange(0, MANY)
    there = tl.arange(0, MANY) < parts
    top_of = tl.load(tops + part, mask=there, other=-float("inf"))
    top = tl.max(top_of, axis=0)
    total = tl.load(totals + part, mask=there, other=0.0)
    total = tl.sum(total * tl.exp(top_of - top), axis=0)
    col = tl.arange(0, BLOCK)
    for begin in range(0, left, BLOCK):
        mask = col < left - begin
        value = tl.load(x + start + begin + col, mask=mask, other=-float("inf")).to(tl.float32)
        result = tl.exp(value - top) / total
        tl.store(y + start + begin + col, result.to(y.dtype.element_ty), mask=mask)


def _share(rows, cols):
    """How many programs take a row, and how much of it each. Many rows need one alone."""
    parts = max(1, min(PROGRAMS // rows, cols // LOOP_BLOCK))
    span = triton.cdiv(triton.cdiv(cols, parts), LOOP_BLOCK) * LOOP_BLOCK
    return triton.cdiv(cols, span), span


def _in_parts(x, y, parts, span):
    rows, cols = x.shape
    tops, totals = torch.empty((2, rows * parts), dtype=torch.float32, device=x.device)
    grid = (rows * parts,)
    lanes = LOOP_BLOCK // PER_LANE
    _part[grid](x, tops, totals, cols, parts, span, LANES=lanes, PER_LANE=PER_LANE, num_warps=16)
    many = triton.next_power_of_2(parts)
    _apply[grid](x, y, tops, totals, cols, parts, span, BLOCK=LOOP_BLOCK, MANY=many, num_warps=16)


def softmax(x, y):
    rows, cols = x.shape
    if x.numel() == 0:
        return
    if cols > RESIDENT:
        parts, span = _share(rows, cols)
        if parts > 1:
            _in_parts(x, y, parts, span)
        else:
            _looped[(rows,)](x, y, cols, BLOCK=LOOP_BLOCK, num_warps=16)
        return
    block = triton.next_power_of_2(cols)
    # A cold kernel takes as long as its instructions take to arrive: of few elements it has few.
    tile, per_thread = (512, 4) if x.numel() <= FEW else (TILE, PER_THREAD)
    tile_rows = max(1, tile // block)
    warps = max(1, min(16, tile_rows * block // (32 * per_thread)))
    grid = (triton.cdiv(rows, tile_rows),)
    _resident[grid](x, y, rows, cols, ROWS=tile_rows, BLOCK=block, num_warps=warps)
