"""x with rows of src added, in their order and without atomics, so that equal inputs give equal
bits. A first launch lists which rows of src go to each span of rows; then a tile of rows looks its
own up in its span's list, and adds them in float32. Where there would be few such tiles, each row
has programs of its own, which add many of its list's rows at once; where few rows get much, a
program has a part of src, and sums of all rows of a tile. Where lists would be long, sums are
float32 atomics, in the hardware's order: putting so much in order would take many times as long."""

import torch
import triton
import triton.language as tl

SPANS = 128  # knob: 64 128 256
SCAN = 4096  # knob: 2048 4096 8192
TILE = 2048  # knob: 1024 2048 4096
LOOK = 256  # knob: 128 256 512
NUM_WARPS = 4  # knob: 4 8
# Fewer tiles leave a device idle, and each would add row after row, waiting for every one.
FEW_TILES = 256  # knob: 128 256 512
ALONE_TILE = 4096  # knob: 2048 4096 8192
ALONE_COLS = 256  # knob: 128 256 512
MOST_ALONE = 4096
# For few rows that get much each.
PROGRAMS = 512  # knob: 256 512 1024
CROWD_ROWS = 8  # knob: 4 8
CROWD_TILE = 1024  # knob: 512 1024
# A program adds what is not a row's as zeros, so that many rows are better listed.
MOST_CROWDED = 64
# Entries of a span's list, in the mean: each of its tiles goes through all of them.
MOST_LISTED = 256
FLAT = 1024


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


@triton.jit
def _alone(
    x,
    index,
    src,
    y,
    listed,
    bounds,
    dim,
    span,
    LOOK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Columns of one row. Of LOOK entries those of other rows are not read, so that all that are
    come at once."""
    tiles = tl.cdiv(dim, BLOCK)
    row = tl.program_id(0) // tiles
    col = tl.program_id(0) % tiles * BLOCK + tl.arange(0, BLOCK)
    lane = tl.arange(0, LOOK)
    in_row = col < dim
    at = row.to(tl.int64) * dim + col
    total = tl.zeros((LOOK, BLOCK), tl.float32)
    last = tl.load(bounds + row // span * 2 + 1)
    for start in range(tl.load(bounds + row // span * 2), last, LOOK):
        entry = tl.load(listed + start + lane, mask=lane < last - start, other=0)
        own = tl.load(index + entry, mask=lane < last - start, other=-1) == row
        source = src + entry.to(tl.int64)[:, None] * dim + col[None, :]
        mask = own[:, None] & in_row[None, :]
        total += tl.load(source, mask=mask, other=0.0).to(tl.float32)
    result = tl.load(x + at, mask=in_row, other=0.0).to(tl.float32) + tl.sum(total, axis=0)
    tl.store(y + at, result.to(y.dtype.element_ty), mask=in_row)


@triton.jit
def _crowded(
    index,
    src,
    sums,
    rows,
    dim,
    n,
    span,
    ROWS: tl.constexpr,
    ENTRIES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Sums of entries ``[part * span, part * span + span)``; each lane has some of its own."""
    tiles = tl.cdiv(dim, BLOCK)
    first_row = tl.program_id(0) // tiles * ROWS
    row = first_row + tl.arange(0, ROWS)
    col = tl.program_id(0) % tiles * BLOCK + tl.arange(0, BLOCK)[None, :]
    lane = tl.arange(0, ENTRIES)
    begin = tl.program_id(1) * span
    end = begin + tl.minimum(n - begin, span)
    total = tl.zeros((ROWS, ENTRIES, BLOCK), tl.float32)
    for start in range(begin, end, ENTRIES):
        goes_to = tl.load(index + start + lane, mask=lane < end - start, other=-1)
        here = (goes_to >= first_row) & (goes_to < first_row + ROWS)
        source = src + (start + lane).to(tl.int64)[:, None] * dim + col
        value = tl.load(source, mask=here[:, None] & (col < dim), other=0.0).to(tl.float32)
        own = goes_to[None, :] == row[:, None]
        total += tl.where(own[:, :, None], value[None, :, :], 0.0)
    target = (tl.program_id(1).to(tl.int64) * rows + row)[:, None] * dim + col
    tl.store(sums + target, tl.sum(total, axis=1), mask=(row < rows)[:, None] & (col < dim))


@triton.jit
def _together(x, sums, y, count, parts, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(x + at, mask=at < count, other=0.0).to(tl.float32)
    for _ in range(parts):
        total += tl.load(sums + at, mask=at < count, other=0.0)
        sums += count
    tl.store(y + at, total.to(y.dtype.element_ty), mask=at < count)


def _few_rows(x, index, src, y):
    (rows, dim), n = x.shape, index.numel()
    tile_rows = min(CROWD_ROWS, triton.next_power_of_2(rows))
    block = min(128, triton.next_power_of_2(dim))
    entries = CROWD_TILE // block
    tiles = triton.cdiv(rows, tile_rows) * triton.cdiv(dim, block)
    parts = max(1, min(PROGRAMS // tiles, n // (8 * entries)))
    span = triton.cdiv(triton.cdiv(n, parts), entries) * entries
    parts = triton.cdiv(n, span)
    sums = torch.empty((parts, rows, dim), dtype=torch.float32, device=x.device)
    _crowded[(tiles, parts)](
        index,
        src,
        sums,
        rows,
        dim,
        n,
        span,
        ROWS=tile_rows,
        ENTRIES=entries,
        BLOCK=block,
        num_warps=8,
    )
    _together[(triton.cdiv(rows * dim, 256),)](x, sums, y, rows * dim, parts, BLOCK=256)


@triton.jit
def _convert(x, y, count, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < count).to(y.dtype.element_ty), mask=at < count)


@triton.jit
def _atomic(index, src, sums, dim, count, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    row = tl.load(index + at // dim, mask=at < count, other=0)
    value = tl.load(src + at, mask=at < count, other=0.0).to(tl.float32)
    tl.atomic_add(sums + row * dim + at % dim, value, mask=at < count, sem="relaxed")


def _many(x, index, src, y):
    count, added = x.numel(), src.numel()
    wide = y.dtype == torch.float32
    sums = y if wide else torch.empty(x.shape, dtype=torch.float32, device=x.device)
    _convert[(triton.cdiv(count, FLAT),)](x, sums, count, BLOCK=FLAT)
    _atomic[(triton.cdiv(added, FLAT),)](index, src, sums, x.shape[1], added, BLOCK=FLAT)
    if not wide:
        _convert[(triton.cdiv(count, FLAT),)](sums, y, count, BLOCK=FLAT)


def scatter_add(x, index, src, y):
    (rows, dim), n = x.shape, index.numel()
    if x.numel() == 0:
        return
    if rows <= MOST_CROWDED and n >= max(256, 32 * rows):
        _few_rows(x, index, src, y)
        return
    if n > MOST_LISTED * SPANS:
        _many(x, index, src, y)
        return
    block = min(TILE, triton.next_power_of_2(dim))
    tile_rows = min(256, TILE // block)
    few = triton.cdiv(rows, tile_rows) * triton.cdiv(dim, block) < FEW_TILES
    alone = few and rows * triton.cdiv(dim, ALONE_COLS) <= MOST_ALONE
    if alone:
        tile_rows = 1
    while few and tile_rows > 1 and triton.cdiv(rows, tile_rows) < FEW_TILES:
        tile_rows //= 2
    span = triton.cdiv(triton.cdiv(rows, SPANS), tile_rows) * tile_rows
    spans = triton.cdiv(rows, span)
    listed = torch.empty((n,), dtype=torch.int32, device=x.device)
    bounds = torch.empty((2 * spans,), dtype=torch.int32, device=x.device)
    # Of few entries a list takes few instructions: they have to arrive, too.
    scan = max(256, min(SCAN, triton.next_power_of_2(n)))
    _list[(spans,)](index, listed, bounds, n, span, SCAN=scan, num_warps=min(8, scan // 256))
    if alone:
        block = min(ALONE_COLS, triton.next_power_of_2(dim))
        # Twice the mean length of a list: most are looked through in one step.
        look = min(ALONE_TILE // block, triton.next_power_of_2(max(1, 2 * n // spans)))
        _alone[(rows * triton.cdiv(dim, block),)](
            x,
            index,
            src,
            y,
            listed,
            bounds,
            dim,
            span,
            LOOK=look,
            BLOCK=block,
            num_warps=max(1, min(8, look * block // 512)),
        )
        return
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
