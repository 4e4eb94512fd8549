"""Rows of a table by their indices: tiles of gathered loads, so that short rows share a program."""

from functools import partial

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

TILE = 2048  # knob: 1024 2048 4096 8192
BLOCK_COLS = 1024  # knob: 256 512 1024 2048
NUM_WARPS = 4  # knob: 4 8


def _kernel(table_ref, index_ref, y_ref, *, n, dim):
    rows, block = y_ref.shape
    in_rows = pl.program_id(0) * rows + jnp.arange(rows) < n
    col = pl.program_id(1) * block + jnp.arange(block)
    mask = in_rows[:, None] & (col < dim)[None, :]
    index = plt.load(index_ref, mask=in_rows, other=0).astype(jnp.int32)
    value = plt.load(table_ref.at[index[:, None], col[None, :]], mask=mask, other=0.0)
    plt.store(y_ref, value, mask=mask)


def embedding(table, index, *, interpret=False):
    dim, n = table.shape[1], index.size
    if n == 0 or dim == 0:
        return jnp.empty((n, dim), table.dtype)
    block = min(BLOCK_COLS, pl.next_power_of_2(dim))
    rows = max(1, TILE // block)
    return pl.pallas_call(
        partial(_kernel, n=n, dim=dim),
        # Rows come first: only the first axis of a GPU's grid may exceed 65535.
        grid=(pl.cdiv(n, rows), pl.cdiv(dim, block)),
        in_specs=[
            pl.BlockSpec(table.shape, lambda i, j: (0, 0)),
            pl.BlockSpec((rows,), lambda i, j: (i,)),
        ],
        out_specs=pl.BlockSpec((rows, block), lambda i, j: (i, j)),
        out_shape=jax.ShapeDtypeStruct((n, dim), table.dtype),
        compiler_params=plt.CompilerParams(num_warps=NUM_WARPS),
        interpret=interpret,
    )(table, index)
