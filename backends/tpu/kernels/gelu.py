"""x * Phi(x) with the exact error function, in blocks of rows of 128 lanes."""

import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from portkern.backends.tpu.include.elements import in_lanes, normal_cdf_times

ROWS = 512  # knob: 64 128 256 512 1024 2048


def _kernel(x_ref, y_ref):
    y_ref[...] = normal_cdf_times(x_ref[...].astype(jnp.float32)).astype(y_ref.dtype)


def gelu(x, *, interpret=False):
    if x.size == 0:
        return jnp.empty_like(x)
    operands, asked = in_lanes([x], ROWS)
    y = pl.pallas_call(
        _kernel,
        **asked,
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",)),
        interpret=interpret,
    )(*operands)
    return y.reshape(-1)[: x.size]
