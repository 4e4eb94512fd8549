"""Causal attention: a block of queries stays in VMEM while blocks of keys up to its diagonal come
by, with a running maximum, so that the scores are never in memory."""

from functools import partial

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

QUERIES = 256  # knob: 128 256 512
KEYS = 256  # knob: 128 256 512


def _kernel(q_ref, k_ref, v_ref, y_ref, top_ref, total_ref, sum_ref, *, length):
    rows, cols = q_ref.shape[0], k_ref.shape[0]
    first, step = pl.program_id(1) * rows, pl.program_id(2)
    exact = jax.lax.Precision.HIGHEST if q_ref.dtype == jnp.float32 else jax.lax.Precision.DEFAULT

    @pl.when(step == 0)
    def _():
        top_ref[...] = jnp.full_like(top_ref, -jnp.inf)
        total_ref[...] = jnp.zeros_like(total_ref)
        sum_ref[...] = jnp.zeros_like(sum_ref)

    @pl.when(step * cols < first + rows)
    def _():
        scores = jax.lax.dot_general(
            q_ref[...],
            k_ref[...],
            (((1,), (1,)), ((), ())),
            precision=exact,
            preferred_element_type=jnp.float32,
        )
        scores = scores * (1.0 / q_ref.shape[1] ** 0.5)
        row = first + jax.lax.broadcasted_iota(jnp.int32, scores.shape, 0)
        col = step * cols + jax.lax.broadcasted_iota(jnp.int32, scores.shape, 1)
        scores = jnp.where(col <= row, scores, -jnp.inf)
        # The first block has a key for every query: from there on the maximum is finite.
        top = jnp.maximum(top_ref[...], jnp.max(scores, axis=1, keepdims=True))
        power = jnp.exp(scores - top)
        shrunk = jnp.exp(top_ref[...] - top)
        total_ref[...] = total_ref[...] * shrunk + jnp.sum(power, axis=1, keepdims=True)
        top_ref[...] = top
        value = v_ref[...]
        if length % cols:  # what lies behind the last key is anything, and not 0 times anything
            behind = step * cols + jax.lax.broadcasted_iota(jnp.int32, value.shape, 0) >= length
            value = jnp.where(behind, jnp.zeros_like(value), value)
        sum_ref[...] = sum_ref[...] * shrunk + jnp.dot(
            power.astype(value.dtype), value, precision=exact, preferred_element_type=jnp.float32
        )

    @pl.when(step == pl.num_programs(2) - 1)
    def _():
        y_ref[...] = (sum_ref[...] / total_ref[...]).astype(y_ref.dtype)


def _block(length, most, step):
    """A block that the tiles allow: a multiple of the step, and the axis where it is short."""
    return most if length > most else pl.cdiv(length, step) * step


def attention(q, k, v, *, interpret=False):
    batch, heads, length, dim = q.shape
    if q.size == 0:
        return jnp.zeros_like(q)
    rows, cols = _block(length, QUERIES, 16), _block(length, KEYS, 128)
    flat = (batch * heads, length, dim)
    # Blocks of keys behind the diagonal are not fetched: the last one before it stays.
    keys = pl.BlockSpec(
        (None, cols, dim), lambda b, i, j: (b, jnp.minimum(j, (i * rows + rows - 1) // cols), 0)
    )
    queries = pl.BlockSpec((None, rows, dim), lambda b, i, j: (b, i, 0))
    y = pl.pallas_call(
        partial(_kernel, length=length),
        grid=(batch * heads, pl.cdiv(length, rows), pl.cdiv(length, cols)),
        in_specs=[queries, keys, keys],
        out_specs=queries,
        out_shape=jax.ShapeDtypeStruct(flat, q.dtype),
        scratch_shapes=[
            pltpu.VMEM((rows, 1), jnp.float32),
            pltpu.VMEM((rows, 1), jnp.float32),
            pltpu.VMEM((rows, dim), jnp.float32),
        ],
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel", "arbitrary")
        ),
        interpret=interpret,
    )(*(x.reshape(flat) for x in (q, k, v)))
    return y.reshape(q.shape)
