"""The k largest of each row, in two launches. The first finds the k-th largest and lists all down
to it; the second counts for each listed element those above it, which is its place. Short rows are
kept and their k-th found bit by bit, by counting what is not below a trial. Of long ones each lane
finds its largest first, and what is below the k-th of these is none of the k largest: the few that
are left are kept as a short row is. Where they are many, the digits of all are counted, as many
times as it takes. Of few long rows each part lists its own. The largest alone is found in one pass,
and in one launch where rows have one part; so are a few of short rows (experts of a router), where
the largest is taken out as often as asked for."""

import torch
import triton
import triton.language as tl

RESIDENT = 8192  # knob: 4096 8192 16384
LOOP_BLOCK = 4096  # knob: 2048 4096 8192
# Bits of a number that one pass over a long row counts; they divide those of every dtype's numbers.
DIGITS = {32: 8, 20: 10, 16: 8}
TILE = 4096  # knob: 1024 2048 4096
PER_THREAD = 16  # knob: 8 16 32
KEPT = 2048  # knob: 0 1024 2048 4096
PLACES = 64  # knob: 32 64 128
ORDER_TILE = 4096  # knob: 2048 4096 8192
PROGRAMS = 512  # knob: 256 512 1024
# Of short rows: columns, how many are taken out at most, and elements of a warp.
FEW_COLS = 512  # knob: 0 256 512 1024
FEW_KEPT = 32
FEW_TILE = 512  # knob: 256 512 1024
# Of all parts of a row: each is held against all others.
MOST_LISTED = 2048


@triton.jit
def _keys(pointer, mask, SHIFT: tl.constexpr):
    """Whole numbers: the larger the element, the larger; the zeros' are equal, a NaN's is the
    largest, and only what is masked gives 0. SHIFT drops bits in which no two numbers differ."""
    value = tl.load(pointer, mask=mask, other=0.0).to(tl.float32)
    bits = value.to(tl.uint32, bitcast=True)
    key = tl.where(bits > 0x80000000, ~bits, bits | 0x80000000)
    key = tl.where(value != value, 0xFFFFFFFF, key)
    return tl.where(mask, key >> SHIFT, 0)


@triton.jit
def _pack(key, col):
    """Key and column in one number; of equal keys, that of the first column is the largest."""
    return (key.to(tl.int64) << 31) | (0x7FFFFFFF - col)


@triton.jit
def _bar(key, k, BITS: tl.constexpr):
    """The k-th largest of each row of keys."""
    bar = tl.zeros((key.shape[0], 1), tl.uint32)
    unit = tl.full((key.shape[0], 1), 1 << (BITS - 1), tl.uint32)
    for _ in range(BITS):
        count = tl.sum((key >= (bar | unit)).to(tl.int32), axis=1)[:, None]
        bar = tl.where(count >= k, bar | unit, bar)
        unit = unit >> 1
    return bar


@triton.jit
def _chosen(key, bar, mask, k):
    """Of those level with the k-th, as many are listed as there is room for, the first ones."""
    level = ((key == bar) & mask).to(tl.int32)
    room = k - tl.sum((key > bar).to(tl.int32), axis=1)[:, None]
    return ((key > bar) | ((key == bar) & (tl.cumsum(level, axis=1) <= room))) & mask


@triton.jit
def _resident(
    x,
    listed,
    rows,
    cols,
    k,
    BITS: tl.constexpr,
    SHIFT: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    start_row = tl.program_id(0) * ROWS
    # The tile's start is a 64-bit scalar, so that the offsets within it stay 32-bit.
    start = start_row.to(tl.int64)
    row = tl.arange(0, ROWS)[:, None]
    col = tl.arange(0, BLOCK)[None, :]
    mask = (row < rows - start_row) & (col < cols)
    key = _keys(x + start * cols + row * cols + col, mask, SHIFT)
    chosen = _chosen(key, _bar(key, k, BITS), mask, k)
    place = tl.cumsum(chosen.to(tl.int32), axis=1) - 1
    tl.store(listed + start * k + row * k + place, _pack(key, col), mask=chosen)


@triton.jit
def _looped(
    x,
    listed,
    kept,
    cols,
    k,
    span,
    BITS: tl.constexpr,
    SHIFT: tl.constexpr,
    DIGIT: tl.constexpr,
    KEPT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Columns ``[part * span, part * span + span)`` of a row."""
    begin = tl.program_id(1) * span
    end = begin + tl.minimum(cols - begin, span)
    part = tl.program_id(0).to(tl.int64) * tl.num_programs(1) + tl.program_id(1)
    x += tl.program_id(0).to(tl.int64) * cols
    listed += part * k
    if KEPT:
        kept += part * KEPT
        count = _keep(x, kept, begin, end, k, BITS, SHIFT, KEPT, BLOCK)
        if count <= KEPT:
            # Other threads have written what is read.
            tl.debug_barrier()
            lane = tl.arange(0, KEPT)[None, :]
            mask = lane < count
            packed = tl.load(kept + lane, mask=mask, other=0)
            key = (packed >> 31).to(tl.uint32)
            chosen = _chosen(key, _bar(key, k, BITS), mask, k)
            place = tl.cumsum(chosen.to(tl.int32), axis=1) - 1
            tl.store(listed + place, packed, mask=chosen)
        else:
            _count(x, listed, begin, end, k, BITS, SHIFT, DIGIT, BLOCK)
    else:
        _count(x, listed, begin, end, k, BITS, SHIFT, DIGIT, BLOCK)


@triton.jit
def _keep(
    x,
    kept,
    begin,
    end,
    k,
    BITS: tl.constexpr,
    SHIFT: tl.constexpr,
    KEPT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """How many are not below the k-th of the lanes' largest; they are listed, KEPT at most."""
    lane = tl.arange(0, BLOCK)[None, :]
    best = tl.zeros((1, BLOCK), tl.uint32)
    for first in range(begin, end, BLOCK):
        best = tl.maximum(best, _keys(x + first + lane, lane < end - first, SHIFT))
    bar = _bar(best, k, BITS)
    count = tl.zeros((), tl.int32)
    for first in range(begin, end, BLOCK):
        here = lane < end - first
        key = _keys(x + first + lane, here, SHIFT)
        chosen = ((key >= bar) & here).to(tl.int32)
        found = tl.sum(tl.sum(chosen, axis=1), axis=0)
        if found > 0:
            place = count + tl.cumsum(chosen, axis=1) - 1
            mask = (chosen > 0) & (place < KEPT)
            tl.store(kept + place, _pack(key, first + lane), mask=mask)
            count += found
    return count


@triton.jit
def _count(
    x,
    listed,
    begin,
    end,
    k,
    BITS: tl.constexpr,
    SHIFT: tl.constexpr,
    DIGIT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    lane = tl.arange(0, BLOCK)
    BINS: tl.constexpr = 1 << DIGIT
    # Of the k-th largest all bits from ``low`` on are known: in these, ``above`` are larger, and
    # ``reached`` are larger or equal.
    bar = tl.zeros((), tl.uint32)
    low = tl.full((), BITS, tl.uint32)
    above = tl.zeros((), tl.int32)
    reached = tl.zeros((), tl.int32)
    while (low > 0) & (reached != k):
        low -= DIGIT
        counts = tl.zeros((BINS,), tl.int32)
        for first in range(begin, end, BLOCK):
            here = lane < end - first
            shifted = _keys(x + first + lane, here, SHIFT) >> low
            here = here & ((shifted >> DIGIT) == (bar >> low >> DIGIT))
            counts += tl.histogram((shifted & (BINS - 1)).to(tl.int32), BINS, mask=here)
        down_to = above + tl.cumsum(counts, axis=0, reverse=True)
        digit = tl.sum((down_to >= k).to(tl.int32), axis=0) - 1
        reached = tl.min(tl.where(down_to >= k, down_to, 0x7FFFFFFF), axis=0)
        above = tl.max(tl.where(down_to >= k, above, down_to), axis=0)
        bar = bar | (digit.to(tl.uint32) << low)
    room = k - above
    for first in range(begin, end, BLOCK):
        here = lane < end - first
        key = _keys(x + first + lane, here, SHIFT)
        level = (here & (key >> low == bar >> low)).to(tl.int32)
        larger = here & (key >> low > bar >> low)
        if tl.sum(level + larger.to(tl.int32), axis=0) > 0:
            chosen = larger | ((level > 0) & (tl.cumsum(level, axis=0) <= room))
            place = tl.cumsum(chosen.to(tl.int32), axis=0) - 1
            tl.store(listed + place, _pack(key, first + lane), mask=chosen)
            listed += tl.sum(chosen.to(tl.int32), axis=0)
            room -= tl.sum(level, axis=0)


@triton.jit
def _largest(
    x,
    listed,
    values,
    indices,
    rows,
    cols,
    span,
    SHIFT: tl.constexpr,
    WHOLE: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Of each part of a row; of a whole row its place and value."""
    start_row = tl.program_id(0) * ROWS
    begin = tl.program_id(1) * span
    end = begin + tl.minimum(cols - begin, span)
    start = start_row.to(tl.int64)
    row = tl.arange(0, ROWS)[:, None]
    lane = tl.arange(0, BLOCK)[None, :]
    in_rows = row < rows - start_row
    best = tl.zeros((ROWS, BLOCK), tl.int64)
    for first in range(begin, end, BLOCK):
        mask = in_rows & (lane < end - first)
        key = _keys(x + start * cols + row * cols + first + lane, mask, SHIFT)
        best = tl.maximum(best, tl.where(mask, _pack(key, first + lane), 0))
    best = tl.max(best, axis=1)[:, None]
    if WHOLE:
        col = 0x7FFFFFFF - (best & 0x7FFFFFFF)
        value = tl.load(x + start * cols + row * cols + col, mask=in_rows)
        tl.store(values + start + row, value, mask=in_rows)
        tl.store(indices + start + row, col, mask=in_rows)
    else:
        part = start * tl.num_programs(1) + row * tl.num_programs(1) + tl.program_id(1)
        tl.store(listed + part, best, mask=in_rows)


@triton.jit
def _few(
    x,
    values,
    indices,
    rows,
    cols,
    k,
    SHIFT: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    KEPT: tl.constexpr,
):
    """One warp's rows: only what was taken and what is masked has the key 0."""
    start_row = tl.program_id(0) * ROWS
    start = start_row.to(tl.int64)
    row = tl.arange(0, ROWS)[:, None]
    col = tl.arange(0, BLOCK)[None, :]
    lane = tl.arange(0, KEPT)[None, :]
    in_rows = row < rows - start_row
    x += start * cols + row * cols
    key = _keys(x + col, in_rows & (col < cols), SHIFT)
    place = tl.zeros((ROWS, KEPT), tl.int32)
    for i in range(k):
        top = tl.max(key, axis=1)[:, None]
        first = tl.min(tl.where(key == top, col, BLOCK), axis=1)[:, None]
        place = tl.where(lane == i, first, place)
        key = tl.where(col == first, 0, key)
    mask = in_rows & (lane < k)
    to = start * k + row * k + lane
    tl.store(values + to, tl.load(x + place, mask=mask), mask=mask)
    tl.store(indices + to, place, mask=mask)


@triton.jit
def _order(
    x,
    listed,
    values,
    indices,
    rows,
    cols,
    total,
    k,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    OTHERS: tl.constexpr,
):
    """Of ``total`` that are listed of each row, OTHERS at a time are held against a program's."""
    tiles = tl.cdiv(total, BLOCK)
    start_row = tl.program_id(0) // tiles * ROWS
    row = tl.arange(0, ROWS)[:, None]
    place = tl.program_id(0) % tiles * BLOCK + tl.arange(0, BLOCK)[None, :]
    in_rows = row < rows - start_row
    mask = in_rows & (place < total)
    row = start_row.to(tl.int64) + row
    own = tl.load(listed + row * total + place, mask=mask, other=0)
    lane = tl.arange(0, OTHERS)[None, None, :]
    larger = tl.zeros((ROWS, BLOCK, OTHERS), tl.int32)
    for first in range(0, total, OTHERS):
        here = in_rows[:, :, None] & (lane < total - first)
        other = tl.load(listed + (row * total)[:, :, None] + first + lane, mask=here, other=0)
        larger += (other > own[:, :, None]).to(tl.int32)
    above = tl.sum(larger, axis=2)
    mask = mask & (above < k)
    col = 0x7FFFFFFF - (own & 0x7FFFFFFF)
    tl.store(values + row * k + above, tl.load(x + row * cols + col, mask=mask), mask=mask)
    tl.store(indices + row * k + above, col, mask=mask)


def _parts(rows, cols, k):
    """Of a row, each with k columns or more: as many as fill a device."""
    least = max(2 * LOOP_BLOCK, 2 * k)
    return max(1, min(PROGRAMS // rows, cols // least, MOST_LISTED // k))


def topk(x, values, indices, k):
    rows, cols = x.shape
    if rows == 0 or k == 0:
        return
    if cols >= 2**31:
        raise ValueError(f"topk keeps a column in 31 bits, got rows of {cols}")
    # An even number of leading bits, in which all numbers of the dtype differ.
    bits = {torch.float32: 32, torch.float16: 20, torch.bfloat16: 16}[x.dtype]
    if 1 < k <= FEW_KEPT and 4 * k <= cols <= FEW_COLS:
        block = triton.next_power_of_2(cols)
        tile_rows = max(1, FEW_TILE // block)
        _few[(triton.cdiv(rows, tile_rows),)](
            x,
            values,
            indices,
            rows,
            cols,
            k,
            SHIFT=32 - bits,
            ROWS=tile_rows,
            BLOCK=block,
            KEPT=triton.next_power_of_2(k),
            num_warps=1,
        )
        return
    parts = _parts(rows, cols, k)
    whole = k == 1 and parts == 1
    total = 0 if whole else parts * k
    listed = torch.empty((rows, total), dtype=torch.int64, device=x.device)
    _list(x, listed, values, indices, k, parts, bits)
    if whole:
        return
    block = min(PLACES, triton.next_power_of_2(total))
    tile_rows = max(1, ORDER_TILE // block**2)
    grid = (triton.cdiv(rows, tile_rows) * triton.cdiv(total, block),)
    _order[grid](
        x,
        listed,
        values,
        indices,
        rows,
        cols,
        total,
        k,
        ROWS=tile_rows,
        BLOCK=block,
        OTHERS=block,
    )


def _list(x, listed, values, indices, k, parts, bits):
    """The k largest of each part of a row, in any order; of whole rows the largest alone is the
    result."""
    rows, cols = x.shape
    span = triton.cdiv(cols, parts)
    block = triton.next_power_of_2(min(span, RESIDENT if k > 1 else LOOP_BLOCK))
    tile_rows = max(1, TILE // block)
    warps = max(1, min(16, tile_rows * block // (32 * PER_THREAD)))
    tiles = triton.cdiv(rows, tile_rows)
    if k == 1:
        _largest[(tiles, parts)](
            x,
            listed,
            values,
            indices,
            rows,
            cols,
            span,
            SHIFT=32 - bits,
            WHOLE=parts == 1,
            ROWS=tile_rows,
            BLOCK=block,
            num_warps=warps,
        )
    elif cols > RESIDENT:
        # Of a large k more are left.
        most = KEPT if k <= KEPT // 2 else 0
        kept = torch.empty((rows, parts, most), dtype=torch.int64, device=x.device)
        _looped[(rows, parts)](
            x,
            listed,
            kept,
            cols,
            k,
            span,
            BITS=bits,
            SHIFT=32 - bits,
            DIGIT=DIGITS[bits],
            KEPT=most,
            BLOCK=LOOP_BLOCK,
            num_warps=8,
        )
    else:
        _resident[(tiles,)](
            x,
            listed,
            rows,
            cols,
            k,
            BITS=bits,
            SHIFT=32 - bits,
            ROWS=tile_rows,
            BLOCK=block,
            num_warps=warps,
        )
