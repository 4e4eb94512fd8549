"""Each pair of a head's halves is turned by its token's angle; a tile holds many heads' pairs."""

import triton
import triton.language as tl

TILE = 2048  # knob: 1024 2048 4096
BLOCK_HALF = 1024  # knob: 256 512 1024
NUM_WARPS = 4  # knob: 4 8 16
FEW = 1 << 17  # elements: fewer than a GPU's threads


@triton.jit
def _rope(
    x,
    cos,
    sin,
    y,
    lines,
    heads: tl.constexpr,
    half: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """``lines`` are the heads of all tokens. A head's half is a constant, as a model's is: of a
    length that it knows the compiler drops lanes beyond the end with their registers."""
    tiles = tl.cdiv(half, BLOCK)
    start_row = tl.program_id(0) // tiles * ROWS
    start_col = tl.program_id(0) % tiles * BLOCK
    # The tile's start is a 64-bit scalar, so that the offsets within it stay 32-bit.
    start = start_row.to(tl.int64) * 2 * half + start_col
    row = tl.arange(0, ROWS)[:, None]
    col = tl.arange(0, BLOCK)[None, :]
    mask = (row < lines - start_row) & (col < half - start_col)
    offset = row * 2 * half + col
    first = tl.load(x + start + offset, mask=mask).to(tl.float32)
    second = tl.load(x + start + half + offset, mask=mask).to(tl.float32)
    angle = ((start_row + row) // heads).to(tl.int64) * half + start_col + col
    across = tl.load(cos + angle, mask=mask)
    along = tl.load(sin + angle, mask=mask)
    turned = (first * across - second * along).to(y.dtype.element_ty)
    tl.store(y + start + offset, turned, mask=mask)
    turned = (second * across + first * along).to(y.dtype.element_ty)
    tl.store(y + start + half + offset, turned, mask=mask)


def rope(x, cos, sin, y):
    tokens, heads, _, half = x.shape
    if x.numel() == 0:
        return
    block = min(BLOCK_HALF, triton.next_power_of_2(half))
    # A cold kernel takes as long as its instructions take to arrive: of few elements it has few.
    rows = (TILE if y.numel() > FEW else max(256, block)) // block
    grid = (triton.cdiv(tokens * heads, rows) * triton.cdiv(half, block),)
    _rope[grid](
        x, cos, sin, y, tokens * heads, heads, half, ROWS=rows, BLOCK=block, num_warps=NUM_WARPS
    )
