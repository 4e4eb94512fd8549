"""y = gelu(x + bias) with the exact error function: a program's rows share one load of the bias."""

import triton
import triton.language as tl

TILE = 4096  # knob: 2048 4096 8192
BLOCK_COLS = 1024  # knob: 256 512 1024 2048
NUM_WARPS = 8  # knob: 4 8 16
FEW = 1 << 17  # elements: fewer than a GPU's threads


@triton.jit
def _bias_gelu(x, bias, y, rows, cols, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    tiles = tl.cdiv(cols, BLOCK)
    start_row = tl.program_id(0) // tiles * ROWS
    start_col = tl.program_id(0) % tiles * BLOCK
    # The tile's start is a 64-bit scalar, so that the offsets within it stay 32-bit.
    start = start_row.to(tl.int64) * cols + start_col
    row = tl.arange(0, ROWS)[:, None]
    col = tl.arange(0, BLOCK)[None, :]
    in_row = col < cols - start_col
    mask = (row < rows - start_row) & in_row
    offset = row * cols + col
    shift = tl.load(bias + start_col + col, mask=in_row).to(tl.float32)
    value = tl.load(x + start + offset, mask=mask).to(tl.float32) + shift
    result = 0.5 * value * (1.0 + tl.erf(value * 0.7071067811865476))
    tl.store(y + start + offset, result.to(y.dtype.element_ty), mask=mask)


def bias_gelu(x, bias, y):
    rows, cols = x.shape
    if x.numel() == 0:
        return
    # A cold kernel takes as long as its instructions take to arrive: of few elements it has few.
    # Large tiles of not many more would be on fewer multiprocessors than there are.
    tile, warps = (512, 4) if x.numel() <= FEW else (TILE, NUM_WARPS)
    if FEW < x.numel() <= 4 * FEW:
        tile, warps = 1024, 4
    block = min(tile, BLOCK_COLS, triton.next_power_of_2(cols))
    tile_rows = tile // block
    grid = (triton.cdiv(rows, tile_rows) * triton.cdiv(cols, block),)
    _bias_gelu[grid](x, bias, y, rows, cols, ROWS=tile_rows, BLOCK=block, num_warps=warps)
