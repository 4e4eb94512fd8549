"""y = x with src's rows added, without atomics: a program owns a tile of y in float32 registers,
looks through the index and adds the rows that are its own. A few of them one after the other; where
there are many, some places of the index at once, each held against all rows of the tile. The index
of few tiles is shared out, and what its parts add up to is added by a second kernel."""

from functools import partial

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

ROWS = 16  # knob: 8 16 32
# Of a few columns a tile has more rows, so that the index is read less often.
NARROW = 128  # knob: 64 128 256
BLOCK_COLS = 512  # knob: 256 512 1024
CHUNK = 1024  # knob: 512 1024 2048
# Elements of rows, places and columns that are looked at together.
TOGETHER = 16384  # knob: 8192 16384
PROGRAMS = 256  # knob: 128 256 512
NUM_WARPS = 8  # knob: 4 8
NEVER = 2**31 - 1


def _kernel(x_ref, index_ref, src_ref, y_ref, *, rows, dim, n, span, chunk, places):
    """Of the index ``[part * span, part * span + span)``; x belongs to the first part."""
    tile_rows, block = y_ref.shape
    first, column, part = pl.program_id(0) * tile_rows, pl.program_id(1) * block, pl.program_id(2)
    row = jnp.arange(tile_rows)
    in_cols = (column + jnp.arange(block) < dim)[None, :]
    mask = (first + row < rows)[:, None] & in_cols

    def targets(start, count):
        """Of ``count`` places the row in this tile, and whether it is in it."""
        there = jnp.arange(count) < n - start
        index = plt.load(index_ref.at[pl.ds(start, count)], mask=there, other=0)
        target = index.astype(jnp.int32) - first
        return target, there & (target >= 0) & (target < tile_rows)

    def sources(start, count, mask):
        source = src_ref.at[pl.ds(start, count), pl.ds(column, block)]
        return plt.load(source, mask=mask, other=0.0).astype(jnp.float32)

    def scan(step, total):
        start = part * span + step * chunk
        target, mine = targets(start, chunk)
        # Place and target in one number: the least that is above the last is the next of both.
        code = jnp.where(mine, jnp.arange(chunk) * tile_rows + target, NEVER)

        def add(_, carry):
            last, total = carry
            code_next = jnp.min(jnp.where(code > last, code, NEVER))
            value = sources(start + code_next // tile_rows, 1, in_cols)
            hit = (row == code_next % tile_rows)[:, None]
            return code_next, total + jnp.where(hit, value, 0.0)

        def add_together(step, total):
            begin = start + step * places
            target, mine = targets(begin, places)
            value = sources(begin, places, mine[:, None] & in_cols)
            hit = (row[:, None] == target[None, :])[:, :, None]
            return total + jnp.sum(jnp.where(hit, value[None], 0.0), axis=1)

        count, steps = jnp.sum(mine.astype(jnp.int32)), chunk // places
        # By products: a choice of two constants as a loop's bound does not lower.
        crowded = (count > steps).astype(jnp.int32)
        alone = count * (1 - crowded)
        total = jax.lax.fori_loop(0, alone, add, (jnp.int32(-1), total))[1]
        return jax.lax.fori_loop(0, steps * crowded, add_together, total)

    total = plt.load(x_ref, mask=mask & (part == 0), other=0.0).astype(jnp.float32)
    total = jax.lax.fori_loop(0, span // chunk, scan, total)
    plt.store(y_ref, total.astype(y_ref.dtype), mask=mask)


def _add_up(parts_ref, y_ref, *, rows, dim, parts):
    tile_rows, block = y_ref.shape
    in_rows = jnp.arange(tile_rows) < rows - pl.program_id(0) * tile_rows
    in_cols = jnp.arange(block) < dim - pl.program_id(1) * block
    mask = in_rows[:, None] & in_cols[None, :]

    def add(part, total):
        there = parts_ref.at[pl.ds(part, 1), pl.ds(0, tile_rows), pl.ds(0, block)]
        return total + plt.load(there, mask=mask[None], other=0.0)

    zero = jnp.zeros((1, tile_rows, block), jnp.float32)
    total = jax.lax.fori_loop(0, parts, add, zero)
    plt.store(y_ref, jnp.sum(total, axis=0).astype(y_ref.dtype), mask=mask)


def scatter_add(x, index, src, *, interpret=False):
    (rows, dim), n = x.shape, index.size
    if x.size == 0:
        return jnp.empty_like(x)
    if n == 0:  # an empty array has no blocks: a row for nobody instead
        index, src, n = jnp.full((1,), -1, index.dtype), jnp.zeros((1, dim), src.dtype), 1
    block = min(BLOCK_COLS, pl.next_power_of_2(dim))
    tile_rows = min(pl.next_power_of_2(rows), max(ROWS, NARROW // block))
    chunk = min(CHUNK, pl.next_power_of_2(n))
    places = max(1, min(chunk, TOGETHER // (tile_rows * block)))
    # Rows come first: only the first axis of a GPU's grid may exceed 65535.
    tiles = pl.cdiv(rows, tile_rows), pl.cdiv(dim, block)
    share = max(1, PROGRAMS // (tiles[0] * tiles[1]))
    span = pl.cdiv(pl.cdiv(n, share), chunk) * chunk
    parts = pl.cdiv(n, span)
    tile = pl.BlockSpec((tile_rows, block), lambda i, j, part: (i, j))
    sizes = {"rows": rows, "dim": dim}
    params = plt.CompilerParams(num_warps=NUM_WARPS)
    sums = pl.pallas_call(
        partial(_kernel, **sizes, n=n, span=span, chunk=chunk, places=places),
        grid=(*tiles, parts),
        in_specs=[
            tile,
            pl.BlockSpec(index.shape, lambda i, j, part: (0,)),
            pl.BlockSpec(src.shape, lambda i, j, part: (0, 0)),
        ],
        out_specs=pl.BlockSpec((None, tile_rows, block), lambda i, j, part: (part, i, j)),
        out_shape=jax.ShapeDtypeStruct((parts, *x.shape), x.dtype if parts == 1 else jnp.float32),
        compiler_params=params,
        interpret=interpret,
    )(x, index, src)
    if parts == 1:
        return sums.reshape(x.shape)
    return pl.pallas_call(
        partial(_add_up, **sizes, parts=parts),
        grid=tiles,
        in_specs=[pl.BlockSpec((parts, tile_rows, block), lambda i, j: (0, i, j))],
        out_specs=pl.BlockSpec((tile_rows, block), lambda i, j: (i, j)),
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        compiler_params=params,
        interpret=interpret,
    )(sums)
