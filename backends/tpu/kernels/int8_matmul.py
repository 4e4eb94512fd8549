"""c = (a @ weight) * scale with a weight of int8: blocks for the MXU, summed over k in a
block of VMEM that stays while the last axis of the grid is walked."""

from functools import partial

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

M_BLOCK = 256  # knob: 128 256 512
N_BLOCK = 256  # knob: 128 256 512
K_BLOCK = 512  # knob: 256 512 1024


def _kernel(a_ref, weight_ref, scale_ref, c_ref, sum_ref, *, k):
    step = pl.program_id(2)

    @pl.when(step == 0)
    def _():
        sum_ref[...] = jnp.zeros_like(sum_ref)

    a, b = a_ref[...], weight_ref[...].astype(a_ref.dtype)
    if k % a.shape[1]:  # what lies behind the last column is anything, and not 0 times anything
        left = k - step * a.shape[1]
        a = jnp.where(jax.lax.broadcasted_iota(jnp.int32, a.shape, 1) < left, a, jnp.zeros_like(a))
        b = jnp.where(jax.lax.broadcasted_iota(jnp.int32, b.shape, 0) < left, b, jnp.zeros_like(b))
    exact = jax.lax.Precision.HIGHEST if a.dtype == jnp.float32 else jax.lax.Precision.DEFAULT
    sum_ref[...] += jnp.dot(a, b, precision=exact, preferred_element_type=jnp.float32)

    @pl.when(step == pl.num_programs(2) - 1)
    def _():
        c_ref[...] = (sum_ref[...] * scale_ref[...].astype(jnp.float32)).astype(c_ref.dtype)


def _block(length, most, step):
    """A block that the tiles allow: a multiple of the step, and the axis where it is short."""
    return most if length > most else pl.cdiv(length, step) * step


def int8_matmul(a, weight, scale, *, interpret=False):
    m, k = a.shape
    n = weight.shape[1]
    if m * n * k == 0:
        return jnp.zeros((m, n), a.dtype)
    m_block, n_block = _block(m, M_BLOCK, 32), _block(n, N_BLOCK, 128)
    k_block = _block(k, K_BLOCK, 128)
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
