"""y = x^T by tiles, read along x's rows and written along y's: square ones, and of a thin matrix
longer ones, as many elements each."""

import triton
import triton.language as tl

BLOCK = 64  # knob: 32 64 128
NUM_WARPS = 8  # knob: 4 8 16
FEW = 1 << 20  # elements: larger tiles would be fewer than a GPU wants


@triton.jit
def _transpose(x, y, rows, cols, BLOCK_ROWS: tl.constexpr, BLOCK_COLS: tl.constexpr):
    tiles = tl.cdiv(cols, BLOCK_COLS)
    start_row = tl.program_id(0) // tiles * BLOCK_ROWS
    start_col = tl.program_id(0) % tiles * BLOCK_COLS
    row = tl.arange(0, BLOCK_ROWS)
    col = tl.arange(0, BLOCK_COLS)
    source = x + start_row.to(tl.int64) * cols + start_col
    source += row.to(tl.int64)[:, None] * cols + col[None, :]
    mask = (row < rows - start_row)[:, None] & (col < cols - start_col)[None, :]
    tile = tl.load(source, mask=mask)
    target = y + start_col.to(tl.int64) * rows + start_row
    target += col.to(tl.int64)[:, None] * rows + row[None, :]
    mask = (col < cols - start_col)[:, None] & (row < rows - start_row)[None, :]
    tl.store(target, tl.trans(tile), mask=mask)


def transpose(x, y):
    rows, cols = x.shape
    if x.numel() == 0:
        return
    side, warps = (32, 4) if x.numel() <= FEW else (BLOCK, NUM_WARPS)
    block_rows = min(side, triton.next_power_of_2(rows))
    block_cols = min(side * side // block_rows, triton.next_power_of_2(cols))
    block_rows = min(side * side // block_cols, triton.next_power_of_2(rows))
    grid = (triton.cdiv(rows, block_rows) * triton.cdiv(cols, block_cols),)
    _transpose[grid](
        x, y, rows, cols, BLOCK_ROWS=block_rows, BLOCK_COLS=block_cols, num_warps=warps
    )
