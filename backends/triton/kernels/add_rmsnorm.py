"""x + residual and its root-mean-square normalisation: rows are held in registers when they fit, or
the sum is written and read again."""

import triton
import triton.language as tl

RESIDENT = 16384  # knob: 4096 8192 16384
LOOP_BLOCK = 8192  # knob: 2048 4096 8192
TILE = 2048  # knob: 1024 2048 4096
PER_THREAD = 16  # knob: 8 16 32
FEW = 1 << 17  # elements: fewer than a GPU's threads


@triton.jit
def _resident(
    x,
    residual,
    weight,
    y,
    total,
    rows,
    cols: tl.constexpr,
    eps,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    start_row = tl.program_id(0) * ROWS
    # The tile's start is a 64-bit scalar, so that the offsets within it stay 32-bit.
    start = start_row.to(tl.int64) * cols
    row = tl.arange(0, ROWS)[:, None]
    col = tl.arange(0, BLOCK)[None, :]
    mask = (row < rows - start_row) & (col < cols)
    offset = row * cols + col
    value = tl.load(x + start + offset, mask=mask, other=0.0).to(tl.float32)
    value += tl.load(residual + start + offset, mask=mask, other=0.0).to(tl.float32)
    rounded = value.to(total.dtype.element_ty)
    tl.store(total + start + offset, rounded, mask=mask)
    value = rounded.to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(value * value, axis=1) / cols + eps)
    gain = tl.load(weight + col, mask=col < cols, other=0.0).to(tl.float32)
    result = value * scale[:, None] * gain
    tl.store(y + start + offset, result.to(y.dtype.element_ty), mask=mask)


@triton.jit
def _looped(x, residual, weight, y, total, cols, eps, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * cols
    col = tl.arange(0, BLOCK)
    squares = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, cols, BLOCK):
        mask = col < cols - first
        value = tl.load(x + start + first + col, mask=mask, other=0.0).to(tl.float32)
        value += tl.load(residual + start + first + col, mask=mask, other=0.0).to(tl.float32)
        rounded = value.to(total.dtype.element_ty)
        tl.store(total + start + first + col, rounded, mask=mask)
        value = rounded.to(tl.float32)
        squares += value * value
    scale = 1.0 / tl.sqrt(tl.sum(squares, axis=0) / cols + eps)
    # From the operands again: what other threads of the program wrote may not have arrived.
    for first in range(0, cols, BLOCK):
        mask = col < cols - first
        value = tl.load(x + start + first + col, mask=mask, other=0.0).to(tl.float32)
        value += tl.load(residual + start + first + col, mask=mask, other=0.0).to(tl.float32)
        value = value.to(total.dtype.element_ty).to(tl.float32)
        gain = tl.load(weight + first + col, mask=mask, other=0.0).to(tl.float32)
        tl.store(y + start + first + col, (value * scale * gain).to(y.dtype.element_ty), mask=mask)


def add_rmsnorm(x, residual, weight, y, total, eps):
    rows, cols = x.shape
    if x.numel() == 0:
        return
    if cols > RESIDENT:
        grid = (rows,)
        _looped[grid](x, residual, weight, y, total, cols, eps, BLOCK=LOOP_BLOCK, num_warps=16)
        return
    block = triton.next_power_of_2(cols)
    # A cold kernel takes as long as its instructions take to arrive: of few elements it has few.
    tile, per_thread = (512, 4) if x.numel() <= FEW else (TILE, PER_THREAD)
    tile_rows = max(1, tile // block)
    warps = max(1, min(16, tile_rows * block // (32 * per_thread)))
    grid = (triton.cdiv(rows, tile_rows),)
    _resident[grid](
        x, residual, weight, y, total, rows, cols, eps, ROWS=tile_rows, BLOCK=block, num_warps=warps
    )
