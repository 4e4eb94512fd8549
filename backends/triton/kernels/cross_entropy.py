"""Each row's log of a sum of powers, less the logit of its class: rows are held in registers when
they fit; through wider ones goes one pass, in which each lane has a running maximum of its own."""

import triton
import triton.language as tl

RESIDENT = 16384  # knob: 4096 8192 16384
LANES = 1024  # knob: 256 512 1024
PER_LANE = 4  # knob: 4 8 16
TILE = 2048  # knob: 1024 2048 4096
PER_THREAD = 8  # knob: 8 16 32


@triton.jit
def _resident(logits, target, loss, rows, classes, ROWS: tl.constexpr, BLOCK: tl.constexpr):
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
def _looped(logits, target, loss, classes, LANES: tl.constexpr, PER_LANE: tl.constexpr):
    row = tl.program_id(0)
    start = row.to(tl.int64) * classes
    col = tl.arange(0, LANES)[:, None] * PER_LANE + tl.arange(0, PER_LANE)[None, :]
    top = tl.full((LANES,), -float("inf"), tl.float32)
    total = tl.zeros((LANES,), tl.float32)
    for first in range(0, classes, LANES * PER_LANE):
        mask = col < classes - first
        value = tl.load(logits + start + first + col, mask=mask, other=-float("inf"))
        value = value.to(tl.float32)
        higher = tl.maximum(top, tl.max(value, axis=1))
        # While a lane has seen only -inf, -inf - -inf would make NaN of it.
        shift = tl.where(higher == -float("inf"), 0.0, higher)
        powers = tl.sum(tl.exp(value - shift[:, None]), axis=1)
        total = total * tl.exp(top - shift) + powers
        top = higher
    highest = tl.max(top, axis=0)
    total = tl.sum(total * tl.exp(top - highest), axis=0)
    chosen = tl.load(logits + start + tl.load(target + row)).to(tl.float32)
    result = tl.log(total) + (highest - chosen)
    tl.store(loss + row, result.to(loss.dtype.element_ty))


def cross_entropy(logits, target, loss):
    rows, classes = logits.shape
    if rows == 0:
        return
    if classes > RESIDENT:
        warps = max(1, min(16, LANES * PER_LANE // (32 * PER_THREAD)))
        _looped[(rows,)](
            logits, target, loss, classes, LANES=LANES, PER_LANE=PER_LANE, num_warps=warps
        )
        return
    block = triton.next_power_of_2(classes)
    tile_rows = max(1, TILE // block)
    warps = max(1, min(16, tile_rows * block // (32 * PER_THREAD)))
    grid = (triton.cdiv(rows, tile_rows),)
    _resident[grid](
        logits, target, loss, rows, classes, ROWS=tile_rows, BLOCK=block, num_warps=warps
    )
