"""Each row's log of a sum of powers, less the logit of its class: rows are held in registers when
they fit; through wider ones goes one pass, in which each lane has a running maximum of its own. Few
wide rows are shared out, and a second launch puts each row's parts together.

A lane reads a vector at a time wherever a row starts: what is before the first whole vector and
after the last is taken in apart from them."""

import torch
import triton
import triton.language as tl

RESIDENT = 16384  # knob: 4096 8192 16384
LANES = 1024  # knob: 256 512 1024
PER_LANE = 4  # knob: 4 8 16
TILE = 2048  # knob: 1024 2048 4096
PER_THREAD = 8  # knob: 8 16 32
FEW = 1 << 17  # elements: fewer than a GPU's threads
PROGRAMS = 512  # knob: 256 512 1024
# Rows without whole vectors of four, so many that a warp each hides what it waits for.
MANY_ROWS = 1 << 13
LEAST_BY_WARPS, MOST_BY_WARPS = 65, 512


@triton.jit
def _resident(
    logits, target, loss, rows, classes: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    # Of a length that is a constant the compiler drops lanes beyond the end with their registers.
    start_row = tl.program_id(0) * ROWS
    # The tile's start is a 64-bit scalar, so that the offsets within it stay 32-bit.
    start = start_row.to(tl.int64) * classes
    row = tl.arange(0, ROWS)
    col = tl.arange(0, BLOCK)[None, :]
    in_rows = row < rows - start_row
    mask = in_rows[:, None] & (col < classes)
    value = tl.load(logits + start + row[:, None] * classes + col, mask=mask, other=0.0)
    value = tl.where(col < classes, value.to(tl.float32), -float("inf"))
    top = tl.max(value, axis=1)
    total = tl.sum(tl.exp(value - top[:, None]), axis=1)
    choice = tl.load(target + start_row + row, mask=in_rows, other=0)
    chosen = tl.load(logits + start + row * classes + choice, mask=in_rows).to(tl.float32)
    result = tl.log(total) + (top - chosen)
    tl.store(loss + start_row + row, result.to(loss.dtype.element_ty), mask=in_rows)


@triton.jit
def _by_warps(
    logits,
    target,
    loss,
    rows,
    classes: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    REST: tl.constexpr,
):
    """Rows of one warp, whose lanes need no memory to tell each other something: BLOCK elements of
    each, which it has, and what is left, up to REST."""
    start_row = tl.program_id(0) * ROWS
    start = start_row.to(tl.int64) * classes
    row = tl.arange(0, ROWS)
    in_rows = row < rows - start_row
    choice = tl.load(target + start_row + row, mask=in_rows, other=0)
    here = logits + start + row[:, None] * classes
    rest = BLOCK + tl.arange(0, REST)[None, :]
    mask = in_rows[:, None]
    left = tl.load(here + rest, mask=mask & (rest < classes), other=0.0).to(tl.float32)
    value = tl.load(here + tl.arange(0, BLOCK)[None, :], mask=mask, other=0.0).to(tl.float32)
    chosen = tl.load(logits + start + row * classes + choice, mask=in_rows).to(tl.float32)
    left = tl.where(rest < classes, left, -float("inf"))
    top = tl.maximum(tl.max(value, axis=1), tl.max(left, axis=1))
    total = tl.sum(tl.exp(value - top[:, None]), axis=1)
    total += tl.sum(tl.exp(left - top[:, None]), axis=1)
    result = tl.log(total) + (top - chosen)
    tl.store(loss + start_row + row, result.to(loss.dtype.element_ty), mask=in_rows)


@triton.jit
def _powers(logits, at, length, EDGES: tl.constexpr, LANES: tl.constexpr, PER_LANE: tl.constexpr):
    """The maximum of ``length`` logits from ``at`` on, and the sum of their powers over that. EDGES
    where not all of them are in whole vectors."""
    lead = (at % PER_LANE).to(tl.int32)
    # Written as a product, from which Triton sees what divides it.
    logits += at // PER_LANE * PER_LANE
    end = lead + length
    lane = tl.arange(0, LANES) * PER_LANE
    col = lane[:, None] + tl.arange(0, PER_LANE)[None, :]
    top = tl.full((LANES,), -float("inf"), tl.float32)
    total = tl.zeros((LANES,), tl.float32)
    for first in range(0, end, LANES * PER_LANE):
        whole = (lane >= lead - first) & (lane <= end - PER_LANE - first)
        value = tl.load(logits + first + col, mask=whole[:, None], other=-float("inf"))
        value = value.to(tl.float32)
        higher = tl.maximum(top, tl.max(value, axis=1))
        # While a lane has seen only -inf, -inf - -inf would make NaN of it.
        shift = tl.where(higher == -float("inf"), 0.0, higher)
        powers = tl.sum(tl.exp(value - shift[:, None]), axis=1)
        total = total * tl.exp(top - shift) + powers
        top = higher
    highest = tl.max(top, axis=0)
    if EDGES:
        place = tl.arange(0, 2 * PER_LANE)
        tail = end // PER_LANE * PER_LANE
        edge = tl.where(place < PER_LANE, place, tail + place - PER_LANE)
        before = place < tl.where(lead > 0, PER_LANE, 0)
        # Few logits may all be in one vector, which is not to be counted twice.
        after = place >= tl.where((lead == 0) | (tail > 0), PER_LANE, 2 * PER_LANE)
        there = (before | after) & (edge >= lead) & (edge < end)
        value = tl.load(logits + edge, mask=there, other=-float("inf")).to(tl.float32)
        highest = tl.maximum(highest, tl.max(value, axis=0))
    shift = tl.where(highest == -float("inf"), 0.0, highest)
    result = tl.sum(total * tl.exp(top - shift), axis=0)
    if EDGES:
        result += tl.sum(tl.exp(value - shift), axis=0)
    return highest, result


@triton.jit
def _looped(
    logits,
    target,
    loss,
    classes,
    EDGES: tl.constexpr,
    LANES: tl.constexpr,
    PER_LANE: tl.constexpr,
):
    row = tl.program_id(0)
    start = row.to(tl.int64) * classes
    highest, total = _powers(logits, start, classes, EDGES, LANES, PER_LANE)
    chosen = tl.load(logits + start + tl.load(target + row)).to(tl.float32)
    result = tl.log(total) + (highest - chosen)
    tl.store(loss + row, result.to(loss.dtype.element_ty))


@triton.jit
def _part(
    logits,
    tops,
    totals,
    classes,
    parts,
    span,
    EDGES: tl.constexpr,
    LANES: tl.constexpr,
    PER_LANE: tl.constexpr,
):
    row = (tl.program_id(0) // parts).to(tl.int64)
    first = tl.program_id(0) % parts * span
    left = tl.minimum(classes - first, span)
    top, total = _powers(logits, row * classes + first, left, EDGES, LANES, PER_LANE)
    tl.store(tops + tl.program_id(0), top)
    tl.store(totals + tl.program_id(0), total)


@triton.jit
def _combine(logits, target, loss, tops, totals, classes, parts, MANY: tl.constexpr):
    row = tl.program_id(0)
    part = row.to(tl.int64) * parts + tl.arange(0, MANY)
    there = tl.arange(0, MANY) < parts
    top = tl.load(tops + part, mask=there, other=-float("inf"))
    highest = tl.max(top, axis=0)
    total = tl.load(totals + part, mask=there, other=0.0)
    total = tl.sum(total * tl.exp(top - highest), axis=0)
    chosen = tl.load(logits + row.to(tl.int64) * classes + tl.load(target + row)).to(tl.float32)
    result = tl.log(total) + (highest - chosen)
    tl.store(loss + row, result.to(loss.dtype.element_ty))


def _wide(logits, target, loss):
    rows, classes = logits.shape
    step = LANES * PER_LANE
    warps = max(1, min(16, step // (32 * PER_THREAD)))
    parts = max(1, min(PROGRAMS // rows, classes // step))
    options = {
        "EDGES": classes % PER_LANE > 0,
        "LANES": LANES,
        "PER_LANE": PER_LANE,
        "num_warps": warps,
    }
    if parts == 1:
        _looped[(rows,)](logits, target, loss, classes, **options)
        return
    span = triton.cdiv(triton.cdiv(classes, parts), step) * step
    parts = triton.cdiv(classes, span)
    tops, totals = torch.empty((2, rows * parts), dtype=torch.float32, device=logits.device)
    _part[(rows * parts,)](logits, tops, totals, classes, parts, span, **options)
    many = triton.next_power_of_2(parts)
    _combine[(rows,)](logits, target, loss, tops, totals, classes, parts, MANY=many)


def cross_entropy(logits, target, loss):
    rows, classes = logits.shape
    if rows == 0:
        return
    if classes > RESIDENT:
        _wide(logits, target, loss)
        return
    block = triton.next_power_of_2(classes)
    if classes % 4 and rows >= MANY_ROWS and LEAST_BY_WARPS <= classes <= MOST_BY_WARPS:
        half = block // 2
        tile_rows = max(1, 512 // half)
        _by_warps[(triton.cdiv(rows, tile_rows),)](
            logits,
            target,
            loss,
            rows,
            classes,
            ROWS=tile_rows,
            BLOCK=half,
            REST=max(32, triton.next_power_of_2(classes - half)),
            num_warps=1,
        )
        return
    # A cold kernel takes as long as its instructions take to arrive: of few elements it has few.
    tile, per_thread = (512, 4) if logits.numel() <= FEW else (TILE, PER_THREAD)
    tile_rows = max(1, tile // block)
    warps = max(1, min(16, tile_rows * block // (32 * per_thread)))
    grid = (triton.cdiv(rows, tile_rows),)
    _resident[grid](
        logits, target, loss, rows, classes, ROWS=tile_rows, BLOCK=block, num_warps=warps
    )
