"""The first largest element's index of each row, in one pass over whole numbers that are ordered
as the elements are: each lane keeps its best and where that was, and the lanes meet at the end."""

import triton
import triton.language as tl

BLOCK_COLS = 1024  # knob: 1024 2048 4096 8192
TILE = 2048  # knob: 1024 2048 4096
PER_THREAD = 16  # knob: 8 16 32


@triton.jit
def _key(value):
    """An int32: the larger ``value``, the larger; the zeros' are equal, a NaN's is the largest."""
    bits = value.to(tl.int32, bitcast=True)
    key = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    key = tl.where(value == 0.0, 0, key)
    return tl.where(value != value, 0x7FFFFFFF, key)


@triton.jit
def _argmax(x, index, rows, cols, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    start_row = tl.program_id(0) * ROWS
    # The tile's start is a 64-bit scalar, so that the offsets within it stay 32-bit.
    start = start_row.to(tl.int64) * cols
    row = tl.arange(0, ROWS)
    col = tl.arange(0, BLOCK)[None, :]
    in_rows = row < rows - start_row
    best = tl.full((ROWS, BLOCK), -0x80000000, tl.int32)
    found = tl.zeros((ROWS, BLOCK), tl.int32)  # how many blocks of columns come before
    block = tl.zeros((ROWS, 1), tl.int32)
    for first in range(0, cols, BLOCK):
        mask = in_rows[:, None] & (col < cols - first)
        # What is beyond the end may equal a row's -inf, and comes after it.
        value = tl.load(
            x + start + row[:, None] * cols + first + col, mask=mask, other=-float("inf")
        )
        key = _key(value.to(tl.float32))
        found = tl.where(key > best, block, found)
        best = tl.maximum(best, key)
        block += 1
    top = tl.max(best, axis=1)[:, None]
    result = tl.min(tl.where(best == top, found.to(tl.int64) * BLOCK + col, cols), axis=1)
    tl.store(index + start_row + row, result.to(tl.int64), mask=in_rows)


def argmax(x, index):
    rows, cols = x.shape
    if rows == 0:
        return
    block = min(BLOCK_COLS, triton.next_power_of_2(cols))
    tile_rows = max(1, TILE // block)
    warps = max(1, min(16, tile_rows * block // (32 * PER_THREAD)))
    grid = (triton.cdiv(rows, tile_rows),)
    _argmax[grid](x, index, rows, cols, ROWS=tile_rows, BLOCK=block, num_warps=warps)
