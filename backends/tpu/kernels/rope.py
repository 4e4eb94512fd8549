"""The two halves of each head are turned by their token's angles: a block holds some tokens with
all their heads, whose halves lie beside each other in the lanes."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

TOKENS = 32  # knob: 8 16 32 64


def _kernel(x_ref, cos_ref, sin_ref, y_ref):
    half = cos_ref.shape[1]
    value = x_ref[...].astype(jnp.float32)
    cos, sin = cos_ref[...][:, None, :], sin_ref[...][:, None, :]
    first, second = value[:, :, :half], value[:, :, half:]
    y_ref[:, :, :half] = (first * cos - second * sin).astype(y_ref.dtype)
    y_ref[:, :, half:] = (second * cos + first * sin).astype(y_ref.dtype)


def rope(x, cos, sin, *, interpret=False):
    tokens, heads, _, half = x.shape
    if x.size == 0:
        return jnp.empty_like(x)
    spec = pl.BlockSpec((TOKENS, heads, 2 * half), lambda i: (i, 0, 0))
    table = pl.BlockSpec((TOKENS, half), lambda i: (i, 0))
    y = pl.pallas_call(
        _kernel,
        grid=(pl.cdiv(tokens, TOKENS),),
        in_specs=[spec, table, table],
        out_specs=spec,
        out_shape=jax.ShapeDtypeStruct((tokens, heads, 2 * half), x.dtype),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",)),
        interpret=interpret,
    )(x.reshape(tokens, heads, 2 * half), cos, sin)
    return y.reshape(x.shape)
