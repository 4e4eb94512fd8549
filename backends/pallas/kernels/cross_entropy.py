"""log(sum(exp(row))) - row[target] of each row, in one pass of blocks with a running maximum. Few
long rows are shared out, and a second kernel puts the parts together."""

from functools import partial

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

BLOCK = 8192  # knob: 2048 4096 8192
TILE = 2048  # knob: 1024 2048 4096
PER_THREAD = 16  # knob: 8 16 32
PROGRAMS = 512  # knob: 256 512 1024
PART_BLOCK = 2048  # knob: 1024 2048 4096
LONG = 16384


def _powers(logits_ref, in_rows, first, steps, block, classes):
    """Of a tile of rows: their maxima, and the sums of powers over these."""
    (tile_rows,) = in_rows.shape
    rows = pl.ds(pl.program_id(0) * tile_rows, tile_rows)

    def step(index, carry):
        top, total = carry
        start = first + index * block
        mask = in_rows[:, None] & (jnp.arange(block) < classes - start)[None, :]
        part = logits_ref.at[rows, pl.ds(start, block)]
        value = plt.load(part, mask=mask, other=-jnp.inf).astype(jnp.float32)
        higher = jnp.maximum(top, jnp.max(value, axis=1))
        # While all is -inf, -inf - -inf would make NaN of a row that may yet have a maximum.
        shift = jnp.where(higher == -jnp.inf, 0.0, higher)
        power = jnp.exp(value - shift[:, None])
        return higher, total * jnp.exp(top - shift) + jnp.sum(power, axis=1)

    start = jnp.full((tile_rows,), -jnp.inf), jnp.zeros((tile_rows,))
    return jax.lax.fori_loop(0, steps, step, start)


def _finish(logits_ref, target_ref, loss_ref, top, total, rows):
    (tile_rows,) = loss_ref.shape
    row = pl.program_id(0) * tile_rows + jnp.arange(tile_rows)
    in_rows = row < rows
    target = plt.load(target_ref, mask=in_rows, other=0).astype(jnp.int32)
    chosen = plt.load(logits_ref.at[row, target], mask=in_rows, other=0.0).astype(jnp.float32)
    # The large ones first: their difference is exact where they are close.
    loss = (top - chosen) + jnp.log(total)
    plt.store(loss_ref, loss.astype(loss_ref.dtype), mask=in_rows)


def _whole(logits_ref, target_ref, loss_ref, *, rows, classes, block):
    (tile_rows,) = loss_ref.shape
    in_rows = pl.program_id(0) * tile_rows + jnp.arange(tile_rows) < rows
    top, total = _powers(logits_ref, in_rows, 0, pl.cdiv(classes, block), block, classes)
    _finish(logits_ref, target_ref, loss_ref, top, total, rows)


def _part(logits_ref, top_ref, total_ref, *, classes, span):
    first, every = pl.program_id(1) * span, jnp.full((1,), True)
    top, total = _powers(logits_ref, every, first, span // PART_BLOCK, PART_BLOCK, classes)
    plt.store(top_ref, top)
    plt.store(total_ref, total)


def _combine(logits_ref, target_ref, top_ref, total_ref, loss_ref, *, rows, parts):
    there = (jnp.arange(top_ref.shape[1]) < parts)[None, :]
    top_of = plt.load(top_ref, mask=there, other=-jnp.inf)
    total_of = plt.load(total_ref, mask=there, other=0.0)
    top = jnp.max(top_of, axis=1)
    total = jnp.sum(total_of * jnp.exp(top_of - top[:, None]), axis=1)
    _finish(logits_ref, target_ref, loss_ref, top, total, rows)


def _in_parts(logits, target, parts, interpret):
    rows, classes = logits.shape
    span = pl.cdiv(pl.cdiv(classes, parts), PART_BLOCK) * PART_BLOCK
    parts = pl.cdiv(classes, span)
    of_part = pl.BlockSpec((1, None), lambda i, part: (i, part))
    each = jax.ShapeDtypeStruct((rows, parts), jnp.float32)
    tops, totals = pl.pallas_call(
        partial(_part, classes=classes, span=span),
        grid=(rows, parts),
        in_specs=[pl.BlockSpec(logits.shape, lambda i, part: (0, 0))],
        out_specs=(of_part, of_part),
        out_shape=(each, each),
        compiler_params=plt.CompilerParams(num_warps=PART_BLOCK // (32 * PER_THREAD)),
        interpret=interpret,
    )(logits)
    of_parts = pl.BlockSpec((1, pl.next_power_of_2(parts)), lambda i: (i, 0))
    of_row = pl.BlockSpec((1,), lambda i: (i,))
    return pl.pallas_call(
        partial(_combine, rows=rows, parts=parts),
        grid=(rows,),
        in_specs=[pl.BlockSpec(logits.shape, lambda i: (0, 0)), of_row, of_parts, of_parts],
        out_specs=of_row,
        out_shape=jax.ShapeDtypeStruct((rows,), logits.dtype),
        compiler_params=plt.CompilerParams(num_warps=1),
        interpret=interpret,
    )(logits, target, tops, totals)


def cross_entropy(logits, target, *, interpret=False):
    rows, classes = logits.shape
    if rows == 0:
        return jnp.empty((0,), logits.dtype)
    parts = min(PROGRAMS // rows, classes // PART_BLOCK)
    if classes > LONG and parts > 1:
        return _in_parts(logits, target, parts, interpret)
    block = min(BLOCK, pl.next_power_of_2(classes))
    tile_rows = max(1, TILE // block)
    vector = pl.BlockSpec((tile_rows,), lambda i: (i,))
    return pl.pallas_call(
        partial(_whole, rows=rows, classes=classes, block=block),
        grid=(pl.cdiv(rows, tile_rows),),
        in_specs=[pl.BlockSpec(logits.shape, lambda i: (0, 0)), vector],
        out_specs=vector,
        out_shape=jax.ShapeDtypeStruct((rows,), logits.dtype),
        compiler_params=plt.CompilerParams(
            num_warps=max(1, min(16, tile_rows * block // (32 * PER_THREAD)))
        ),
        interpret=interpret,
    )(logits, target)
