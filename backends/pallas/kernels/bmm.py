"""The tiles of all products in one grid, each as in a single product, accumulated in float32."""

from functools import partial

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

BLOCK_M = 128  # knob: 64 128
BLOCK_N = 128  # knob: 64 128
BLOCK_K = 64  # knob: 32 64
NUM_WARPS = 8  # knob: 4 8
NUM_STAGES = 3  # knob: 2 3 4
# For float32, which runs on the ordinary multipliers.
BLOCK_F32 = 64  # knob: 32 64 128
BLOCK_K_F32 = 16  # knob: 16 32


def _kernel(a_ref, b_ref, c_ref, *, m, n, k, tiles, block_m, block_n, block_k):
    tile = pl.program_id(0) % tiles  # a product's tiles are neighbours: it stays in the L2
    tiles_n = pl.cdiv(n, block_n)
    start_m, start_n = tile // tiles_n * block_m, tile % tiles_n * block_n
    in_m = jnp.arange(block_m) < m - start_m
    in_n = jnp.arange(block_n) < n - start_n

    def step(index, total):
        start = index * block_k
        in_k = jnp.arange(block_k) < k - start
        a_part = a_ref.at[pl.ds(start_m, block_m), pl.ds(start, block_k)]
        b_part = b_ref.at[pl.ds(start, block_k), pl.ds(start_n, block_n)]
        a = plt.load(a_part, mask=in_m[:, None] & in_k[None, :], other=0.0)
        b = plt.load(b_part, mask=in_k[:, None] & in_n[None, :], other=0.0)
        precision = jax.lax.Precision.HIGHEST if a.dtype == jnp.float32 else None
        return total + jnp.dot(a, b, precision=precision, preferred_element_type=jnp.float32)

    zero = jnp.zeros((block_m, block_n), jnp.float32)
    total = jax.lax.fori_loop(0, pl.cdiv(k, block_k), step, zero)
    part = c_ref.at[pl.ds(start_m, block_m), pl.ds(start_n, block_n)]
    plt.store(part, total.astype(c_ref.dtype), mask=in_m[:, None] & in_n[None, :])


def _fit(length, block):
    """A smaller block for smaller matrices; 16 is the least that every dot unit takes."""
    return max(16, min(block, pl.next_power_of_2(length)))


def bmm(a, b, *, interpret=False):
    (batch, m, k), n = a.shape, b.shape[2]
    if batch == 0 or m == 0 or n == 0 or k == 0:
        return jnp.zeros((batch, m, n), a.dtype)
    strict = a.dtype == jnp.float32
    block_m = _fit(m, BLOCK_F32 if strict else BLOCK_M)
    block_n = _fit(n, BLOCK_F32 if strict else BLOCK_N)
    block_k = _fit(k, BLOCK_K_F32 if strict else BLOCK_K)
    tiles = pl.cdiv(m, block_m) * pl.cdiv(n, block_n)
    sizes = {"m": m, "n": n, "k": k, "tiles": tiles}
    blocks = {"block_m": block_m, "block_n": block_n, "block_k": block_k}

    def matrix(*shape):
        return pl.BlockSpec((None, *shape), lambda i: (i // tiles, 0, 0))

    return pl.pallas_call(
        partial(_kernel, **sizes, **blocks),
        grid=(batch * tiles,),
        in_specs=[matrix(m, k), matrix(k, n)],
        out_specs=matrix(m, n),
        out_shape=jax.ShapeDtypeStruct((batch, m, n), a.dtype),
        compiler_params=plt.CompilerParams(
            num_warps=min(NUM_WARPS, max(4, block_m * block_n // 2048)), num_stages=NUM_STAGES
        ),
        interpret=interpret,
    )(a, b)
