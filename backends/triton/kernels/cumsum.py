"""Inclusive scan of each row in float32: block by block, carrying the sum of those before.

A block is scanned in pieces of 32 and the pieces' sums after that, so that no rounding error is
carried through more than a few dozen additions whatever order the scan is done in. A row no longer
than a piece is scanned as it is. Few long rows are shared out: a first launch sums their parts, and
each part's scan begins with the sum of those before it, for one more reading of the row.

Rows that no vector load can take are walked from the 16 bytes in which they start: what comes of
the rows beside them is dropped, and only their ends are written one by one. Triton takes a length
for aligned where 16 divides it.
"""

import torch
import triton
import triton.language as tl

BLOCK_COLS = 2048  # knob: 512 1024 2048 4096
TILE = 2048  # knob: 1024 2048 4096
PER_THREAD = 16  # knob: 8 16 32
LONGEST_PIECE = 32
VECTOR_BYTES = 16  # knob: 8 16
FEW = 1 << 17  # elements: fewer than a GPU's threads
PROGRAMS = 512  # knob: 256 512 1024
LEAST_PART = 1024  # knob: 1024 4096 8192
# Where there are so many rows, a part must be eight times as long to pay.
ROWS_ENOUGH = 128


@triton.jit
def _load(x, base, lead, at, there, cols, count, VECTOR: tl.constexpr):
    """Elements ``at`` after ``base``, as float32, of a row that starts ``lead`` after it, and which
    of them are its. Vectors are read whole, but for one in which ``count``, all elements, end."""
    mask = there & (at >= lead) & (at < lead + cols)
    if VECTOR == 1:
        return tl.load(x + base + at, mask=mask, other=0.0).to(tl.float32), mask
    first = at // VECTOR * VECTOR
    whole = there & (first + VECTOR > lead) & (first < lead + cols)
    inside = base + first + VECTOR <= count
    value = tl.load(x + base + at, mask=whole & inside, other=0.0)
    if (count % VECTOR > 0) & (tl.program_id(0) == tl.num_programs(0) - 1):
        rest = mask & (base + first + VECTOR > count)
        value = tl.where(rest, tl.load(x + base + at, mask=rest, other=0.0), value)
    return tl.where(mask, value.to(tl.float32), 0.0), mask


@triton.jit
def _store(y, base, lead, at, there, cols, result, mask, VECTOR: tl.constexpr):
    result = result.to(y.dtype.element_ty)
    if VECTOR == 1:
        tl.store(y + base + at, result, mask=mask)
    else:
        first = at // VECTOR * VECTOR
        whole = there & (first >= lead) & (first + VECTOR <= lead + cols)
        tl.store(y + base + at, result, mask=whole)
        tl.store(y + base + at, result, mask=mask & (whole == 0))


@triton.jit
def _cumsum(
    x,
    y,
    sums,
    rows,
    cols,
    span,
    count,
    MANY: tl.constexpr,
    ROWS: tl.constexpr,
    PIECES: tl.constexpr,
    PIECE: tl.constexpr,
    VECTOR: tl.constexpr,
):
    """Of places ``[part * span, part * span + span)`` from where each row's first vector starts,
    after the ``sums`` of the parts before."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None, None]
    begin = tl.program_id(1) * span
    end = begin + tl.minimum(cols + VECTOR - 1 - begin, span)
    lead = (row * cols % VECTOR).to(tl.int32)
    base = row * cols // VECTOR * VECTOR
    col = tl.arange(0, PIECES)[None, :, None] * PIECE + tl.arange(0, PIECE)[None, None, :]
    carry = tl.zeros((ROWS,), tl.float32)
    if MANY > 1:
        part = tl.arange(0, MANY)
        at = tl.program_id(0).to(tl.int64) * tl.num_programs(1) + part
        carry += tl.sum(tl.load(sums + at, mask=part < tl.program_id(1), other=0.0), axis=0)
    for first in range(begin, end, PIECES * PIECE):
        value, mask = _load(x, base, lead, first + col, row < rows, cols, count, VECTOR)
        totals = tl.sum(value, axis=2)
        before = carry[:, None] + (tl.cumsum(totals, axis=1) - totals)
        result = before[:, :, None] + tl.cumsum(value, axis=2)
        if tl.max(tl.max((totals - totals != 0.0).to(tl.int32), axis=1), axis=0) > 0:
            # What is infinite cannot be taken away again.
            flat = tl.cumsum(tl.reshape(value, (ROWS, PIECES * PIECE)), axis=1)
            result = carry[:, None, None] + tl.reshape(flat, (ROWS, PIECES, PIECE))
        _store(y, base, lead, first + col, row < rows, cols, result, mask, VECTOR)
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
def _part(x, sums, cols, span, count, BLOCK: tl.constexpr, VECTOR: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) + tl.arange(0, 1)
    begin = tl.program_id(1) * span
    end = begin + tl.minimum(cols + VECTOR - 1 - begin, span)
    lead = (row * cols % VECTOR).to(tl.int32)
    base = row * cols // VECTOR * VECTOR
    col = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for first in range(begin, end, BLOCK):
        total += _load(x, base, lead, first + col, row >= 0, cols, count, VECTOR)[0]
    part = tl.program_id(0).to(tl.int64) * tl.num_programs(1) + tl.program_id(1)
    tl.store(sums + part, tl.sum(total, axis=0))


def cumsum(x, y):
    rows, cols = x.shape
    if x.numel() == 0:
        return
    vector = 1 if cols % 16 == 0 or cols <= LONGEST_PIECE else VECTOR_BYTES // x.element_size()
    places = cols + vector - 1
    block = min(BLOCK_COLS, triton.next_power_of_2(places))
    piece = min(LONGEST_PIECE, block)
    least_part = LEAST_PART if rows < ROWS_ENOUGH else 8 * LEAST_PART
    parts = max(1, min(PROGRAMS // rows, cols // least_part))
    span = triton.cdiv(triton.cdiv(places, parts), block) * block
    parts = triton.cdiv(places, span)
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
        _part[(rows, parts)](
            x, sums, cols, span, x.numel(), BLOCK=block, VECTOR=vector, num_warps=warps
        )
    _cumsum[(triton.cdiv(rows, tile_rows), parts)](
        x,
        y,
        sums,
        rows,
        cols,
        span,
        x.numel(),
        MANY=triton.next_power_of_2(parts),
        ROWS=tile_rows,
        PIECES=block // piece,
        PIECE=piece,
        VECTOR=vector,
        num_warps=warps,
    )
