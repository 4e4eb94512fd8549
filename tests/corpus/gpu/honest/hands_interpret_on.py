# mechanism: hands its argument on, and masks the last block
# backend: pallas
# op: relu
# style: return
from functools import partial

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

BLOCK = 1024


def _kernel(x_ref, y_ref, *, n):
    mask = jnp.arange(BLOCK) < n - pl.program_id(0) * BLOCK
    value = plt.load(x_ref, mask=mask, other=0.0)
    value = jnp.where(value < 0, 0.0, value).astype(value.dtype)
    plt.store(y_ref, value, mask=mask)


def relu(x, *, interpret=False):
    if x.size == 0:
        return jnp.empty_like(x)
    spec = pl.BlockSpec((BLOCK,), lambda i: (i,))
    return pl.pallas_call(
        partial(_kernel, n=x.size),
        grid=(pl.cdiv(x.size, BLOCK),),
        in_specs=[spec],
        out_specs=spec,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        compiler_params=plt.CompilerParams(num_warps=4),
        interpret=interpret,
    )(x)
