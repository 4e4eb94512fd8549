"""c = (a @ weight) * scale with a weight of int8: blocks for the MXU, summed over k in a
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


def _kernel(a_ref, weight_ref, scale_ref, c_ref, sum_ref, *, k):
    weight = weight_ref[...].astype(a_ref.dtype)
    sum_product(a_ref[...], weight, sum_ref, 2, k)

    @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
    def _():
        c_ref[...] = (sum_ref[...] * scale_ref[...].astype(jnp.float32)).astype(c_ref.dtype)


def int8_matmul(a, weight, scale, *, interpret=False):
    m, k = a.shape
    n = weight.shape[1]
    if m * n * k == 0:
        return jnp.zeros((m, n), a.dtype)
    m_block, n_block = block(m, M_BLOCK, 32), block(n, N_BLOCK, 128)
    k_block = block(k, K_BLOCK, 128)
    return pl.pallas_call(
        partial(_kernel, k=k),
        grid=(pl.cdiv(m, m_block), pl.cdiv(n, n_block), pl.cdiv(k, k_block)),
        in_specs=[
            pl.BlockSpec((m_block, k_block), lambda i, j, s: (i, s)),
            pl.BlockSpec((k_block, n_block), lambda i, j, s: (s, j)),
            pl.BlockSpec((1, n_block), lambda i, j, s: (0, j)),
        ],
        out_specs=pl.BlockSpec((m_block, n_block), lambda i, j, s: (i, j)),
        out_shape=jax.ShapeDtypeStruct((m, n), a.dtype),
        scratch_shapes=[pltpu.VMEM((m_block, n_block), jnp.float32)],
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel", "arbitrary")
        ),
        interpret=interpret,
    )(a, weight, scale.reshape(1, n))
