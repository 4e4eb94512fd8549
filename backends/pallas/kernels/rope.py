"""Turns the two halves of each head by its token's angles; heads of a token share one load."""

from functools import partial

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

TILE = 2048  # knob: 1024 2048 4096
BLOCK_COLS = 256  # knob: 64 128 256 512
NUM_WARPS = 4  # knob: 4 8


def _kernel(x_ref, cos_ref, sin_ref, y_ref, *, rows, heads, half, block):
    """Rows are the heads of all tokens, one after the other; a row is its two halves."""
    tile_rows = TILE // block
    start, column = pl.program_id(0) * tile_rows, pl.program_id(1) * block
    row, col = start + jnp.arange(tile_rows), column + jnp.arange(block)
    mask = (row < rows)[:, None] & (col < half)[None, :]
    angle = (row // heads)[:, None], col[None, :]
    cos = plt.load(cos_ref.at[angle], mask=mask, other=0.0)
    sin = plt.load(sin_ref.at[angle], mask=mask, other=0.0)
    here = pl.ds(start, tile_rows)
    low, high = (here, pl.ds(column, block)), (here, pl.ds(half + column, block))
    first = plt.load(x_ref.at[low], mask=mask, other=0.0).astype(jnp.float32)
    second = plt.load(x_ref.at[high], mask=mask, other=0.0).astype(jnp.float32)
    plt.store(y_ref.at[low], (first * cos - second * sin).astype(y_ref.dtype), mask=mask)
    plt.store(y_ref.at[high], (second * cos + first * sin).astype(y_ref.dtype), mask=mask)


def rope(x, cos, sin, *, interpret=False):
    tokens, heads, _, half = x.shape
    if x.size == 0:
        return jnp.empty_like(x)
    rows = tokens * heads
    block = min(BLOCK_COLS, pl.next_power_of_2(half))
    turned = pl.pallas_call(
        partial(_kernel, rows=rows, heads=heads, half=half, block=block),
        # Rows come first: only the first axis of a GPU's grid may exceed 65535.
        grid=(pl.cdiv(rows, TILE // block), pl.cdiv(half, block)),
        out_shape=jax.ShapeDtypeStruct((rows, 2 * half), x.dtype),
        compiler_params=plt.CompilerParams(num_warps=NUM_WARPS),
        interpret=interpret,
    )(x.reshape(rows, 2 * half), cos, sin)
    return turned.reshape(x.shape)
