"""c = a + b with the row b broadcast: a program's rows share one load of their part of b."""

import triton
import triton.language as tl

TILE = 4096  # knob: 2048 4096 8192
BLOCK_N = 1024  # knob: 256 512 1024 2048
NUM_WARPS = 8  # knob: 4 8 16
FEW = 1 << 17  # elements: fewer than a GPU's threads


@triton.jit
def _add(a, b, c, m, n, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    tiles = tl.cdiv(n, BLOCK)
    start_row = tl.program_id(0) // tiles * ROWS
    start_col = tl.program_id(0) % tiles * BLOCK
    # The tile's start is a 64-bit scalar, so that the offsets within it stay 32-bit.
    start = start_row.to(tl.int64) * n + start_col
    row = tl.arange(0, ROWS)[:, None]
    col = tl.arange(0, BLOCK)[None, :]
    in_row = col < n - start_col
    mask = (row < m - start_row) & in_row
    offset = row * n + col
    bias = tl.load(b + start_col + col, mask=in_row).to(tl.float32)
    value = tl.load(a + start + offset, mask=mask).to(tl.float32)
    tl.store(c + start + offset, (value + bias).to(c.dtype.element_ty), mask=mask)


def add(a, b, c):
    m, n = a.shape
    if a.numel() == 0:
        return
    # A cold kernel takes as long as its instructions take to arrive: of few elements it has few.
    tile, warps = (512, 4) if a.numel() <= FEW else (TILE, NUM_WARPS)
    block = min(tile, BLOCK_N, triton.next_power_of_2(n))
    rows = tile // block
    grid = (triton.cdiv(m, rows) * triton.cdiv(n, block),)
    _add[grid](a, b, c, m, n, ROWS=rows, BLOCK=block, num_warps=warps)
