"""Softmax of each row: held in registers when it fits, else two passes with a running maximum."""

from functools import partial

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

RESIDENT = 16384  # knob: 4096 8192 16384
LOOP_BLOCK = 8192  # knob: 2048 4096 8192
TILE = 2048  # knob: 1024 2048 4096
PER_THREAD = 16  # knob: 8 16 32


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


def _looped(x_ref, y_ref, *, cols):
    steps = pl.cdiv(cols, LOOP_BLOCK)

    def load(step):
        mask = jnp.arange(LOOP_BLOCK) < cols - step * LOOP_BLOCK
        part = x_ref.at[pl.ds(step * LOOP_BLOCK, LOOP_BLOCK)]
        return plt.load(part, mask=mask, other=-jnp.inf).astype(jnp.float32), mask

    def accumulate(step, carry):
        top, total = carry
        value, _ = load(step)
        higher = jnp.maximum(top, jnp.max(value))
        # While all is -inf, -inf - -inf would make NaN of a row that may yet have a maximum.
        shift = jnp.where(higher == -jnp.inf, 0.0, higher)
        return higher, total * jnp.exp(top - shift) + jnp.sum(jnp.exp(value - shift))

    start = (jnp.float32(-jnp.inf), jnp.float32(0.0))
    top, total = jax.lax.fori_loop(0, steps, accumulate, start)

    def write(step, carry):
        value, mask = load(step)
        result = jnp.exp(value - top) / total
        part = y_ref.at[pl.ds(step * LOOP_BLOCK, LOOP_BLOCK)]
        plt.store(part, result.astype(y_ref.dtype), mask=mask)
        return carry

    jax.lax.fori_loop(0, steps, write, 0)


def softmax(x, *, interpret=False):
    rows, cols = x.shape
    if x.size == 0:
        return jnp.empty_like(x)
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
