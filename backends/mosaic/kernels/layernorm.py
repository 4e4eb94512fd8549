"""Layer normalisation, its mean taken out before squares are summed: a program holds a row in
registers, or goes over its parts three times."""

from functools import partial

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

PART = 8192  # knob: 2048 4096 8192
LANES = 128


def _kernel(
    x_ref, weight_ref, bias_ref, y_ref, tile, weights, biases, came, weighed, *, parts, cols, eps
):
    row = jax.lax.axis_index("row")
    tall = tile.shape[0]

    def load(part):
        plgpu.copy_gmem_to_smem(x_ref.at[row, pl.ds(part * tall, tall)], tile, came)
        plgpu.barrier_wait(came)
        return tile[...].astype(jnp.float32)

    def centred(part, mean, off=0.0):
        """What pads the row is no part of it: 0, as its mean is."""
        place = jax.lax.broadcasted_iota(jnp.int32, tile.shape, 0) * LANES
        place += jax.lax.broadcasted_iota(jnp.int32, tile.shape, 1)
        x = value(part) - mean - off
        return jnp.where(place < cols - part * (tall * LANES), x, 0.0)

    def store(part, x, scale):
        at = pl.ds(part * tall, tall)
        plgpu.copy_gmem_to_smem(weight_ref.at[at], weights, weighed)
        plgpu.copy_gmem_to_smem(bias_ref.at[at], biases, weighed)
        plgpu.barrier_wait(weighed)
        y = x * scale * weights[...].astype(jnp.float32) + biases[...].astype(jnp.float32)
        tile[...] = y.astype(tile.dtype)
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(tile, y_ref.at[row, at])
        plgpu.wait_smem_to_gmem(0)

    def over_row(step, start):
        return step(0, start) if parts == 1 else jax.lax.fori_loop(0, parts, step, start)

    held = load(0) if parts == 1 else None

    def value(part):
        return load(part) if held is None else held

    def mean_of(what):
        return over_row(lambda part, total: total + jnp.sum(what(part)), jnp.float32(0)) / cols

    mean = mean_of(value)
    # Once more: the rounded mean of a row that is far from 0 is not its centre.
    off = mean_of(lambda part: centred(part, mean))
    variance = mean_of(lambda part: centred(part, mean, off) ** 2)

    def scatter(part, carry):
        store(part, value(part) - mean - off, jax.lax.rsqrt(variance + eps))
        return carry

    over_row(scatter, 0)


def layernorm(x, weight, bias, *, eps, interpret=False):
    rows, cols = x.shape
    if x.size == 0:
        return jnp.empty_like(x)
    parts = pl.cdiv(cols, PART)
    tall = pl.cdiv(cols, parts * LANES)
    shape = (rows, parts * tall, LANES)
    tail = parts * tall * LANES - cols
    of_row = [jnp.pad(one, (0, tail)).reshape(shape[1:]) for one in (weight, bias)]
    y = plgpu.kernel(
        partial(_kernel, parts=parts, cols=cols, eps=eps),
        out_type=jax.ShapeDtypeStruct(shape, x.dtype),
        grid=(rows,),
        grid_names=("row",),
        scratch_types=[
            plgpu.SMEM((tall, LANES), x.dtype),
            plgpu.SMEM((tall, LANES), weight.dtype),
            plgpu.SMEM((tall, LANES), bias.dtype),
            plgpu.Barrier(),
            plgpu.Barrier(num_arrivals=2),
        ],
        # Here iotas take the layout of what they are compared with.
        compiler_params=plgpu.CompilerParams(lowering_semantics=plgpu.LoweringSemantics.Warpgroup),
        kernel_name="layernorm",
        interpret=interpret,
    )(jnp.pad(x, ((0, 0), (0, tail))).reshape(shape), *of_row)
    return y.reshape(rows, -1)[:, :cols]
