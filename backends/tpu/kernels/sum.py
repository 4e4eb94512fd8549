"""The sum over the middle axis, in a block of VMEM that stays while this is walked; where nothing
lies within, rows are summed along their lanes."""

from functools import partial

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

REDUCE = 256  # knob: 64 128 256 512
INNER = 256  # knob: 128 256 512
LANES = 2048  # knob: 1024 2048 4096
OUTER = 8


def _add(part, sum_ref, y_ref, axis, length):
    """Sums a block along its axis, without what lies behind the end."""
    step = pl.program_id(2)

    @pl.when(step == 0)
    def _():
        sum_ref[...] = jnp.zeros_like(sum_ref)

    place = jax.lax.broadcasted_iota(jnp.int32, part.shape, axis)
    there = place < length - step * part.shape[axis]
    sum_ref[...] += jnp.sum(jnp.where(there, part, 0.0), axis=axis).reshape(sum_ref.shape)

    @pl.when(step == pl.num_programs(2) - 1)
    def _():
        y_ref[...] = sum_ref[...].astype(y_ref.dtype)


def _kernel(x_ref, y_ref, sum_ref, *, axis, length):
    _add(x_ref[...].astype(jnp.float32), sum_ref, y_ref, axis, length)


def sum(x, *, interpret=False):
    outer, reduce, inner = x.shape
    if x.size == 0:
        return jnp.zeros((outer, inner), x.dtype)
    if inner == 1:
        x, width, block, last = x.reshape(outer, reduce), 1, (OUTER, LANES), lambda i, j, s: (i, s)
    else:
        width, block, last = INNER, (OUTER, REDUCE, INNER), lambda i, j, s: (i, s, j)
    steps = pl.cdiv(reduce, block[1])
    return pl.pallas_call(
        partial(_kernel, axis=1, length=reduce),
        grid=(pl.cdiv(outer, OUTER), pl.cdiv(inner, width), steps),
        in_specs=[pl.BlockSpec(block, last)],
        out_specs=pl.BlockSpec((OUTER, width), lambda i, j, s: (i, j)),
        out_shape=jax.ShapeDtypeStruct((outer, inner), x.dtype),
        scratch_shapes=[pltpu.VMEM((OUTER, width), jnp.float32)],
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel", "arbitrary")
        ),
        interpret=interpret,
    )(x)
