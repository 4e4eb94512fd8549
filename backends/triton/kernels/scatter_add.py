"""x with rows of src added, in their order and without atomics, so that equal inputs give equal
bits. A first launch lists which rows of src go to each span of rows; then a tile of rows looks its
own up in its span's list, and adds them in float32."""

import torch
import triton
import triton.language as tl

SPANS = 128  # knob: 64 128 256
SCAN = 4096  # knob: 2048 4096 8192
TILE = 2048  # knob: 1024 2048 4096
LOOK = 256  # knob: 128 256 512
NUM_WARPS = 4  # knob: 4 8


@triton.jit
def _list(index, listed, bounds, n, span, SCAN: tl.constexpr):
    """What goes to this program's span comes after what goes to the spans before it."""
    first_row = tl.program_id(0).to(tl.int64) * span
    lane = tl.arange(0, SCAN)
    before = tl.zeros((SCAN,), tl.int32)
    for start in range(0, n, SCAN):
        row = tl.load(index + start + lane, mask=lane < n - start, other=first_row)
        before += (row < first_row).to(tl.int32)
    place = tl.sum(before, axis=0)
    tl.store(bounds + 2 * tl.program_id(0), place)
    for start in range(0, n, SCAN):
        row = tl.load(index + start + lane, mask=lane < n - start, other=-1)
        here = ((row >= first_row) & (row < first_row + span)).to(tl.int32)
        target = listed + place + tl.cumsum(here, axis=0) - 1
        tl.store(target, start + lane, mask=here != 0)
        place += tl.sum(here, axis=0)
    tl.store(bounds + 2 * tl.program_id(0) + 1, place)


@triton.jit
def _add(
    x,
    index,
    src,
    y,
    listed,
    bounds,
    rows,
    dim,
    n,
    span,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    LOOK: tl.constexpr,
):
    tiles = tl.cdiv(dim, BLOCK)
    start_row = tl.program_id(0) // tiles * ROWS
    start_col = tl.program_id(0) % tiles * BLOCK
    row = start_row + tl.arange(0, ROWS)
    col = start_col + tl.arange(0, BLOCK)[None, :]
    in_row = col < dim
    mask = (row < rows)[:, None] & in_row
    target = row.to(tl.int64)[:, None] * dim + col
    total = tl.load(x + target, mask=mask, other=0.0).to(tl.float32)
    lane = tl.arange(0, LOOK)
    last = tl.load(bounds + start_row // span * 2 + 1)
    for start in range(tl.load(bounds + start_row // span * 2), last, LOOK):
        entry = tl.load(listed + start + lane, mask=lane < last - start, other=n)
        goes_to = tl.load(index + entry, mask=lane < last - start, other=-1)
        waiting = goes_to[None, :] == row[:, None]
        for _ in range(tl.max(tl.sum(waiting.to(tl.int32), axis=1), axis=0)):
            # Entries rise, so the least that waits is the next of its row; n where none does.
            following = tl.min(tl.where(waiting, entry[None, :], n), axis=1)[:, None]
            source = src + following.to(tl.int64) * dim + col
            total += tl.load(source, mask=(following < n) & in_row, other=0.0).to(tl.float32)
            waiting = waiting & (entry[None, :] > following)
    tl.store(y + target, total.to(y.dtype.element_ty), mask=mask)


def scatter_add(x, index, src, y):
    (rows, dim), n = x.shape, index.numel()
    if x.numel() == 0:
        return
    block = min(TILE, triton.next_power_of_2(dim))
    tile_rows = min(256, TILE // block)
    span = triton.cdiv(triton.cdiv(rows, SPANS), tile_rows) * tile_rows
    spans = triton.cdiv(rows, span)
    listed = torch.empty((n,), dtype=torch.int32, device=x.device)
    bounds = torch.empty((2 * spans,), dtype=torch.int32, device=x.device)
    _list[(spans,)](index, listed, bounds, n, span, SCAN=SCAN, num_warps=8)
    grid = (triton.cdiv(rows, tile_rows) * triton.cdiv(dim, block),)
    _add[grid](
        x,
        index,
        src,
        y,
        listed,
        bounds,
        rows,
        dim,
        n,
        span,
        ROWS=tile_rows,
        BLOCK=block,
        LOOK=max(16, LOOK // tile_rows),
        num_warps=NUM_WARPS,
    )
