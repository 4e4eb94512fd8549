"""Layer normalisation of each row: held in registers when it fits, else three passes. Few long rows
are shared out, and their parts' moments are put together by all who write a part.

The mean is taken twice, the second time of what is left after subtracting the first: where the
mean is far larger than the deviation, its rounding error would otherwise be the result's.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

RESIDENT = 16384  # knob: 4096 8192 16384
LOOP_BLOCK = 8192  # knob: 2048 4096 8192
TILE = 2048  # knob: 1024 2048 4096
PER_THREAD = 16  # knob: 8 16 32
PROGRAMS = 512  # knob: 256 512 1024
PART_BLOCK = 2048  # knob: 1024 2048 4096


def _resident(x_ref, weight_ref, bias_ref, y_ref, *, rows, cols, eps):
    tile_rows, block = x_ref.shape
    row = pl.program_id(0) * tile_rows + jnp.arange(tile_rows)
    in_row = jnp.arange(block) < cols
    mask = (row < rows)[:, None] & in_row[None, :]
    value = plt.load(x_ref, mask=mask, other=0.0).astype(jnp.float32)
    value = jnp.where(mask, value - (jnp.sum(value, axis=1) / cols)[:, None], 0.0)
    value = jnp.where(mask, value - (jnp.sum(value, axis=1) / cols)[:, None], 0.0)
    scale = 1.0 / jnp.sqrt(jnp.sum(value * value, axis=1) / cols + eps)
    gain = plt.load(weight_ref, mask=in_row, other=0.0).astype(jnp.float32)
    shift = plt.load(bias_ref, mask=in_row, other=0.0).astype(jnp.float32)
    result = value * scale[:, None] * gain[None, :] + shift[None, :]
    plt.store(y_ref, result.astype(y_ref.dtype), mask=mask)


def _load(ref, start, block, cols):
    mask = jnp.arange(block) < cols - start
    return plt.load(ref.at[pl.ds(start, block)], mask=mask, other=0.0).astype(jnp.float32)


def _moments(x_ref, first, count, steps, block, cols):
    """The mean, what rounding left of it, and the sum of squared deviations from both."""
    zero = jnp.zeros((block,), jnp.float32)

    def add(step, total):
        return total + _load(x_ref, first + step * block, block, cols)

    mean = jnp.sum(jax.lax.fori_loop(0, steps, add, zero)) / count

    def deviate(step, carry):
        rest, squares = carry
        start = first + step * block
        value = _load(x_ref, start, block, cols) - mean
        value = jnp.where(jnp.arange(block) < cols - start, value, 0.0)
        return rest + value, squares + value * value

    rest, squares = jax.lax.fori_loop(0, steps, deviate, (zero, zero))
    rest = jnp.sum(rest) / count
    return mean, rest, jnp.sum(squares) - count * rest * rest


def _write(x_ref, weight_ref, bias_ref, y_ref, mean, rest, scale, first, steps, block, cols):
    def write(step, carry):
        start = first + step * block
        value = (_load(x_ref, start, block, cols) - mean - rest) * scale
        gain, shift = _load(weight_ref, start, block, cols), _load(bias_ref, start, block, cols)
        result = (value * gain + shift).astype(y_ref.dtype)
        mask = jnp.arange(block) < cols - start
        plt.store(y_ref.at[pl.ds(start, block)], result, mask=mask)
        return carry

    jax.lax.fori_loop(0, steps, write, 0)


def _looped(x_ref, weight_ref, bias_ref, y_ref, *, cols, eps):
    blocks = pl.cdiv(cols, LOOP_BLOCK), LOOP_BLOCK, cols
    mean, rest, squares = _moments(x_ref, 0, cols, *blocks)
    scale = 1.0 / jnp.sqrt(squares / cols + eps)
    _write(x_ref, weight_ref, bias_ref, y_ref, mean, rest, scale, 0, *blocks)


def _part(x_ref, mean_ref, rest_ref, squares_ref, *, cols, span):
    first = pl.program_id(1) * span
    count = jnp.minimum(cols - first, span).astype(jnp.float32)
    moments = _moments(x_ref, first, count, span // PART_BLOCK, PART_BLOCK, cols)
    for ref, moment in zip((mean_ref, rest_ref, squares_ref), moments, strict=True):
        plt.store(ref, moment[None])


def _apply(
    x_ref, weight_ref, bias_ref, mean_ref, rest_ref, squares_ref, y_ref, *, cols, parts, span, eps
):
    """By Chan's formula, of means as seen from the first part's."""
    part = jnp.arange(mean_ref.size)
    count = jnp.clip(cols - part * span, 0, span).astype(jnp.float32)

    def load(ref):
        return plt.load(ref, mask=part < parts, other=0.0)

    mean_of = load(mean_ref)
    mean = jnp.sum(jnp.where(part == 0, mean_of, 0.0))
    off = jnp.where(part < parts, mean_of - mean + load(rest_ref), 0.0)
    rest = jnp.sum(count * off) / cols
    squares = jnp.sum(load(squares_ref) + count * (off - rest) * (off - rest))
    scale = 1.0 / jnp.sqrt(squares / cols + eps)
    blocks = span // PART_BLOCK, PART_BLOCK, cols
    first = pl.program_id(1) * span
    _write(x_ref, weight_ref, bias_ref, y_ref, mean, rest, scale, first, *blocks)


def _in_parts(x, weight, bias, eps, parts, interpret):
    rows, cols = x.shape
    span = pl.cdiv(pl.cdiv(cols, parts), PART_BLOCK) * PART_BLOCK
    parts = pl.cdiv(cols, span)
    row = pl.BlockSpec((None, parts * span), lambda i, part: (i, 0))
    vector = pl.BlockSpec((parts * span,), lambda i, part: (0,))
    options = {
        "grid": (rows, parts),
        "compiler_params": plt.CompilerParams(num_warps=PART_BLOCK // (32 * PER_THREAD)),
        "interpret": interpret,
    }
    moments = pl.pallas_call(
        partial(_part, cols=cols, span=span),
        in_specs=[row],
        out_specs=[pl.BlockSpec((None, 1), lambda i, part: (i, part))] * 3,
        out_shape=[jax.ShapeDtypeStruct((rows, parts), jnp.float32)] * 3,
        **options,
    )(x)
    of_parts = pl.BlockSpec((None, pl.next_power_of_2(parts)), lambda i, part: (i, 0))
    return pl.pallas_call(
        partial(_apply, cols=cols, parts=parts, span=span, eps=eps),
        in_specs=[row, vector, vector, of_parts, of_parts, of_parts],
        out_specs=row,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        **options,
    )(x, weight, bias, *moments)


def layernorm(x, weight, bias, *, eps, interpret=False):
    rows, cols = x.shape
    if x.size == 0:
        return jnp.empty_like(x)
    parts = min(PROGRAMS // rows, cols // PART_BLOCK)
    if cols > RESIDENT and parts > 1:
        return _in_parts(x, weight, bias, eps, parts, interpret)
    if cols > RESIDENT:
        kernel, tile_rows, warps = partial(_looped, cols=cols, eps=eps), 1, 16
        block = pl.cdiv(cols, LOOP_BLOCK) * LOOP_BLOCK
        tile = pl.BlockSpec((None, block), lambda i: (i, 0))
    else:
        block = pl.next_power_of_2(cols)
        tile_rows = max(1, TILE // block)
        kernel = partial(_resident, rows=rows, cols=cols, eps=eps)
        warps = max(1, min(16, tile_rows * block // (32 * PER_THREAD)))
        tile = pl.BlockSpec((tile_rows, block), lambda i: (i, 0))
    vector = pl.BlockSpec((block,), lambda i: (0,))
    return pl.pallas_call(
        kernel,
        grid=(pl.cdiv(rows, tile_rows),),
        in_specs=[tile, vector, vector],
        out_specs=tile,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        compiler_params=plt.CompilerParams(num_warps=warps),
        interpret=interpret,
    )(x, weight, bias)
