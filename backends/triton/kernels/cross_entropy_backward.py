"""(softmax(logits) - one at the target's class) * grad of each row: held in registers when it fits,
else the largest and the sum are found together and the row is read again."""

import triton
import triton.language as tl

RESIDENT = 16384  # knob: 4096 8192 16384
LOOP_BLOCK = 8192  # knob: 2048 4096 8192
TILE = 2048  # knob: 1024 2048 4096
PER_THREAD = 16  # knob: 8 16 32


@triton.jit
def _resident(
    grad, logits, target, to, rows, cols: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    start_row = tl.program_id(0) * ROWS
    start = start_row.to(tl.int64) * cols
    row = tl.arange(0, ROWS)
    col = tl.arange(0, BLOCK)[None, :]
    there = row < rows - start_row
    mask = there[:, None] & (col < cols)
    offset = row[:, None] * cols + col
    value = tl.load(logits + start + offset, mask=mask, other=-float("inf")).to(tl.float32)
    most = tl.maximum(tl.max(value, axis=1), -3.0e38)
    part = tl.exp(value - most[:, None])
    total = tl.sum(part, axis=1)
    own = tl.load(target + start_row + row, mask=there, other=0)
    factor = tl.load(grad + start_row + row, mask=there, other=0.0).to(tl.float32)
    part = tl.where(col == own[:, None], part - total[:, None], part)
    result = part * (factor / tl.where(there, total, 1.0))[:, None]
    tl.store(to + start + offset, result.to(to.dtype.element_ty), mask=mask)


@triton.jit
def _looped(grad, logits, target, to, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    start = row.to(tl.int64) * cols
    col = tl.arange(0, BLOCK)
    most = tl.full((BLOCK,), -3.0e38, tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, cols, BLOCK):
        mask = col < cols - first
        value = tl.load(logits + start + first + col, mask=mask, other=-float("inf"))
        value = value.to(tl.float32)
        higher = tl.maximum(most, value)
        total = total * tl.exp(most - higher) + tl.exp(value - higher)
        most = higher
    largest = tl.max(most, axis=0)
    all = tl.sum(total * tl.exp(most - largest), axis=0)
    own = tl.load(target + row)
    share = tl.load(grad + row).to(tl.float32) / all
    for first in range(0, cols, BLOCK):
        mask = col < cols - first
        value = tl.load(logits + start + first + col, mask=mask, other=0.0).to(tl.float32)
        part = tl.exp(value - largest)
        part = tl.where(first + col == own, part - all, part)
        tl.store(to + start + first + col, (part * share).to(to.dtype.element_ty), mask=mask)


def cross_entropy_backward(grad, logits, target, grad_logits):
    rows, cols = logits.shape
    if logits.numel() == 0:
        return
    if cols > RESIDENT:
        grid = (rows,)
        _looped[grid](grad, logits, target, grad_logits, cols, BLOCK=LOOP_BLOCK, num_warps=16)
        return
    block = triton.next_power_of_2(cols)
    tile_rows = max(1, TILE // block)
    warps = max(1, min(16, tile_rows * block // (32 * PER_THREAD)))
    grid = (triton.cdiv(rows, tile_rows),)
    _resident[grid](
        grad, logits, target, grad_logits, rows, cols, ROWS=tile_rows, BLOCK=block, num_warps=warps
    )
