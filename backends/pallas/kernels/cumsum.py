"""Inclusive scan of each row in float32: block by block, carrying the sum of those before."""

from functools import partial

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

BLOCK_COLS = 2048  # knob: 512 1024 2048 4096
TILE = 2048  # knob: 1024 2048 4096
PER_THREAD = 16  # knob: 8 16 32


def _resident(x_ref, y_ref, *, rows, cols):
    tile_rows, block = x_ref.shape
    in_rows = pl.program_id(0) * tile_rows + jnp.arange(tile_rows) < rows
    mask = in_rows[:, None] & (jnp.arange(block) < cols)[None, :]
    value = plt.load(x_ref, mask=mask, other=0.0).astype(jnp.float32)
    plt.store(y_ref, jax.lax.cumsum(value, axis=1).astype(y_ref.dtype), mask=mask)


def _looped(x_ref, y_ref, *, cols):
    """One row: JAX 0.11.2's compiler crashes on a scan along a tile's second axis in a loop."""

    def scan(step, carry):
        mask = jnp.arange(BLOCK_COLS) < cols - step * BLOCK_COLS
        where = pl.ds(step * BLOCK_COLS, BLOCK_COLS)
        value = plt.load(x_ref.at[where], mask=mask, other=0.0).astype(jnp.float32)
        result = carry + jax.lax.cumsum(value, axis=0)
        plt.store(y_ref.at[where], result.astype(y_ref.dtype), mask=mask)
        return carry + jnp.sum(value)

    jax.lax.fori_loop(0, pl.cdiv(cols, BLOCK_COLS), scan, jnp.float32(0.0))


def cumsum(x, *, interpret=False):
    rows, cols = x.shape
    if x.size == 0:
        return jnp.empty_like(x)
    if cols > BLOCK_COLS:
        kernel, tile_rows, block = partial(_looped, cols=cols), 1, BLOCK_COLS
        tile = pl.BlockSpec((None, pl.cdiv(cols, block) * block), lambda i: (i, 0))
    else:
        block = pl.next_power_of_2(cols)
        tile_rows = max(1, TILE // block)
        kernel = partial(_resident, rows=rows, cols=cols)
        tile = pl.BlockSpec((tile_rows, block), lambda i: (i, 0))
    return pl.pallas_call(
        kernel,
        grid=(pl.cdiv(rows, tile_rows),),
        in_specs=[tile],
        out_specs=tile,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        compiler_params=plt.CompilerParams(
            num_warps=max(1, min(16, tile_rows * block // (32 * PER_THREAD)))
        ),
        interpret=interpret,
    )(x)
