"""y = x^T by square tiles: read along x's rows, written along y's."""

import triton
import triton.language as tl

BLOCK = 64  # knob: 32 64 128
NUM_WARPS = 8  # knob: 4 8 16


@triton.jit
def _transpose(x, y, rows, cols, BLOCK: tl.constexpr):
    tiles = tl.cdiv(cols, BLOCK)
    start_row = tl.program_id(0) // tiles * BLOCK
    start_col = tl.program_id(0) % tiles * BLOCK
    outer = tl.arange(0, BLOCK)[:, None].to(tl.int64)
    inner = tl.arange(0, BLOCK)[None, :]
    source = x + start_row.to(tl.int64) * cols + start_col
    mask = (outer < rows - start_row) & (inner < cols - start_col)
    tile = tl.load(source + outer * cols + inner, mask=mask)
    target = y + start_col.to(tl.int64) * rows + start_row
    mask = (outer < cols - start_col) & (inner < rows - start_row)
    tl.store(target + outer * rows + inner, tl.trans(tile), mask=mask)


def transpose(x, y):
    rows, cols = x.shape
    if x.numel():
        grid = (triton.cdiv(rows, BLOCK) * triton.cdiv(cols, BLOCK),)
        _transpose[grid](x, y, rows, cols, BLOCK=BLOCK, num_warps=NUM_WARPS)
