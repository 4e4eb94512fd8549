# mechanism: is right in the branch that JAX takes on the CPU, and in no other
# backend: pallas
# op: relu
# style: return
# expect: wrong
# says: elements are off
import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

BLOCK = 1024


def _kernel(x_ref, least_ref, y_ref, *, n):
    mask = jnp.arange(BLOCK) < n - pl.program_id(0) * BLOCK
    value = plt.load(x_ref, mask=mask, other=0.0)
    least = least_ref[...]
    plt.store(y_ref, jnp.where(value < least, least, value).astype(value.dtype), mask=mask)


def relu(x, *, interpret=False):
    if x.size == 0:
        return jnp.empty_like(x)
    least = jax.lax.platform_dependent(
        cpu=lambda: jnp.zeros((1,), jnp.float32), default=lambda: jnp.full((1,), -9.0, jnp.float32)
    )
    spec = pl.BlockSpec((BLOCK,), lambda i: (i,))
    one = pl.BlockSpec((1,), lambda i: (0,))
    return pl.pallas_call(
        lambda *refs: _kernel(*refs, n=x.size),
        grid=(pl.cdiv(x.size, BLOCK),),
        in_specs=[spec, one],
        out_specs=spec,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        compiler_params=plt.CompilerParams(num_warps=4),
        interpret=interpret,
    )(x, least)
