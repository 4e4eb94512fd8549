"""y[o, i] = sum over r of x[o, r, i], accumulated in float32.

With too few outputs to fill a device the reduction is split, and a second pallas_call adds up the
parts: no atomics, so the result does not depend on scheduling.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

TILE = 4096  # knob: 2048 4096 8192
BLOCK_INNER = 64  # knob: 32 64 128
PROGRAMS = 1024  # knob: 512 1024 2048
NUM_WARPS = 8  # knob: 4 8


def _kernel(x_ref, y_ref, *, length, inner, span, block_r, block_i):
    """Rows [part * span, part * span + span) of one outer slice, for block_i inner columns."""
    column = pl.program_id(1) * block_i
    in_inner = jnp.arange(block_i) < inner - column
    first = pl.program_id(2) * span

    def add(step, total):
        start = first + step * block_r
        mask = (jnp.arange(block_r) < length - start)[:, None] & in_inner[None, :]
        part = x_ref.at[pl.ds(start, block_r), pl.ds(column, block_i)]
        return total + plt.load(part, mask=mask, other=0.0).astype(jnp.float32)

    zero = jnp.zeros((block_r, block_i), jnp.float32)
    total = jnp.sum(jax.lax.fori_loop(0, span // block_r, add, zero), axis=0)
    plt.store(y_ref, total.astype(y_ref.dtype), mask=in_inner)


def _reduce(x, dtype, parts, interpret):
    outer, length, inner = x.shape
    block_i = min(BLOCK_INNER, pl.next_power_of_2(inner))
    block_r = min(TILE // block_i, pl.next_power_of_2(length))
    span = pl.cdiv(pl.cdiv(length, parts), block_r) * block_r
    parts = pl.cdiv(length, span)
    return pl.pallas_call(
        partial(_kernel, length=length, inner=inner, span=span, block_r=block_r, block_i=block_i),
        grid=(outer, pl.cdiv(inner, block_i), parts),
        in_specs=[pl.BlockSpec((None, length, inner), lambda o, i, p: (o, 0, 0))],
        out_specs=pl.BlockSpec((None, None, block_i), lambda o, i, p: (p, o, i)),
        out_shape=jax.ShapeDtypeStruct((parts, outer, inner), dtype),
        compiler_params=plt.CompilerParams(num_warps=NUM_WARPS),
        interpret=interpret,
    )(x)


def sum(x, *, interpret=False):
    outer, length, inner = x.shape
    if x.size == 0:
        return jnp.zeros((outer, inner), x.dtype)
    programs = outer * pl.cdiv(inner, BLOCK_INNER)
    least = max(256, TILE // min(BLOCK_INNER, pl.next_power_of_2(inner)))
    parts = max(1, min(PROGRAMS // programs, length // least))
    if parts == 1:
        return _reduce(x, x.dtype, 1, interpret)[0]
    partial_sums = _reduce(x, jnp.float32, parts, interpret)
    together = partial_sums.reshape(1, -1, outer * inner)
    return _reduce(together, x.dtype, 1, interpret).reshape(outer, inner)
