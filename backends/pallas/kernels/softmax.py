"""Softmax of each row: held in registers when it fits, else two passes with a running maximum. Few
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


def _resident(x_ref, y_ref, *, rows, cols):
    tile_rows, block = x_ref.shape
    row = pl.program_id(0) * tile_rows + jnp.arange(tile_rows)
    col = jnp.arange(block)
    mask = (row < rows)[:, None] & (col < cols)[None, :]
    value = plt.load(x_ref, mask=mask, other=0.0).astype(jnp.float32)
    value = jnp.where((col < cols)[None, :], value, -jnp.inf)
    power = jnp.exp(value - jnp.max(value, axis=1)[:, None])
    result = power / jnp.sum(power, axis=1)[:, None]
    plt.store(y_ref, result.astype(y_ref.dtype), mask=mask)


def _load(x_ref, start, block, cols):
    mask = jnp.arange(block) < cols - start
    value = plt.load(x_ref.at[pl.ds(start, block)], mask=mask, other=-jnp.inf)
    return value.astype(jnp.float32), mask


def _powers(x_ref, first, steps, block, cols):
    """The maximum, and the sum of powers over that."""

    def accumulate(step, carry):
        top, total = carry
        value, _ = _load(x_ref, first + step * block, block, cols)
        higher = jnp.maximum(top, jnp.max(value))
        # While all is -inf, -inf - -inf would make NaN of a row that may yet have a maximum.
        shift = jnp.where(higher == -jnp.inf, 0.0, higher)
        return higher, total * jnp.exp(top - shift) + jnp.sum(jnp.exp(value - shift))

    start = (jnp.float32(-jnp.inf), jnp.float32(0.0))
    return jax.lax.fori_loop(0, steps, accumulate, start)


def _write(x_ref, y_ref, top, total, first, steps, block, cols):
    def write(step, carry):
        start = first + step * block
        value, mask = _load(x_ref, start, block, cols)
        result = jnp.exp(value - top) / total
        plt.store(y_ref.at[pl.ds(start, block)], result.astype(y_ref.dtype), mask=mask)
        return carry

    jax.lax.fori_loop(0, steps, write, 0)


def _looped(x_ref, y_ref, *, cols):
    blocks = pl.cdiv(cols, LOOP_BLOCK), LOOP_BLOCK, cols
    _write(x_ref, y_ref, *_powers(x_ref, 0, *blocks), 0, *blocks)


def _part(x_ref, top_ref, total_ref, *, cols, span):
    blocks = span // PART_BLOCK, PART_BLOCK, cols
    top, total = _powers(x_ref, pl.program_id(1) * span, *blocks)
    plt.store(top_ref, top[None])
    plt.store(total_ref, total[None])


def _apply(x_ref, top_ref, total_ref, y_ref, *, cols, parts, span):
    there = jnp.arange(top_ref.size) < parts
    top_of = plt.load(top_ref, mask=there, other=-jnp.inf)
    top = jnp.max(top_of)
    total = jnp.sum(plt.load(total_ref, mask=there, other=0.0) * jnp.exp(top_of - top))
    blocks = span // PART_BLOCK, PART_BLOCK, cols
    _write(x_ref, y_ref, top, total, pl.program_id(1) * span, *blocks)


def _in_parts(x, parts, interpret):
    rows, cols = x.shape
    span = pl.cdiv(pl.cdiv(cols, parts), PART_BLOCK) * PART_BLOCK
    parts = pl.cdiv(cols, span)
    row = pl.BlockSpec((None, parts * span), lambda i, part: (i, 0))
    of_part = pl.BlockSpec((None, 1), lambda i, part: (i, part))
    of_parts = pl.BlockSpec((None, pl.next_power_of_2(parts)), lambda i, part: (i, 0))
    each = jax.ShapeDtypeStruct((rows, parts), jnp.float32)
    options = {
        "grid": (rows, parts),
        "compiler_params": plt.CompilerParams(num_warps=PART_BLOCK // (32 * PER_THREAD)),
        "interpret": interpret,
    }
    tops, totals = pl.pallas_call(
        partial(_part, cols=cols, span=span),
        in_specs=[row],
        out_specs=(of_part, of_part),
        out_shape=(each, each),
        **options,
    )(x)
    return pl.pallas_call(
        partial(_apply, cols=cols, parts=parts, span=span),
        in_specs=[row, of_parts, of_parts],
        out_specs=row,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        **options,
    )(x, tops, totals)


def softmax(x, *, interpret=False):
    rows, cols = x.shape
    if x.size == 0:
        return jnp.empty_like(x)
    parts = min(PROGRAMS // rows, cols // PART_BLOCK)
    if cols > RESIDENT and parts > 1:
        return _in_parts(x, parts, interpret)
    if cols > RESIDENT:
        kernel, tile_rows, warps = partial(_looped, cols=cols), 1, 16
        block = pl.cdiv(cols, LOOP_BLOCK) * LOOP_BLOCK
        tile = pl.BlockSpec((None, block), lambda i: (i, 0))
    else:
        block = pl.next_power_of_2(cols)
        tile_rows = max(1, TILE // block)
        kernel = partial(_resident, rows=rows, cols=cols)
        warps = max(1, min(16, tile_rows * block // (32 * PER_THREAD)))
        tile = pl.BlockSpec((tile_rows, block), lambda i: (i, 0))
    return pl.pallas_call(
        kernel,
        grid=(pl.cdiv(rows, tile_rows),),
        in_specs=[tile],
        out_specs=tile,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        compiler_params=plt.CompilerParams(num_warps=warps),
        interpret=interpret,
    )(x)
