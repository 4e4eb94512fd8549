"""x * Phi(x) with the exact error function, in blocks of rows of 128 lanes."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

ROWS = 512  # knob: 64 128 256 512 1024 2048
LANES = 128
# exp(z * z) * erfc(z) for z >= 0 as a polynomial in t = 1 / (1 + 0.4 z), highest power first; a
# least-squares fit in float64 with relative error 5e-8. 1 + erf(z) would lose the negative side.
ERFC = (
    0.0331296231,
    -0.0974742832,
    -0.0134984923,
    0.213245475,
    -0.0202053442,
    0.244622098,
    0.185062321,
    0.229851934,
    0.225248086,
    1.86280722e-05,
)


def _gelu(value):
    z = jnp.abs(value) * 0.7071067811865476
    t = 1.0 / (1.0 + 0.4 * z)
    scaled = jnp.full_like(t, ERFC[0])
    for coefficient in ERFC[1:]:
        scaled = scaled * t + coefficient
    tail = 0.5 * jnp.exp(-z * z) * scaled
    return value * jnp.where(value < 0, tail, 1.0 - tail)


def _kernel(x_ref, y_ref):
    y_ref[...] = _gelu(x_ref[...].astype(jnp.float32)).astype(y_ref.dtype)


def gelu(x, *, interpret=False):
    if x.size == 0:
        return jnp.empty_like(x)
    count = pl.cdiv(x.size, LANES)
    tail = count * LANES - x.size
    spec = pl.BlockSpec((ROWS, LANES), lambda i: (i, 0))
    y = pl.pallas_call(
        _kernel,
        grid=(pl.cdiv(count, ROWS),),
        in_specs=[spec] * 1,
        out_specs=spec,
        out_shape=jax.ShapeDtypeStruct((count, LANES), x.dtype),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",)),
        interpret=interpret,
    )(*(jnp.pad(x, (0, tail)).reshape(count, LANES) for x in (x,)))
    return y.reshape(-1)[: x.size]
