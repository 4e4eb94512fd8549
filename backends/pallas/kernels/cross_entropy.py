"""log(sum(exp(row))) - row[target] of each row, in one pass of blocks with a running maximum."""

from functools import partial

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

BLOCK = 8192  # knob: 2048 4096 8192
TILE = 2048  # knob: 1024 2048 4096
PER_THREAD = 16  # knob: 8 16 32


def _kernel(logits_ref, target_ref, loss_ref, *, rows, classes, block):
    (tile_rows,) = loss_ref.shape
    first = pl.program_id(0) * tile_rows
    row = first + jnp.arange(tile_rows)
    in_rows = row < rows

    def step(index, carry):
        top, total = carry
        start = index * block
        mask = in_rows[:, None] & (jnp.arange(block) < classes - start)[None, :]
        part = logits_ref.at[pl.ds(first, tile_rows), pl.ds(start, block)]
        value = plt.load(part, mask=mask, other=-jnp.inf).astype(jnp.float32)
        higher = jnp.maximum(top, jnp.max(value, axis=1))
        # While all is -inf, -inf - -inf would make NaN of a row that may yet have a maximum.
        shift = jnp.where(higher == -jnp.inf, 0.0, higher)
        power = jnp.exp(value - shift[:, None])
        return higher, total * jnp.exp(top - shift) + jnp.sum(power, axis=1)

    start = jnp.full((tile_rows,), -jnp.inf), jnp.zeros((tile_rows,))
    top, total = jax.lax.fori_loop(0, pl.cdiv(classes, block), step, start)
    target = plt.load(target_ref, mask=in_rows, other=0).astype(jnp.int32)
    chosen = plt.load(logits_ref.at[row, target], mask=in_rows, other=0.0).astype(jnp.float32)
    # The large ones first: their difference is exact where they are close.
    loss = (top - chosen) + jnp.log(total)
    plt.store(loss_ref, loss.astype(loss_ref.dtype), mask=in_rows)


def cross_entropy(logits, target, *, interpret=False):
    rows, classes = logits.shape
    if rows == 0:
        return jnp.empty((0,), logits.dtype)
    block = min(BLOCK, pl.next_power_of_2(classes))
    tile_rows = max(1, TILE // block)
    vector = pl.BlockSpec((tile_rows,), lambda i: (i,))
    return pl.pallas_call(
        partial(_kernel, rows=rows, classes=classes, block=block),
        grid=(pl.cdiv(rows, tile_rows),),
        in_specs=[pl.BlockSpec(logits.shape, lambda i: (0, 0)), vector],
        out_specs=vector,
        out_shape=jax.ShapeDtypeStruct((rows,), logits.dtype),
        compiler_params=plt.CompilerParams(
            num_warps=max(1, min(16, tile_rows * block // (32 * PER_THREAD)))
        ),
        interpret=interpret,
    )(logits, target)
