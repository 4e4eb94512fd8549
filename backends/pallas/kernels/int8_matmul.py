"""c = (a w) * scale: weights travel as int8 and become a's type, which holds them exactly, just
before the dot; the columns' scales are applied to the finished sums."""

from functools import partial

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

BLOCK_M = 128  # knob: 64 128
BLOCK_N = 128  # knob: 64 128
BLOCK_K = 64  # knob: 32 64 128
NUM_WARPS = 8  # knob: 4 8
NUM_STAGES = 3  # knob: 2 3 4
# For float32, which runs on the ordinary multipliers.
BLOCK_F32 = 64  # knob: 32 64 128
BLOCK_K_F32 = 16  # knob: 16 32
GROUP = 8  # knob: 1 4 8 16
PROGRAMS = 128  # knob: 64 128 256


def _kernel(a_ref, weight_ref, scale_ref, c_ref, *, m, n, k, block_m, block_n, block_k):
    tiles_m, tiles_n = pl.cdiv(m, block_m), pl.cdiv(n, block_n)
    # GROUP rows of tiles are walked column by column, so that their operands stay in the L2.
    group = pl.program_id(0) // (GROUP * tiles_n)
    height = jnp.minimum(tiles_m - group * GROUP, GROUP)
    within = pl.program_id(0) % (GROUP * tiles_n)
    start_m = (group * GROUP + within % height) * block_m
    start_n = within // height * block_n
    in_m = jnp.arange(block_m) < m - start_m
    in_n = jnp.arange(block_n) < n - start_n

    def step(index, total):
        start = index * block_k
        in_k = jnp.arange(block_k) < k - start
        a_part = a_ref.at[pl.ds(start_m, block_m), pl.ds(start, block_k)]
        weight_part = weight_ref.at[pl.ds(start, block_k), pl.ds(start_n, block_n)]
        a = plt.load(a_part, mask=in_m[:, None] & in_k[None, :], other=0.0)
        weight = plt.load(weight_part, mask=in_k[:, None] & in_n[None, :], other=0)
        precision = jax.lax.Precision.HIGHEST if a.dtype == jnp.float32 else None
        weight = weight.astype(a.dtype)
        return total + jnp.dot(a, weight, precision=precision, preferred_element_type=jnp.float32)

    zero = jnp.zeros((block_m, block_n), jnp.float32)
    total = jax.lax.fori_loop(0, pl.cdiv(k, block_k), step, zero)
    scale = plt.load(scale_ref.at[pl.ds(start_n, block_n)], mask=in_n, other=0.0)
    result = total * scale.astype(jnp.float32)[None, :]
    part = c_ref.at[pl.ds(start_m, block_m), pl.ds(start_n, block_n)]
    plt.store(part, result.astype(c_ref.dtype), mask=in_m[:, None] & in_n[None, :])


def _fit(length, block):
    """A smaller block for a smaller matrix; 16 is the least that every dot unit takes."""
    return max(16, min(block, pl.next_power_of_2(length)))


def int8_matmul(a, weight, scale, *, interpret=False):
    (m, k), n = a.shape, weight.shape[1]
    if m == 0 or n == 0 or k == 0:
        return jnp.zeros((m, n), a.dtype)
    strict = a.dtype == jnp.float32
    block_m = _fit(m, BLOCK_F32 if strict else BLOCK_M)
    block_n = _fit(n, BLOCK_F32 if strict else BLOCK_N)
    block_k = _fit(k, BLOCK_K_F32 if strict else BLOCK_K)
    # With few rows it is reading the weights that takes the time: by all of the device.
    while block_n > 32 and pl.cdiv(m, block_m) * pl.cdiv(n, block_n) < PROGRAMS:
        block_n //= 2
    return pl.pallas_call(
        partial(_kernel, m=m, n=n, k=k, block_m=block_m, block_n=block_n, block_k=block_k),
        grid=(pl.cdiv(m, block_m) * pl.cdiv(n, block_n),),
        out_shape=jax.ShapeDtypeStruct((m, n), a.dtype),
        compiler_params=plt.CompilerParams(
            num_warps=min(NUM_WARPS, max(4, block_m * block_n // 2048)), num_stages=NUM_STAGES
        ),
        interpret=interpret,
    )(a, weight, scale)
