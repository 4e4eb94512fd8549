"""x with rows added to it. A TPU has no atomic addition: rows of src are picked by a matrix of
zeros and ones, whose product the MXU sums, block by block of x."""

from functools import partial

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

ROWS = 256  # knob: 128 256 512
PICKED = 256  # knob: 128 256 512
DIM = 512  # knob: 128 256 512


def _kernel(x_ref, index_ref, src_ref, y_ref, sum_ref, *, n):
    step = pl.program_id(2)

    @pl.when(step == 0)
    def _():
        sum_ref[...] = x_ref[...].astype(jnp.float32)

    left = n - step * PICKED
    src = src_ref[...].astype(jnp.float32)
    src = jnp.where(jax.lax.broadcasted_iota(jnp.int32, src.shape, 0) < left, src, 0.0)
    row = pl.program_id(0) * ROWS + jax.lax.broadcasted_iota(jnp.int32, (ROWS, PICKED), 0)
    named = jax.lax.broadcasted_iota(jnp.int32, (ROWS, PICKED), 1) < left
    chosen = jnp.where(named & (row == index_ref[...]), 1.0, 0.0)
    sum_ref[...] += jnp.dot(
        chosen, src, precision=jax.lax.Precision.HIGHEST, preferred_element_type=jnp.float32
    )

    @pl.when(step == pl.num_programs(2) - 1)
    def _():
        y_ref[...] = sum_ref[...].astype(y_ref.dtype)


def scatter_add(x, index, src, *, interpret=False):
    (rows, dim), (n,) = x.shape, index.shape
    if n * x.size == 0:
        return x
    block = pl.BlockSpec((ROWS, DIM), lambda i, j, s: (i, j))
    return pl.pallas_call(
        partial(_kernel, n=n),
        grid=(pl.cdiv(rows, ROWS), pl.cdiv(dim, DIM), pl.cdiv(n, PICKED)),
        in_specs=[
            block,
            pl.BlockSpec((1, PICKED), lambda i, j, s: (0, s)),
            pl.BlockSpec((PICKED, DIM), lambda i, j, s: (s, j)),
        ],
        out_specs=block,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        scratch_shapes=[pltpu.VMEM((ROWS, DIM), jnp.float32)],
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel", "arbitrary")
        ),
        interpret=interpret,
    )(x, index.reshape(1, n), src)
