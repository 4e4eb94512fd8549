"""Products of blocks on the MXU, summed in VMEM while the last axis of the grid is walked."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl


def block(length, most, step):
    """A block that the tiles allow: a multiple of the step, and the axis where it is short."""
    return most if length > most else pl.cdiv(length, step) * step


def sum_product(a, b, sum_ref, axis, depth):
    """Makes ``sum_ref`` the sum of a @ b of the programs so far along the grid's last ``axis``;
    ``depth`` is how many terms there are in all. Strict in float32."""
    step = pl.program_id(axis)

    @pl.when(step == 0)
    def _():
        sum_ref[...] = jnp.zeros_like(sum_ref)

    if depth % a.shape[1]:  # what lies behind the last term is anything, and not 0 times anything
        left = depth - step * a.shape[1]
        a = jnp.where(jax.lax.broadcasted_iota(jnp.int32, a.shape, 1) < left, a, jnp.zeros_like(a))
        b = jnp.where(jax.lax.broadcasted_iota(jnp.int32, b.shape, 0) < left, b, jnp.zeros_like(b))
    exact = jax.lax.Precision.HIGHEST if a.dtype == jnp.float32 else jax.lax.Precision.DEFAULT
    sum_ref[...] += jnp.dot(a, b, precision=exact, preferred_element_type=jnp.float32)
