"""Softmax of each row: held in registers when it fits, else two passes with a running maximum."""

import triton
import triton.language as tl

RESIDENT = 16384  # knob: 4096 8192 16384
LOOP_BLOCK = 8192  # knob: 2048 4096 8192
TILE = 2048  # knob: 1024 2048 4096
PER_THREAD = 16  # knob: 8 16 32


@triton.jit
def _resident(x, y, rows, cols, ROWS: tl.constexpr, BLOCK: tl.constexpr):
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


def softmax(x, y):
    rows, cols = x.shape
    if x.numel() == 0:
        return
    if cols > RESIDENT:
        _looped[(rows,)](x, y, cols, BLOCK=LOOP_BLOCK, num_warps=16)
        return
    block = triton.next_power_of_2(cols)
    tile_rows = max(1, TILE // block)
    warps = max(1, min(16, tile_rows * block // (32 * PER_THREAD)))
    grid = (triton.cdiv(rows, tile_rows),)
    _resident[grid](x, y, rows, cols, ROWS=tile_rows, BLOCK=block, num_warps=warps)
