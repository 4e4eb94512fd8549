"""c = a + b with the row b broadcast: a program's rows share one load of their part of b."""

from functools import partial

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

TILE = 4096  # knob: 2048 4096 8192
BLOCK_N = 1024  # knob: 256 512 1024 2048
NUM_WARPS = 8  # knob: 4 8 16


def _kernel(a_ref, b_ref, c_ref, *, m, n):
    rows, block = a_ref.shape
    col = pl.program_id(1) * block + jnp.arange(block)
    row = pl.program_id(0) * rows + jnp.arange(rows)
    mask = (row < m)[:, None] & (col < n)[None, :]
    bias = plt.load(b_ref, mask=col < n, other=0.0).astype(jnp.float32)
    value = plt.load(a_ref, mask=mask, other=0.0).astype(jnp.float32)
    plt.store(c_ref, (value + bias[None, :]).astype(c_ref.dtype), mask=mask)


def add(a, b, *, interpret=False):
    m, n = a.shape
    if a.size == 0:
        return jnp.empty_like(a)
    block = min(BLOCK_N, pl.next_power_of_2(n))
    rows = TILE // block
    tile = pl.BlockSpec((rows, block), lambda i, j: (i, j))
    return pl.pallas_call(
        partial(_kernel, m=m, n=n),
        # Rows come first: only the first axis of a GPU's grid may exceed 65535.
        grid=(pl.cdiv(m, rows), pl.cdiv(n, block)),
        in_specs=[tile, pl.BlockSpec((block,), lambda i, j: (j,))],
        out_specs=tile,
        out_shape=jax.ShapeDtypeStruct(a.shape, a.dtype),
        compiler_params=plt.CompilerParams(num_warps=NUM_WARPS),
        interpret=interpret,
    )(a, b)
