"""Causal attention in one pass over the keys: a tile of queries keeps its running maximum, sum and
weighted values. Keys under the diagonal need no mask, those on it come last."""

from functools import partial

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

BLOCK_Q = 128  # knob: 64 128
BLOCK_KEYS = 32  # knob: 32 64
NUM_WARPS = 8  # knob: 4 8
NUM_STAGES = 2  # knob: 2 3
# For float32, which runs on the ordinary multipliers: they hold whole rows in registers.
BLOCK_Q_F32 = 32  # knob: 16 32
BLOCK_KEYS_F32 = 16  # knob: 16 32
MOST_DIM = 256


def _dot(a, b):
    precision = jax.lax.Precision.HIGHEST if a.dtype == jnp.float32 else None
    return jnp.dot(a, b, precision=precision, preferred_element_type=jnp.float32)


def _kernel(q_ref, k_ref, v_ref, y_ref, *, length, dim, tiles, block_q, block_k, block_d):
    # The last queries have the most keys: they start first, and the short ones fill the gaps.
    start_q = (tiles - 1 - pl.program_id(0) % tiles) * block_q
    row = start_q + jnp.arange(block_q)
    in_dim = jnp.arange(block_d) < dim
    here = pl.ds(start_q, block_q), pl.ds(0, block_d)
    mask_q = (row < length)[:, None] & in_dim[None, :]
    query = plt.load(q_ref.at[here], mask=mask_q, other=0.0)
    scale = dim**-0.5 * 1.4426950408889634  # log2(e): powers of two are the cheaper ones

    def step(index, carry, *, diagonal):
        top, total, values = carry
        key = index * block_k + jnp.arange(block_k)
        part = pl.ds(index * block_k, block_k), pl.ds(0, block_d)
        mask = (key < length)[:, None] & in_dim[None, :]
        score = _dot(query, plt.load(k_ref.at[part], mask=mask, other=0.0).T)
        if diagonal:
            score = jnp.where(key[None, :] <= row[:, None], score, -jnp.inf)
        higher = jnp.maximum(top, jnp.max(score, axis=1) * scale)
        power = jnp.exp2(score * scale - higher[:, None])
        before = jnp.exp2(top - higher)
        value = plt.load(v_ref.at[part], mask=mask, other=0.0)
        values = values * before[:, None] + _dot(power.astype(value.dtype), value)
        return higher, total * before + jnp.sum(power, axis=1), values

    # Key 0 is in the first block and everyone's: from there on no maximum is -inf.
    carry = (
        jnp.full((block_q,), -jnp.inf, jnp.float32),
        jnp.zeros((block_q,), jnp.float32),
        jnp.zeros((block_q, block_d), jnp.float32),
    )
    whole = start_q // block_k
    end = pl.cdiv(jnp.minimum(start_q + block_q, length), block_k)
    carry = jax.lax.fori_loop(0, whole, partial(step, diagonal=False), carry)
    _, total, values = jax.lax.fori_loop(whole, end, partial(step, diagonal=True), carry)
    plt.store(y_ref.at[here], (values / total[:, None]).astype(y_ref.dtype), mask=mask_q)


def _fit(length, block_d, block):
    """Smaller for few queries and for long heads; 16 is the least that every dot unit takes."""
    return max(16, min(block * 128 // max(128, block_d), pl.next_power_of_2(length)))


def attention(q, k, v, *, interpret=False):
    batch, heads, length, dim = q.shape
    if dim > MOST_DIM:
        raise ValueError(f"Heads of {dim} do not fit the registers; at most {MOST_DIM}")
    if q.size == 0:
        return jnp.empty_like(q)
    block_d = max(16, pl.next_power_of_2(dim))
    strict = q.dtype == jnp.float32
    block_q = _fit(length, block_d, BLOCK_Q_F32 if strict else BLOCK_Q)
    block_k = _fit(length, block_d, BLOCK_KEYS_F32 if strict else BLOCK_KEYS)
    tiles = pl.cdiv(length, block_q)
    head = pl.BlockSpec((None, length, dim), lambda i: (i // tiles, 0, 0))
    blocks = {"block_q": block_q, "block_k": block_k, "block_d": block_d}
    y = pl.pallas_call(
        partial(_kernel, length=length, dim=dim, tiles=tiles, **blocks),
        grid=(batch * heads * tiles,),
        in_specs=[head, head, head],
        out_specs=head,
        out_shape=jax.ShapeDtypeStruct((batch * heads, length, dim), q.dtype),
        compiler_params=plt.CompilerParams(
            num_warps=min(NUM_WARPS, max(4, block_q * block_d // 1024)), num_stages=NUM_STAGES
        ),
        interpret=interpret,
    )(*(one.reshape(batch * heads, length, dim) for one in (q, k, v)))
    return y.reshape(q.shape)
