"""Gradients of a layer normalisation. Programs go from tile to tile of rows, which they
hold in registers, as they do what they add up of the gradients of weight and bias; a second kernel
adds that. Of rows that do not fit the columns are added by a kernel of their own."""

import torch
import triton
import triton.language as tl

RESIDENT = 8192  # knob: 2048 4096 8192
LOOP_BLOCK = 4096  # knob: 2048 4096 8192
TILE = 1024  # knob: 512 1024 2048
PER_THREAD = 16  # knob: 8 16 32
PROGRAMS = 264  # knob: 132 264 528
STRIPS = 32  # of rows, whose columns programs add where rows are wide
COLUMNS = 128


@triton.jit
def _resident(
    grad,
    x,
    weight,
    grad_x,
    parts,
    rows,
    cols: tl.constexpr,
    eps,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Leaves a row of parts of each of both."""
    col = tl.arange(0, BLOCK)[None, :]
    inside = col < cols
    gain = tl.load(weight + col, mask=inside, other=0.0).to(tl.float32)
    of_weight = tl.zeros((ROWS, BLOCK), tl.float32)
    of_bias = tl.zeros((ROWS, BLOCK), tl.float32)
    for start_row in range(tl.program_id(0) * ROWS, rows, tl.num_programs(0) * ROWS):
        start = tl.cast(start_row, tl.int64) * cols
        row = tl.arange(0, ROWS)[:, None]
        mask = (row < rows - start_row) & inside
        offset = row * cols + col
        value = tl.load(x + start + offset, mask=mask, other=0.0).to(tl.float32)
        g = tl.load(grad + start + offset, mask=mask, other=0.0).to(tl.float32)
        mean = tl.sum(value, axis=1) / cols
        value = tl.where(mask, value - mean[:, None], 0.0)
        scale = 1.0 / tl.sqrt(tl.sum(value * value, axis=1) / cols + eps)
        z = value * scale[:, None]
        own = g * gain
        along = tl.sum(own * z, axis=1) / cols
        middle = tl.sum(own, axis=1) / cols
        result = scale[:, None] * (own - middle[:, None] - z * along[:, None])
        tl.store(grad_x + start + offset, result.to(grad_x.dtype.element_ty), mask=mask)
        of_weight += g * z
        of_bias += g
    place = tl.program_id(0).to(tl.int64) * cols + tl.arange(0, BLOCK)
    inside_row = tl.arange(0, BLOCK) < cols
    tl.store(parts + place, tl.sum(of_weight, axis=0), mask=inside_row)
    behind = tl.num_programs(0).to(tl.int64) * cols
    tl.store(parts + behind + place, tl.sum(of_bias, axis=0), mask=inside_row)


@triton.jit
def _looped(grad, x, weight, grad_x, stats, rows, cols, eps, BLOCK: tl.constexpr):
    """Leaves the scale and the mean of the row."""
    row = tl.program_id(0)
    start = row.to(tl.int64) * cols
    col = tl.arange(0, BLOCK)
    sums = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, cols, BLOCK):
        value = tl.load(x + start + first + col, mask=col < cols - first, other=0.0)
        sums += value.to(tl.float32)
    mean = tl.sum(sums, axis=0) / cols
    squares = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, cols, BLOCK):
        value = tl.load(x + start + first + col, mask=col < cols - first, other=0.0)
        value = value.to(tl.float32) - mean
        squares += tl.where(col < cols - first, value * value, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(squares, axis=0) / cols + eps)
    along = tl.zeros((BLOCK,), tl.float32)
    inner = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, cols, BLOCK):
        mask = col < cols - first
        value = tl.load(x + start + first + col, mask=mask, other=0.0).to(tl.float32) - mean
        own = tl.load(grad + start + first + col, mask=mask, other=0.0).to(tl.float32)
        own *= tl.load(weight + first + col, mask=mask, other=0.0).to(tl.float32)
        along += own * value * scale
        inner += own
    of_z = tl.sum(along, axis=0) / cols
    middle = tl.sum(inner, axis=0) / cols
    for first in range(0, cols, BLOCK):
        mask = col < cols - first
        value = tl.load(x + start + first + col, mask=mask, other=0.0).to(tl.float32) - mean
        own = tl.load(grad + start + first + col, mask=mask, other=0.0).to(tl.float32)
        own *= tl.load(weight + first + col, mask=mask, other=0.0).to(tl.float32)
        result = scale * (own - middle - value * scale * of_z)
        tl.store(grad_x + start + first + col, result.to(grad_x.dtype.element_ty), mask=mask)
    tl.store(stats + row, scale)
    tl.store(stats + rows + row, mean)


@triton.jit
def _columns(grad, x, stats, parts, rows, cols, BLOCK: tl.constexpr):
    """Of every so many rows."""
    col = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = col < cols
    of_weight = tl.zeros((BLOCK,), tl.float32)
    of_bias = tl.zeros((BLOCK,), tl.float32)
    for row in range(tl.program_id(1), rows, tl.num_programs(1)):
        start = tl.cast(row, tl.int64) * cols
        value = tl.load(x + start + col, mask=inside, other=0.0).to(tl.float32)
        g = tl.load(grad + start + col, mask=inside, other=0.0).to(tl.float32)
        of_weight += g * (value - tl.load(stats + rows + row)) * tl.load(stats + row)
        of_bias += g
    place = tl.program_id(1).to(tl.int64) * cols + col
    tl.store(parts + place, of_weight, mask=inside)
    behind = tl.num_programs(1).to(tl.int64) * cols
    tl.store(parts + behind + place, of_bias, mask=inside)


@triton.jit
def _add(parts, to, cols, many, BLOCK: tl.constexpr, TALL: tl.constexpr):
    col = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[None, :]
    total = tl.zeros((TALL, BLOCK), tl.float32)
    for first in range(0, many, TALL):
        part = first + tl.arange(0, TALL)[:, None]
        mask = (part < many) & (col < cols)
        total += tl.load(parts + part.to(tl.int64) * cols + col, mask=mask, other=0.0)
    result = tl.sum(total, axis=0)[None, :]
    tl.store(to + col, result.to(to.dtype.element_ty), mask=col < cols)


def layernorm_backward(grad, x, weight, grad_x, grad_weight, grad_bias, eps):
    rows, cols = x.shape
    if cols == 0:
        return
    options = {"dtype": torch.float32, "device": x.device}
    if cols <= RESIDENT:
        block = triton.next_power_of_2(cols)
        tile_rows = max(1, TILE // block)
        many = min(PROGRAMS, triton.cdiv(rows, tile_rows))
        parts = torch.empty((2, many, cols), **options)
        warps = max(1, min(16, tile_rows * block // (32 * PER_THREAD)))
        if rows:
            _resident[(many,)](
                grad,
                x,
                weight,
                grad_x,
                parts,
                rows,
                cols,
                eps,
                ROWS=tile_rows,
                BLOCK=block,
                num_warps=warps,
            )
    else:
        many = min(STRIPS, rows)
        stats, parts = (
            torch.empty(
                (
                    2,
                    rows,
                ),
                **options,
            ),
            torch.empty((2, many, cols), **options),
        )
        if rows:
            _looped[(rows,)](
                grad, x, weight, grad_x, stats, rows, cols, eps, BLOCK=LOOP_BLOCK, num_warps=8
            )
            grid = (triton.cdiv(cols, COLUMNS), many)
            _columns[grid](grad, x, stats, parts, rows, cols, BLOCK=COLUMNS, num_warps=4)
    grid = (triton.cdiv(cols, 32),)
    _add[grid](parts[0], grad_weight, cols, many, BLOCK=32, TALL=32, num_warps=4)
    _add[grid](parts[1], grad_bias, cols, many, BLOCK=32, TALL=32, num_warps=4)
