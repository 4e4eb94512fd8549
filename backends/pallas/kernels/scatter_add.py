"""y = x with src's rows added, without atomics: a program owns a tile of y in float32 registers,
looks through all of the index and adds the rows that are its own, one after the other."""

from functools import partial

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

ROWS = 16  # knob: 8 16 32
BLOCK_COLS = 512  # knob: 256 512 1024
CHUNK = 1024  # knob: 512 1024 2048
NUM_WARPS = 8  # knob: 4 8
NEVER = 2**31 - 1


def _kernel(x_ref, index_ref, src_ref, y_ref, *, rows, dim, n):
    tile_rows, block = y_ref.shape
    first, column = pl.program_id(0) * tile_rows, pl.program_id(1) * block
    row, place = jnp.arange(tile_rows), jnp.arange(CHUNK)
    in_cols = (column + jnp.arange(block) < dim)[None, :]
    mask = (first + row < rows)[:, None] & in_cols

    def scan(step, total):
        start = step * CHUNK
        there = place < n - start
        index = plt.load(index_ref.at[pl.ds(start, CHUNK)], mask=there, other=0)
        target = index.astype(jnp.int32) - first
        mine = there & (target >= 0) & (target < tile_rows)
        # Place and target in one number: the least that is above the last is the next of both.
        code = jnp.where(mine, place * tile_rows + target, NEVER)

        def add(_, carry):
            last, total = carry
            code_next = jnp.min(jnp.where(code > last, code, NEVER))
            source = src_ref.at[pl.ds(start + code_next // tile_rows, 1), pl.ds(column, block)]
            value = plt.load(source, mask=in_cols, other=0.0).astype(jnp.float32)
            hit = (row == code_next % tile_rows)[:, None]
            return code_next, total + jnp.where(hit, value, 0.0)

        count = jnp.sum(mine.astype(jnp.int32))
        return jax.lax.fori_loop(0, count, add, (jnp.int32(-1), total))[1]

    total = plt.load(x_ref, mask=mask, other=0.0).astype(jnp.float32)
    total = jax.lax.fori_loop(0, pl.cdiv(n, CHUNK), scan, total)
    plt.store(y_ref, total.astype(y_ref.dtype), mask=mask)


def scatter_add(x, index, src, *, interpret=False):
    (rows, dim), n = x.shape, index.size
    if x.size == 0:
        return jnp.empty_like(x)
    if n == 0:  # an empty array has no blocks: a row for nobody instead
        index, src, n = jnp.full((1,), -1, index.dtype), jnp.zeros((1, dim), src.dtype), 1
    block = min(BLOCK_COLS, pl.next_power_of_2(dim))
    tile = pl.BlockSpec((ROWS, block), lambda i, j: (i, j))
    return pl.pallas_call(
        partial(_kernel, rows=rows, dim=dim, n=n),
        # Rows come first: only the first axis of a GPU's grid may exceed 65535.
        grid=(pl.cdiv(rows, ROWS), pl.cdiv(dim, block)),
        in_specs=[
            tile,
            pl.BlockSpec(index.shape, lambda i, j: (0,)),
            pl.BlockSpec(src.shape, lambda i, j: (0, 0)),
        ],
        out_specs=tile,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        compiler_params=plt.CompilerParams(num_warps=NUM_WARPS),
        interpret=interpret,
    )(x, index, src)
