"""The largest element of each window, one output per lane: the window's elements in turn."""

from functools import partial

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

BLOCK = 512  # knob: 256 512 1024
NUM_WARPS = 4  # knob: 2 4 8


def _kernel(x_ref, y_ref, *, planes, height, width, oh, ow, window, stride, padding):
    output = pl.program_id(0) * BLOCK + jnp.arange(BLOCK)
    in_output = output < planes * oh * ow
    plane = output // (oh * ow)
    top = output % (oh * ow) // ow * stride - padding
    left = output % ow * stride - padding

    def row(index, best):
        at_row = top + index
        in_row = in_output & (at_row >= 0) & (at_row < height)
        for offset in range(window):
            at_col = left + offset
            mask = in_row & (at_col >= 0) & (at_col < width)
            part = x_ref.at[(plane * height + at_row) * width + at_col]
            value = plt.load(part, mask=mask, other=-jnp.inf).astype(jnp.float32)
            # Not jnp.maximum: its lowering drops a NaN beside a number.
            best = jnp.where((value > best) | (value != value), value, best)
        return best

    lowest = jnp.full((BLOCK,), -jnp.inf, jnp.float32)
    best = jax.lax.fori_loop(0, window, row, lowest)
    plt.store(y_ref, best.astype(y_ref.dtype), mask=in_output)


def maxpool2d(x, *, window, stride, padding, interpret=False):
    n, c, height, width = x.shape
    oh = (height + 2 * padding - window) // stride + 1
    ow = (width + 2 * padding - window) // stride + 1
    shape = (n, c, oh, ow)
    size = n * c * oh * ow
    if size == 0:
        return jnp.empty(shape, x.dtype)
    sizes = {"planes": n * c, "height": height, "width": width, "oh": oh, "ow": ow}
    pooled = pl.pallas_call(
        partial(_kernel, **sizes, window=window, stride=stride, padding=padding),
        grid=(pl.cdiv(size, BLOCK),),
        in_specs=[pl.BlockSpec((x.size,), lambda i: (0,))],
        out_specs=pl.BlockSpec((BLOCK,), lambda i: (i,)),
        out_shape=jax.ShapeDtypeStruct((size,), x.dtype),
        compiler_params=plt.CompilerParams(num_warps=NUM_WARPS),
        interpret=interpret,
    )(x.reshape(-1))
    return pooled.reshape(shape)
