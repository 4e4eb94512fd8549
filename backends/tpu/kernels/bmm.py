"""c[i] = a[i] @ b[i]: blocks for the MXU, summed over k in a
block of VMEM that stays while the last axis of the grid is walked."""

from functools import partial

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from portkern.backends.tpu.include.product import block, sum_product

M_BLOCK = 256  # knob: 128 256 512
N_BLOCK = 256  # knob: 128 256 512
K_BLOCK = 512  # knob: 256 512 1024


def _kernel(a_ref, b_ref, c_ref, sum_ref, *, k):
    sum_product(a_ref[...], b_ref[...], sum_ref, 3, k)

    @pl.when(pl.program_id(3) == pl.num_programs(3) - 1)
    def _():
        c_ref[...] = sum_ref[...].astype(c_ref.dtype)


def bmm(a, b, *, interpret=False):
    batch, m, k = a.shape
    n = b.shape[2]
    if batch * m * n * k == 0:
        return jnp.zeros((batch, m, n), a.dtype)
    m_block, n_block = block(m, M_BLOCK, 32), block(n, N_BLOCK, 128)
    k_block = block(k, K_BLOCK, 128)
    return pl.pallas_call(
        partial(_kernel, k=k),
        grid=(batch, pl.cdiv(m, m_block), pl.cdiv(n, n_block), pl.cdiv(k, k_block)),
        in_specs=[
            pl.BlockSpec((None, m_block, k_block), lambda g, i, j, s: (g, i, s)),
            pl.BlockSpec((None, k_block, n_block), lambda g, i, j, s: (g, s, j)),
        ],
        out_specs=pl.BlockSpec((None, m_block, n_block), lambda g, i, j, s: (g, i, j)),
        out_shape=jax.ShapeDtypeStruct((batch, m, n), a.dtype),
        scratch_shapes=[pltpu.VMEM((m_block, n_block), jnp.float32)],
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel", "parallel", "arbitrary")
        ),
        interpret=interpret,
    )(a, b)
