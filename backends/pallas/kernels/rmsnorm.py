"""Root-mean-square normalisation of each row: held in registers when it fits, else two passes. Few
long rows are shared out: one program walking a row of millions leaves the rest of a device idle."""

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


def _resident(x_ref, weight_ref, y_ref, *, rows, cols, eps):
    tile_rows, block = x_ref.shape
    row = pl.program_id(0) * tile_rows + jnp.arange(tile_rows)
    in_row = jnp.arange(block) < cols
    mask = (row < rows)[:, None] & in_row[None, :]
    value = plt.load(x_ref, mask=mask, other=0.0).astype(jnp.float32)
    scale = 1.0 / jnp.sqrt(jnp.sum(value * value, axis=1) / cols + eps)
    gain = plt.load(weight_ref, mask=in_row, other=0.0).astype(jnp.float32)
    result = value * scale[:, None] * gain[None, :]
    plt.store(y_ref, result.astype(y_ref.dtype), mask=mask)


def _load(ref, start, block, cols):
    mask = jnp.arange(block) < cols - start
    return plt.load(ref.at[pl.ds(start, block)], mask=mask, other=0.0).astype(jnp.float32)


def _squares(x_ref, first, steps, block, cols):
    def accumulate(step, squares):
        value = _load(x_ref, first + step * block, block, cols)
        return squares + value * value

    return jnp.sum(jax.lax.fori_loop(0, steps, accumulate, jnp.zeros((block,), jnp.float32)))


def _write(x_ref, weight_ref, y_ref, scale, first, steps, block, cols):
    def write(step, carry):
        start = first + step * block
        result = _load(x_ref, start, block, cols) * scale * _load(weight_ref, start, block, cols)
        mask = jnp.arange(block) < cols - start
        plt.store(y_ref.at[pl.ds(start, block)], result.astype(y_ref.dtype), mask=mask)
        return carry

    jax.lax.fori_loop(0, steps, write, 0)


def _looped(x_ref, weight_ref, y_ref, *, cols, eps):
    blocks = pl.cdiv(cols, LOOP_BLOCK), LOOP_BLOCK, cols
    scale = 1.0 / jnp.sqrt(_squares(x_ref, 0, *blocks) / cols + eps)
    _write(x_ref, weight_ref, y_ref, scale, 0, *blocks)


def _part(x_ref, squares_ref, *, cols, span):
    blocks = span // PART_BLOCK, PART_BLOCK, cols
    plt.store(squares_ref, _squares(x_ref, pl.program_id(1) * span, *blocks)[None])


def _apply(x_ref, weight_ref, squares_ref, y_ref, *, cols, parts, span, eps):
    there = jnp.arange(squares_ref.size) < parts
    squares = jnp.sum(plt.load(squares_ref, mask=there, other=0.0))
    scale = 1.0 / jnp.sqrt(squares / cols + eps)
    blocks = span // PART_BLOCK, PART_BLOCK, cols
    _write(x_ref, weight_ref, y_ref, scale, pl.program_id(1) * span, *blocks)


def _in_parts(x, weight, eps, parts, interpret):
    rows, cols = x.shape
    span = pl.cdiv(pl.cdiv(cols, parts), PART_BLOCK) * PART_BLOCK
    parts = pl.cdiv(cols, span)
    row = pl.BlockSpec((None, parts * span), lambda i, part: (i, 0))
    options = {
        "grid": (rows, parts),
        "compiler_params": plt.CompilerParams(num_warps=PART_BLOCK // (32 * PER_THREAD)),
        "interpret": interpret,
    }
    squares = pl.pallas_call(
        partial(_part, cols=cols, span=span),
        in_specs=[row],
        out_specs=pl.BlockSpec((None, 1), lambda i, part: (i, part)),
        out_shape=jax.ShapeDtypeStruct((rows, parts), jnp.float32),
        **options,
    )(x)
    of_parts = pl.BlockSpec((None, pl.next_power_of_2(parts)), lambda i, part: (i, 0))
    return pl.pallas_call(
        partial(_apply, cols=cols, parts=parts, span=span, eps=eps),
        in_specs=[row, pl.BlockSpec((parts * span,), lambda i, part: (0,)), of_parts],
        out_specs=row,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        **options,
    )(x, weight, squares)


def rmsnorm(x, weight, *, eps, interpret=False):
    rows, cols = x.shape
    if x.size == 0:
        return jnp.empty_like(x)
    parts = min(PROGRAMS // rows, cols // PART_BLOCK)
    if cols > RESIDENT and parts > 1:
        return _in_parts(x, weight, eps, parts, interpret)
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
    return pl.pallas_call(
        kernel,
        grid=(pl.cdiv(rows, tile_rows),),
        in_specs=[tile, pl.BlockSpec((block,), lambda i: (0,))],
        out_specs=tile,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        compiler_params=plt.CompilerParams(num_warps=warps),
        interpret=interpret,
    )(x, weight)
