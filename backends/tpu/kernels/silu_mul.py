"""silu(gate) * up, in blocks of rows of 128 lanes."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

ROWS = 512  # knob: 64 128 256 512 1024 2048
LANES = 128


def _kernel(gate_ref, up_ref, y_ref):
    gate = gate_ref[...].astype(jnp.float32)
    value = gate / (1.0 + jnp.exp(-gate)) * up_ref[...].astype(jnp.float32)
    y_ref[...] = value.astype(y_ref.dtype)


def silu_mul(gate, up, *, interpret=False):
    if gate.size == 0:
        return jnp.empty_like(gate)
    count = pl.cdiv(gate.size, LANES)
    tail = count * LANES - gate.size
    spec = pl.BlockSpec((ROWS, LANES), lambda i: (i, 0))
    y = pl.pallas_call(
        _kernel,
        grid=(pl.cdiv(count, ROWS),),
        in_specs=[spec] * 2,
        out_specs=spec,
        out_shape=jax.ShapeDtypeStruct((count, LANES), gate.dtype),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",)),
        interpret=interpret,
    )(
        *(
            jnp.pad(x, (0, tail)).reshape(count, LANES)
            for x in (
                gate,
                up,
            )
        )
    )
    return y.reshape(-1)[: gate.size]
