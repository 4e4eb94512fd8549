"""y = x^T by square tiles: read along x's rows, written along y's."""

from functools import partial

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

BLOCK = 64  # knob: 32 64 128
NUM_WARPS = 8  # knob: 4 8 16


def _kernel(x_ref, y_ref, *, rows, cols):
    row = pl.program_id(0) * BLOCK + jnp.arange(BLOCK) < rows
    col = pl.program_id(1) * BLOCK + jnp.arange(BLOCK) < cols
    tile = plt.load(x_ref, mask=row[:, None] & col[None, :], other=0.0)
    plt.store(y_ref, tile.T, mask=col[:, None] & row[None, :])


def transpose(x, *, interpret=False):
    rows, cols = x.shape
    if x.size == 0:
        return jnp.empty((cols, rows), x.dtype)
    return pl.pallas_call(
        partial(_kernel, rows=rows, cols=cols),
        grid=(pl.cdiv(rows, BLOCK), pl.cdiv(cols, BLOCK)),
        in_specs=[pl.BlockSpec((BLOCK, BLOCK), lambda i, j: (i, j))],
        out_specs=pl.BlockSpec((BLOCK, BLOCK), lambda i, j: (j, i)),
        out_shape=jax.ShapeDtypeStruct((cols, rows), x.dtype),
        compiler_params=plt.CompilerParams(num_warps=NUM_WARPS),
        interpret=interpret,
    )(x)
