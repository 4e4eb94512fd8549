"""silu(gate) * up, in blocks of rows of 128 lanes."""

import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from portkern.backends.tpu.include.elements import in_lanes

ROWS = 512  # knob: 64 128 256 512 1024 2048


def _kernel(gate_ref, up_ref, y_ref):
    gate = gate_ref[...].astype(jnp.float32)
    value = gate / (1.0 + jnp.exp(-gate)) * up_ref[...].astype(jnp.float32)
    y_ref[...] = value.astype(y_ref.dtype)


def silu_mul(gate, up, *, interpret=False):
    if gate.size == 0:
        return jnp.empty_like(gate)
    operands, asked = in_lanes([gate, up], ROWS)
    y = pl.pallas_call(
        _kernel,
        **asked,
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",)),
        interpret=interpret,
    )(*operands)
    return y.reshape(-1)[: gate.size]
