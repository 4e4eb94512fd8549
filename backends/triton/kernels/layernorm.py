"""Layer normalisation of each row: held in registers when it fits, else three passes.

The mean is taken twice, the second time of what is left after subtracting the first: where the
mean is far larger than the deviation, its rounding error would otherwise be the result's.
"""

import triton
import triton.language as tl

RESIDENT = 16384  # knob: 4096 8192 16384
LOOP_BLOCK = 8192  # knob: 2048 4096 8192
TILE = 2048  # knob: 1024 2048 4096
PER_THREAD = 16  # knob: 8 16 32


@triton.jit
def _resident(x, weight, bias, y, rows, cols, eps, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    start_row = tl.program_id(0) * ROWS
    # The tile's start is a 64-bit scalar, so that the offsets within it stay 32-bit.
    start = start_row.to(tl.int64) * cols
    row = tl.arange(0, ROWS)[:, None]
    col = tl.arange(0, BLOCK)[None, :]
    in_row = col < cols
    mask = (row < rows - start_row) & in_row
    offset = row * cols + col
    value = tl.load(x + start + offset, mask=mask, other=0.0).to(tl.float32)
    value = tl.where(mask, value - (tl.sum(value, axis=1) / cols)[:, None], 0.0)
    value = tl.where(mask, value - (tl.sum(value, axis=1) / cols)[:, None], 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(value * value, axis=1) / cols + eps)
    gain = tl.load(weight + col, mask=in_row, other=0.0).to(tl.float32)
    shift = tl.load(bias + col, mask=in_row, other=0.0).to(tl.float32)
    result = value * scale[:, None] * gain + shift
    tl.store(y + start + offset, result.to(y.dtype.element_ty), mask=mask)


@triton.jit
def _looped(x, weight, bias, y, cols, eps, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * cols
    col = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, cols, BLOCK):
        mask = col < cols - first
        total += tl.load(x + start + first + col, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / cols
    rest = tl.zeros((BLOCK,), tl.float32)
    squares = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, cols, BLOCK):
        mask = col < cols - first
        value = tl.load(x + start + first + col, mask=mask, other=0.0).to(tl.float32)
        value = tl.where(mask, value - mean, 0.0)
        rest += value
        squares += value * value
    correction = tl.sum(rest, axis=0) / cols
    variance = tl.sum(squares, axis=0) / cols - correction * correction
    scale = 1.0 / tl.sqrt(variance + eps)
    for first in range(0, cols, BLOCK):
        mask = col < cols - first
        value = tl.load(x + start + first + col, mask=mask, other=0.0).to(tl.float32)
        gain = tl.load(weight + first + col, mask=mask, other=0.0).to(tl.float32)
        shift = tl.load(bias + first + col, mask=mask, other=0.0).to(tl.float32)
        result = (value - mean - correction) * scale * gain + shift
        tl.store(y + start + first + col, result.to(y.dtype.element_ty), mask=mask)


def layernorm(x, weight, bias, y, eps):
    rows, cols = x.shape
    if x.numel() == 0:
        return
    if cols > RESIDENT:
        _looped[(rows,)](x, weight, bias, y, cols, eps, BLOCK=LOOP_BLOCK, num_warps=16)
        return
    block = triton.next_power_of_2(cols)
    tile_rows = max(1, TILE // block)
    warps = max(1, min(16, tile_rows * block // (32 * PER_THREAD)))
    _resident[(triton.cdiv(rows, tile_rows),)](
        x, weight, bias, y, rows, cols, eps, ROWS=tile_rows, BLOCK=block, num_warps=warps
    )
