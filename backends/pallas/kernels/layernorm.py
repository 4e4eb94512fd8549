"""Layer normalisation of each row: held in registers when it fits, else three passes.

The mean is taken twice, the second time of what is left after subtracting the first: where the
mean is far larger than the deviation, its rounding error would otherwise be the result's.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

RESIDENT = 16384  # knob: 4096 8192 16384
LOOP_BLOCK = 8192  # knob: 2048 4096 8192
TILE = 2048  # knob: 1024 2048 4096
PER_THREAD = 16  # knob: 8 16 32


def _resident(x_ref, weight_ref, bias_ref, y_ref, *, rows, cols, eps):
    tile_rows, block = x_ref.shape
    row = pl.program_id(0) * tile_rows + jnp.arange(tile_rows)
    in_row = jnp.arange(block) < cols
    mask = (row < rows)[:, None] & in_row[None, :]
    value = plt.load(x_ref, mask=mask, other=0.0).astype(jnp.float32)
    value = jnp.where(mask, value - (jnp.sum(value, axis=1) / cols)[:, None], 0.0)
    value = jnp.where(mask, value - (jnp.sum(value, axis=1) / cols)[:, None], 0.0)
    scale = 1.0 / jnp.sqrt(jnp.sum(value * value, axis=1) / cols + eps)
    gain = plt.load(weight_ref, mask=in_row, other=0.0).astype(jnp.float32)
    shift = plt.load(bias_ref, mask=in_row, other=0.0).astype(jnp.float32)
    result = value * scale[:, None] * gain[None, :] + shift[None, :]
    plt.store(y_ref, result.astype(y_ref.dtype), mask=mask)


def _looped(x_ref, weight_ref, bias_ref, y_ref, *, cols, eps):
    steps = pl.cdiv(cols, LOOP_BLOCK)
    zero = jnp.zeros((LOOP_BLOCK,), jnp.float32)

    def part(step):
        mask = jnp.arange(LOOP_BLOCK) < cols - step * LOOP_BLOCK
        return pl.ds(step * LOOP_BLOCK, LOOP_BLOCK), mask

    def load(ref, mask):
        return plt.load(ref, mask=mask, other=0.0).astype(jnp.float32)

    def add(step, total):
        where, mask = part(step)
        return total + load(x_ref.at[where], mask)

    mean = jnp.sum(jax.lax.fori_loop(0, steps, add, zero)) / cols

    def deviate(step, carry):
        rest, squares = carry
        where, mask = part(step)
        value = jnp.where(mask, load(x_ref.at[where], mask) - mean, 0.0)
        return rest + value, squares + value * value

    rest, squares = jax.lax.fori_loop(0, steps, deviate, (zero, zero))
    correction = jnp.sum(rest) / cols
    scale = 1.0 / jnp.sqrt(jnp.sum(squares) / cols - correction * correction + eps)

    def write(step, carry):
        where, mask = part(step)
        value = (load(x_ref.at[where], mask) - mean - correction) * scale
        result = value * load(weight_ref.at[where], mask) + load(bias_ref.at[where], mask)
        plt.store(y_ref.at[where], result.astype(y_ref.dtype), mask=mask)
        return carry

    jax.lax.fori_loop(0, steps, write, 0)


def layernorm(x, weight, bias, *, eps, interpret=False):
    rows, cols = x.shape
    if x.size == 0:
        return jnp.empty_like(x)
    if cols > RESIDENT:
        kernel, tile_rows, warps = partial(_looped, cols=cols, eps=eps), 1, 16
        block = pl.cdiv(cols, LOOP_BLOCK) * LOOP_BLOCK
        tile = pl.BlockSpec((None, block), lambda i: (i, 0))
    else:
        block = pl.next_power_of_2(cols)
        tile_rows = max(1, TILE // block)
        kernel = partial(_resident, rows=rows, cols=cols, eps=eps)
        warps = max(1, min(16, tile_rows * block // (32 * PER_THREAD)))
        tile = pl.BlockSpec((tile_rows, block), lambda i: (i, 0))
    vector = pl.BlockSpec((block,), lambda i: (0,))
    return pl.pallas_call(
        kernel,
        grid=(pl.cdiv(rows, tile_rows),),
        in_specs=[tile, vector, vector],
        out_specs=tile,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        compiler_params=plt.CompilerParams(num_warps=warps),
        interpret=interpret,
    )(x, weight, bias)
