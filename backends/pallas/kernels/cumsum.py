"""Inclusive scan of each row in float32: block by block, carrying the sum of those before.

Few long rows are shared out: a first kernel sums their parts, and each part's scan begins with the
sum of those before it, for one more reading of the row.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

BLOCK_COLS = 2048  # knob: 512 1024 2048 4096
TILE = 2048  # knob: 1024 2048 4096
PER_THREAD = 16  # knob: 8 16 32
PROGRAMS = 512  # knob: 256 512 1024
LEAST_PART = 4096  # knob: 4096 8192 16384


def _resident(x_ref, y_ref, *, rows, cols):
    tile_rows, block = x_ref.shape
    in_rows = pl.program_id(0) * tile_rows + jnp.arange(tile_rows) < rows
    mask = in_rows[:, None] & (jnp.arange(block) < cols)[None, :]
    value = plt.load(x_ref, mask=mask, other=0.0).astype(jnp.float32)
    plt.store(y_ref, jax.lax.cumsum(value, axis=1).astype(y_ref.dtype), mask=mask)


def _part(x_ref, sum_ref, *, cols, span):
    first = pl.program_id(1) * span

    def add(step, total):
        start = first + step * BLOCK_COLS
        mask = jnp.arange(BLOCK_COLS) < cols - start
        value = plt.load(x_ref.at[pl.ds(start, BLOCK_COLS)], mask=mask, other=0.0)
        return total + value.astype(jnp.float32)

    zero = jnp.zeros((BLOCK_COLS,), jnp.float32)
    total = jax.lax.fori_loop(0, span // BLOCK_COLS, add, zero)
    plt.store(sum_ref, jnp.sum(total)[None])


def _looped(x_ref, sums_ref, y_ref, *, cols, span):
    """A part of a row: JAX 0.11.2's compiler crashes on a scan along a tile's second axis in a
    loop."""
    part = pl.program_id(1)
    before = plt.load(sums_ref, mask=jnp.arange(sums_ref.size) < part, other=0.0)
    before = jnp.sum(before.astype(jnp.float32))

    def scan(step, carry):
        start = part * span + step * BLOCK_COLS
        mask = jnp.arange(BLOCK_COLS) < cols - start
        where = pl.ds(start, BLOCK_COLS)
        value = plt.load(x_ref.at[where], mask=mask, other=0.0).astype(jnp.float32)
        result = carry + jax.lax.cumsum(value, axis=0)
        plt.store(y_ref.at[where], result.astype(y_ref.dtype), mask=mask)
        return carry + jnp.sum(value)

    jax.lax.fori_loop(0, span // BLOCK_COLS, scan, before)


def _long(x, interpret):
    rows, cols = x.shape
    parts = max(1, min(PROGRAMS // rows, cols // LEAST_PART))
    span = pl.cdiv(pl.cdiv(cols, parts), BLOCK_COLS) * BLOCK_COLS
    parts = pl.cdiv(cols, span)
    grid, warps = (rows, parts), max(1, min(16, BLOCK_COLS // (32 * PER_THREAD)))
    row = pl.BlockSpec((None, parts * span), lambda i, part: (i, 0))
    sums = x  # of which nothing is read where a row is one part
    if parts > 1:
        sums = pl.pallas_call(
            partial(_part, cols=cols, span=span),
            grid=grid,
            in_specs=[row],
            out_specs=pl.BlockSpec((None, 1), lambda i, part: (i, part)),
            out_shape=jax.ShapeDtypeStruct(grid, jnp.float32),
            compiler_params=plt.CompilerParams(num_warps=warps),
            interpret=interpret,
        )(x)
    all_parts = pl.BlockSpec((None, pl.next_power_of_2(parts)), lambda i, part: (i, 0))
    return pl.pallas_call(
        partial(_looped, cols=cols, span=span),
        grid=grid,
        in_specs=[row, all_parts],
        out_specs=row,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        compiler_params=plt.CompilerParams(num_warps=warps),
        interpret=interpret,
    )(x, sums)


def cumsum(x, *, interpret=False):
    rows, cols = x.shape
    if x.size == 0:
        return jnp.empty_like(x)
    if cols > BLOCK_COLS:
        return _long(x, interpret)
    block = pl.next_power_of_2(cols)
    tile_rows = max(1, TILE // block)
    tile = pl.BlockSpec((tile_rows, block), lambda i: (i, 0))
    return pl.pallas_call(
        partial(_resident, rows=rows, cols=cols),
        grid=(pl.cdiv(rows, tile_rows),),
        in_specs=[tile],
        out_specs=tile,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        compiler_params=plt.CompilerParams(
            num_warps=max(1, min(16, tile_rows * block // (32 * PER_THREAD)))
        ),
        interpret=interpret,
    )(x)
