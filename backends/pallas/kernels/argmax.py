"""The first largest element of each row: each lane keeps its best, the lanes meet at the end. Few
long rows are shared out, and a second kernel finds the best of each row's parts."""

from functools import partial

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

BLOCK = 4096  # knob: 1024 2048 4096 8192
TILE = 2048  # knob: 1024 2048 4096
PER_THREAD = 16  # knob: 8 16 32
PROGRAMS = 1024  # knob: 512 1024 2048
LEAST_PART = 4096  # knob: 2048 4096 8192
LEAST = -(2**31)


def _order(value):
    """Integers that compare as the op wants the values to: one zero, and NaN above all."""
    bits = jax.lax.bitcast_convert_type(value.astype(jnp.float32), jnp.int32)
    order = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    # Of the zeros by their bits: where subnormals are flushed, they equal zero, too.
    order = jnp.where((bits & 0x7FFFFFFF) == 0, 0, order)
    return jnp.where(value != value, 0x7FFFFFFF, order)


def _argmax(x_ref, index_ref, *of_parts, rows, cols, span, block):
    """Of columns ``[part * span, part * span + span)``; ``of_parts`` gets what the best is like."""
    (tile_rows,) = index_ref.shape
    first = pl.program_id(0) * tile_rows
    begin = pl.program_id(1) * span
    in_rows = first + jnp.arange(tile_rows) < rows
    lane = jnp.arange(block)[None, :]

    def step(number, carry):
        best, at = carry
        start = begin + number * block
        mask = in_rows[:, None] & (lane < cols - start)
        part = x_ref.at[pl.ds(first, tile_rows), pl.ds(start, block)]
        value = plt.load(part, mask=mask, other=0.0).astype(jnp.float32)
        order = jnp.where(mask, _order(value), LEAST)
        better = order > best
        return jnp.where(better, order, best), jnp.where(better, lane + start, at)

    zero = jnp.zeros((tile_rows, block), jnp.int32)
    best, at = jax.lax.fori_loop(0, span // block, step, (zero + LEAST, zero))
    top = jnp.max(best, axis=1)
    index = jnp.min(jnp.where(best == top[:, None], at, cols), axis=1)
    plt.store(index_ref, index.astype(index_ref.dtype), mask=in_rows)
    for top_ref in of_parts:
        plt.store(top_ref, top, mask=in_rows)


def _best(at_ref, order_ref, index_ref, *, cols, parts):
    there = jnp.arange(at_ref.size) < parts
    order = plt.load(order_ref, mask=there, other=LEAST)
    at = plt.load(at_ref, mask=there, other=0)
    index = jnp.min(jnp.where(there & (order == jnp.max(order)), at, cols))
    plt.store(index_ref, index[None])


def _best_of_parts(at, order, cols, interpret):
    rows, parts = at.shape
    of_parts = pl.BlockSpec((None, pl.next_power_of_2(parts)), lambda i: (i, 0))
    return pl.pallas_call(
        partial(_best, cols=cols, parts=parts),
        grid=(rows,),
        in_specs=[of_parts, of_parts],
        out_specs=pl.BlockSpec((1,), lambda i: (i,)),
        out_shape=jax.ShapeDtypeStruct((rows,), jnp.int32),
        compiler_params=plt.CompilerParams(num_warps=4),
        interpret=interpret,
    )(at, order)


def argmax(x, *, interpret=False):
    rows, cols = x.shape
    if rows == 0:
        return jnp.empty((0,), jnp.int32)
    parts = max(1, min(PROGRAMS // rows, cols // LEAST_PART))
    block = min(BLOCK, pl.next_power_of_2(pl.cdiv(cols, parts)))
    span = pl.cdiv(pl.cdiv(cols, parts), block) * block
    parts = pl.cdiv(cols, span)
    tile_rows = max(1, TILE // block) if parts == 1 else 1
    of_part = pl.BlockSpec((tile_rows, None), lambda i, part: (i, part))
    each = jax.ShapeDtypeStruct((rows, parts), jnp.int32)
    outputs = 1 if parts == 1 else 2
    results = pl.pallas_call(
        partial(_argmax, rows=rows, cols=cols, span=span, block=block),
        grid=(pl.cdiv(rows, tile_rows), parts),
        in_specs=[pl.BlockSpec(x.shape, lambda i, part: (0, 0))],
        out_specs=[of_part] * outputs,
        out_shape=[each] * outputs,
        compiler_params=plt.CompilerParams(
            num_warps=max(1, min(16, tile_rows * block // (32 * PER_THREAD)))
        ),
        interpret=interpret,
    )(x)
    if parts == 1:
        return results[0].reshape(rows)
    return _best_of_parts(*results, cols, interpret)
