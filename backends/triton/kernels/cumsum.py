"""Inclusive scan of each row in float32: block by block, carrying the sum of those before.

A block is scanned in pieces of 32 and the pieces' sums after that, so that no rounding error is
carried through more than a few dozen additions whatever order the scan is done in.
"""

import triton
import triton.language as tl

BLOCK_COLS = 2048  # knob: 512 1024 2048 4096
TILE = 2048  # knob: 1024 2048 4096
PER_THREAD = 16  # knob: 8 16 32


@triton.jit
def _cumsum(x, y, rows, cols, ROWS: tl.constexpr, PIECES: tl.constexpr, PIECE: tl.constexpr):
    start_row = tl.program_id(0) * ROWS
    # The tile's start is a 64-bit scalar, so that the offsets within it stay 32-bit.
    start = start_row.to(tl.int64) * cols
    row = tl.arange(0, ROWS)[:, None, None]
    col = tl.arange(0, PIECES)[None, :, None] * PIECE + tl.arange(0, PIECE)[None, None, :]
    carry = tl.zeros((ROWS,), tl.float32)
    for first in range(0, cols, PIECES * PIECE):
        mask = (row < rows - start_row) & (col < cols - first)
        offset = row * cols + first + col
        value = tl.load(x + start + offset, mask=mask, other=0.0).to(tl.float32)
        totals = tl.sum(value, axis=2)
        before = carry[:, None] + (tl.cumsum(totals, axis=1) - totals)
        result = before[:, :, None] + tl.cumsum(value, axis=2)
        tl.store(y + start + offset, result.to(y.dtype.element_ty), mask=mask)
        carry += tl.sum(totals, axis=1)


def cumsum(x, y):
    rows, cols = x.shape
    if x.numel() == 0:
        return
    block = min(BLOCK_COLS, triton.next_power_of_2(cols))
    piece = min(32, block)
    tile_rows = max(1, TILE // block)
    warps = max(1, min(16, tile_rows * block // (32 * PER_THREAD)))
    _cumsum[(triton.cdiv(rows, tile_rows),)](
        x, y, rows, cols, ROWS=tile_rows, PIECES=block // piece, PIECE=piece, num_warps=warps
    )
