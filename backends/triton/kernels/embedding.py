"""y[i] = table[index[i]]: a tile of rows per program, each copied from where its index says.

Of narrow rows a program has a stretch of y, so that neighbours write to neighbours whatever a row's
length is.
"""

import triton
import triton.language as tl

TILE = 4096  # knob: 2048 4096 8192
BLOCK_COLS = 1024  # knob: 256 512 1024 2048
NUM_WARPS = 8  # knob: 4 8 16
NARROW = 32  # knob: 16 32 64
STRETCH = 1024  # knob: 512 1024 2048
FEW = 1 << 17  # elements: fewer than a GPU's threads


@triton.jit
def _embedding(table, index, y, n, dim, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    tiles = tl.cdiv(dim, BLOCK)
    start_row = tl.program_id(0) // tiles * ROWS
    start_col = tl.program_id(0) % tiles * BLOCK
    row = tl.arange(0, ROWS)[:, None]
    col = tl.arange(0, BLOCK)[None, :]
    in_rows = row < n - start_row
    mask = in_rows & (col < dim - start_col)
    # An index is of 64 bits, and so is where its row begins.
    source = tl.load(index + start_row + row, mask=in_rows, other=0) * dim + start_col
    value = tl.load(table + source + col, mask=mask)
    start = start_row.to(tl.int64) * dim + start_col
    tl.store(y + start + row * dim + col, value, mask=mask)


@triton.jit
def _narrow(table, index, y, n, dim, STRETCH: tl.constexpr):
    """Divides in 32 bits, from the row on that the stretch begins in."""
    start = tl.program_id(0).to(tl.int64) * STRETCH
    first = start // dim
    at = tl.arange(0, STRETCH)
    place = (start - first * dim).to(tl.int32) + at
    row, col = place // dim, place % dim
    mask = row < n - first
    source = tl.load(index + first + row, mask=mask, other=0) * dim
    tl.store(y + start + at, tl.load(table + source + col, mask=mask), mask=mask)


def embedding(table, index, y):
    n, dim = y.shape
    if y.numel() == 0:
        return
    if dim <= NARROW:
        _narrow[(triton.cdiv(y.numel(), STRETCH),)](table, index, y, n, dim, STRETCH=STRETCH)
        return
    # A cold kernel takes as long as its instructions take to arrive: of few elements it has few.
    tile, warps = (512, 4) if y.numel() <= FEW else (TILE, NUM_WARPS)
    block = min(tile, BLOCK_COLS, triton.next_power_of_2(dim))
    rows = tile // block
    grid = (triton.cdiv(n, rows) * triton.cdiv(dim, block),)
    _embedding[grid](table, index, y, n, dim, ROWS=rows, BLOCK=block, num_warps=warps)
