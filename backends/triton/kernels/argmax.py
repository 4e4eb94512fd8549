"""The first largest element's index of each row, in one pass over whole numbers that are ordered
as the elements are: each lane keeps its best and where that was, and the lanes meet at the end.
Few long rows are shared out, and a second launch finds the best of each row's parts; of short ones
a thread has a row of its own, since lanes that meet take longer than what they look at."""

import torch
import triton
import triton.language as tl

BLOCK_COLS = 1024  # knob: 1024 2048 4096 8192
TILE = 2048  # knob: 1024 2048 4096
PER_THREAD = 16  # knob: 8 16 32
FEW = 1 << 17  # elements: fewer than a GPU's threads
PROGRAMS = 1024  # knob: 512 1024 2048
LEAST_PART = 4096  # knob: 2048 4096 8192
NARROW_BYTES = 64  # knob: 0 32 64
NARROW_ROWS = 256  # knob: 128 256 512


@triton.jit
def _key(value):
    """An int32: the larger ``value``, the larger; the zeros' are equal, a NaN's is the largest."""
    bits = value.to(tl.int32, bitcast=True)
    key = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    key = tl.where(value == 0.0, 0, key)
    return tl.where(value != value, 0x7FFFFFFF, key)


@triton.jit
def _argmax(
    x,
    index,
    keys,
    rows,
    cols,
    span,
    PARTS: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Of columns ``[part * span, part * span + span)``; with several parts their keys, too."""
    start_row = tl.program_id(0) * ROWS
    begin = tl.program_id(1) * span
    end = begin + tl.minimum(cols - begin, span)
    # The tile's start is a 64-bit scalar, so that the offsets within it stay 32-bit.
    start = start_row.to(tl.int64) * cols
    row = tl.arange(0, ROWS)
    col = tl.arange(0, BLOCK)[None, :]
    in_rows = row < rows - start_row
    best = tl.full((ROWS, BLOCK), -0x80000000, tl.int32)
    found = tl.zeros((ROWS, BLOCK), tl.int32)  # how many blocks of columns come before
    block = tl.zeros((ROWS, 1), tl.int32)
    for first in range(begin, end, BLOCK):
        mask = in_rows[:, None] & (col < end - first)
        # What is beyond the end may equal a row's -inf, and comes after it.
        value = tl.load(
            x + start + row[:, None] * cols + first + col, mask=mask, other=-float("inf")
        )
        key = _key(value.to(tl.float32))
        found = tl.where(key > best, block, found)
        best = tl.maximum(best, key)
        block += 1
    top = tl.max(best, axis=1)
    place = begin + found.to(tl.int64) * BLOCK + col
    result = tl.min(tl.where(best == top[:, None], place, cols), axis=1)
    target = (start_row + row).to(tl.int64) * tl.num_programs(1) + tl.program_id(1)
    tl.store(index + target, result.to(tl.int64), mask=in_rows)
    if PARTS:
        tl.store(keys + target, top, mask=in_rows)


@triton.jit
def _narrow(x, index, rows, COLS: tl.constexpr, ROWS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    mask = row < rows
    best = tl.full((ROWS,), -0x80000000, tl.int32)
    found = tl.zeros((ROWS,), tl.int32)
    for col in tl.static_range(COLS):
        key = _key(tl.load(x + row * COLS + col, mask=mask, other=0.0).to(tl.float32))
        found = tl.where(key > best, col, found)
        best = tl.maximum(best, key)
    tl.store(index + row, found.to(tl.int64), mask=mask)


@triton.jit
def _best(places, keys, index, cols, parts, MANY: tl.constexpr):
    part = tl.arange(0, MANY)
    at = tl.program_id(0).to(tl.int64) * parts + part
    key = tl.load(keys + at, mask=part < parts, other=-0x80000000)
    place = tl.load(places + at, mask=part < parts, other=cols)
    top = tl.max(key, axis=0)
    tl.store(index + tl.program_id(0), tl.min(tl.where(key == top, place, cols), axis=0))


def argmax(x, index):
    rows, cols = x.shape
    if rows == 0:
        return
    if cols * x.element_size() <= NARROW_BYTES:
        grid = (triton.cdiv(rows, NARROW_ROWS),)
        _narrow[grid](x, index, rows, COLS=cols, ROWS=NARROW_ROWS, num_warps=4)
        return
    few = x.numel() <= FEW
    block = min(4096 if few else BLOCK_COLS, triton.next_power_of_2(cols))
    parts = max(1, min(PROGRAMS // rows, cols // LEAST_PART))
    span = triton.cdiv(triton.cdiv(cols, parts), block) * block
    parts = triton.cdiv(cols, span)
    # A cold kernel takes as long as its instructions take to arrive: of few elements it has few.
    tile, per_thread = (512, 4) if few else (TILE, PER_THREAD)
    tile_rows = max(1, tile // block) if parts == 1 else 1
    warps = max(1, min(16, tile_rows * block // (32 * per_thread)))
    places, keys = index, index
    if parts > 1:
        places = torch.empty(rows * parts, dtype=torch.int64, device=x.device)
        keys = torch.empty(rows * parts, dtype=torch.int32, device=x.device)
    _argmax[(triton.cdiv(rows, tile_rows), parts)](
        x,
        places,
        keys,
        rows,
        cols,
        span,
        PARTS=parts > 1,
        ROWS=tile_rows,
        BLOCK=block,
        num_warps=warps,
    )
    if parts > 1:
        _best[(rows,)](places, keys, index, cols, parts, MANY=triton.next_power_of_2(parts))
