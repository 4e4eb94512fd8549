"""Inclusive scan of each row in float32: block by block, carrying the sum of those before.

A block is scanned in pieces of 32 and the pieces' sums after that, so that no rounding error is
carried through more than a few dozen additions whatever order the scan is done in. A row no longer
than a piece is scanned as it is. Few long rows are shared out: a first launch sums their parts, and
each part's scan begins with the sum of those before it, for one more reading of the row.
"""

import torch
import triton
import triton.language as tl

BLOCK_COLS = 2048  # knob: 512 1024 2048 4096
TILE = 2048  # knob: 1024 2048 4096
PER_THREAD = 16  # knob: 8 16 32
LONGEST_PIECE = 32
FEW = 1 << 17  # elements: fewer than a GPU's threads
PROGRAMS = 512  # knob: 256 512 1024
LEAST_PART = 1024  # knob: 1024 4096 8192
# Where there are so many rows, a part must be eight times as long to pay.
ROWS_ENOUGH = 128


@triton.jit
def _cumsum(
    x,
    y,
    sums,
    rows,
    cols,
    span,
    MANY: tl.constexpr,
    ROWS: tl.constexpr,
    PIECES: tl.constexpr,
    PIECE: tl.constexpr,
):
    """Of columns ``[part * span, part * span + span)``, after the ``sums`` of the parts before."""
    start_row = tl.program_id(0) * ROWS
    begin = tl.program_id(1) * span
    end = begin + tl.minimum(cols - begin, span)
    # The tile's start is a 64-bit scalar, so that the offsets within it stay 32-bit.
    start = start_row.to(tl.int64) * cols
    row = tl.arange(0, ROWS)[:, None, None]
    col = tl.arange(0, PIECES)[None, :, None] * PIECE + tl.arange(0, PIECE)[None, None, :]
    carry = tl.zeros((ROWS,), tl.float32)
    if MANY > 1:
        part = tl.arange(0, MANY)
        at = tl.program_id(0).to(tl.int64) * tl.num_programs(1) + part
        carry += tl.sum(tl.load(sums + at, mask=part < tl.program_id(1), other=0.0), axis=0)
    for first in range(begin, end, PIECES * PIECE):
        mask = (row < rows - start_row) & (col < end - first)
        offset = row * cols + first + col
        value = tl.load(x + start + offset, mask=mask, other=0.0).to(tl.float32)
        totals = tl.sum(value, axis=2)
        before = carry[:, None] + (tl.cumsum(totals, axis=1) - totals)
        result = before[:, :, None] + tl.cumsum(value, axis=2)
        if tl.max(tl.max((totals - totals != 0.0).to(tl.int32), axis=1), axis=0) > 0:
            # What is infinite cannot be taken away again.
            flat = tl.cumsum(tl.reshape(value, (ROWS, PIECES * PIECE)), axis=1)
            result = carry[:, None, None] + tl.reshape(flat, (ROWS, PIECES, PIECE))
        tl.store(y + start + offset, result.to(y.dtype.element_ty), mask=mask)
        carry += tl.sum(totals, axis=1)


@triton.jit
def _short(x, y, rows, cols, ROWS: tl.constexpr, COLS: tl.constexpr):
    start_row = tl.program_id(0) * ROWS
    start = start_row.to(tl.int64) * cols
    row = tl.arange(0, ROWS)[:, None]
    col = tl.arange(0, COLS)[None, :]
    mask = (row < rows - start_row) & (col < cols)
    value = tl.load(x + start + row * cols + col, mask=mask, other=0.0).to(tl.float32)
    result = tl.cumsum(value, axis=1).to(y.dtype.element_ty)
    tl.store(y + start + row * cols + col, result, mask=mask)


@triton.jit
def _part(x, sums, cols, span, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    begin = tl.program_id(1) * span
    end = begin + tl.minimum(cols - begin, span)
    col = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for first in range(begin, end, BLOCK):
        value = tl.load(x + row * cols + first + col, mask=col < end - first, other=0.0)
        total += value.to(tl.float32)
    tl.store(sums + row * tl.num_programs(1) + tl.program_id(1), tl.sum(total, axis=0))


def cumsum(x, y):
    rows, cols = x.shape
    if x.numel() == 0:
        return
    block = min(BLOCK_COLS, triton.next_power_of_2(cols))
    piece = min(LONGEST_PIECE, block)
    least_part = LEAST_PART if rows < ROWS_ENOUGH else 8 * LEAST_PART
    parts = max(1, min(PROGRAMS // rows, cols // least_part))
    span = triton.cdiv(triton.cdiv(cols, parts), block) * block
    parts = triton.cdiv(cols, span)
    # A cold kernel takes as long as its instructions take to arrive: of few elements it has few.
    tile, per_thread = (512, 4) if x.numel() <= FEW else (TILE, PER_THREAD)
    tile_rows = max(1, tile // block) if parts == 1 else 1
    warps = max(1, min(16, tile_rows * block // (32 * per_thread)))
    if cols <= piece:
        grid = (triton.cdiv(rows, tile_rows),)
        _short[grid](x, y, rows, cols, ROWS=tile_rows, COLS=block, num_warps=warps)
        return
    sums = x
    if parts > 1:
        sums = torch.empty(rows * parts, dtype=torch.float32, device=x.device)
        _part[(rows, parts)](x, sums, cols, span, BLOCK=block, num_warps=warps)
    _cumsum[(triton.cdiv(rows, tile_rows), parts)](
        x,
        y,
        sums,
        rows,
        cols,
        span,
        MANY=triton.next_power_of_2(parts),
        ROWS=tile_rows,
        PIECES=block // piece,
        PIECE=piece,
        num_warps=warps,
    )
