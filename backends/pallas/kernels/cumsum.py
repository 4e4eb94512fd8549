"""Inclusive scan of each row in float32: block by block, carrying the sum of those before."""

from functools import partial

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

BLOCK_COLS = 2048  # knob: 512 1024 2048 4096
TILE = 2048  # knob: 1024 2048 4096
PER_THREAD = 16  # knob: 8 16 32


def _kernel(x_ref, y_ref, *, rows, cols, block):
    tile_rows = x_ref.shape[0]
    in_rows = pl.program_id(0) * tile_rows + jnp.arange(tile_rows) < rows

    def scan(step, carry):
        mask = in_rows[:, None] & (jnp.arange(block) < cols - step * block)[None, :]
        where = pl.ds(step * block, block)
        value = plt.load(x_ref.at[:, where], mask=mask, other=0.0).astype(jnp.float32)
        result = carry[:, None] + jax.lax.cumsum(value, axis=1)
        plt.store(y_ref.at[:, where], result.astype(y_ref.dtype), mask=mask)
        return carry + jnp.sum(value, axis=1)

    jax.lax.fori_loop(0, pl.cdiv(cols, block), scan, jnp.zeros((tile_rows,), jnp.float32))


def cumsum(x, *, interpret=False):
    rows, cols = x.shape
    if x.size == 0:
        return jnp.empty_like(x)
    block = min(BLOCK_COLS, pl.next_power_of_2(cols))
    tile_rows = max(1, TILE // block)
    tile = pl.BlockSpec((tile_rows, pl.cdiv(cols, block) * block), lambda i: (i, 0))
    return pl.pallas_call(
        partial(_kernel, rows=rows, cols=cols, block=block),
        grid=(pl.cdiv(rows, tile_rows),),
        in_specs=[tile],
        out_specs=tile,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        compiler_params=plt.CompilerParams(
            num_warps=max(1, min(16, tile_rows * block // (32 * PER_THREAD)))
        ),
        interpret=interpret,
    )(x)
