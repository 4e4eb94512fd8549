"""The k largest elements of each row in falling order: the largest is taken out k times. Floats
are compared as integers of the same order, a NaN above all."""

from functools import partial

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

BYTES = 524288  # knob: 262144 524288 1048576
HIGHEST, LOWEST = 2147483647, -2147483648


def _kernel(x_ref, value_ref, index_ref, *, kept):
    value = x_ref[...].astype(jnp.float32)
    lane = jax.lax.broadcasted_iota(jnp.int32, value.shape, 1)
    # -0.0 is the equal of 0.0.
    bits = jax.lax.bitcast_convert_type(jnp.where(value == 0, 0.0, value), jnp.int32)
    order = jnp.where(bits < 0, bits ^ HIGHEST, bits)
    order = jnp.where(value != value, HIGHEST, order)
    place = jax.lax.broadcasted_iota(jnp.int32, (value.shape[0], kept), 1)

    def step(k, carry):
        order, values, indices = carry
        top = jnp.max(order, axis=1, keepdims=True)
        index = jnp.min(jnp.where(order == top, lane, HIGHEST), axis=1, keepdims=True)
        taken = lane == index
        chosen = jnp.sum(jnp.where(taken, value, 0.0), axis=1, keepdims=True)
        return (
            jnp.where(taken, LOWEST, order),
            jnp.where(place == k, chosen, values),
            jnp.where(place == k, index, indices),
        )

    start = order, jnp.zeros(place.shape, jnp.float32), jnp.zeros(place.shape, jnp.int32)
    _, values, indices = jax.lax.fori_loop(0, kept, step, start)
    value_ref[...] = values.astype(value_ref.dtype)
    index_ref[...] = indices


def topk(x, *, k, interpret=False):
    rows, cols = x.shape
    if rows * k == 0:
        return jnp.empty((rows, k), x.dtype), jnp.empty((rows, k), jnp.int32)
    tall = max(8, min(256, BYTES // (4 * cols) // 8 * 8))
    some = pl.BlockSpec((tall, k), lambda i: (i, 0))
    return pl.pallas_call(
        partial(_kernel, kept=k),
        grid=(pl.cdiv(rows, tall),),
        in_specs=[pl.BlockSpec((tall, cols), lambda i: (i, 0))],
        out_specs=(some, some),
        out_shape=(
            jax.ShapeDtypeStruct((rows, k), x.dtype),
            jax.ShapeDtypeStruct((rows, k), jnp.int32),
        ),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",)),
        interpret=interpret,
    )(x)
