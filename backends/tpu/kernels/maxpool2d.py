"""The largest element of each window: planes lie in lanes, and a block has the lines that its
windows share with the next."""

from functools import partial

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from portkern.backends.tpu.include.windows import apart, count, even, lines, padded, tap

OUTPUTS = 256  # knob: 64 128 256 512 1024
PLANES = 128


def _kernel(x_ref, y_ref, *, window):
    tall, wide, _ = y_ref.shape
    taps = [(dy, dx) for dy in range(window) for dx in range(window)]
    largest = tap(x_ref, 0, 0, tall, wide)
    for dy, dx in taps[1:]:
        largest = jnp.maximum(largest, tap(x_ref, dy, dx, tall, wide))
    y_ref[...] = largest


def maxpool2d(x, *, window, stride, padding, interpret=False):
    n, c, h, w = x.shape
    oh, ow = count(h, window, stride, padding), count(w, window, stride, padding)
    planes = n * c
    if planes * oh * ow == 0:
        return jnp.zeros((n, c, oh, ow), x.dtype)
    more = (window - 1) // stride  # lines that a window has of the next block
    wide, deep = even(ow), min(PLANES, planes)
    tall = max(1, min(oh, OUTPUTS // wide))
    tiles = pl.cdiv(oh, tall)
    image = x.reshape(1, planes, h, w).transpose(0, 2, 3, 1)
    size = (tiles * tall + more) * stride, (wide + more) * stride
    parts = apart(padded(image, -jnp.inf, padding, *size), stride, stride, deep)
    y = pl.pallas_call(
        partial(_kernel, window=window),
        grid=(tiles, parts.shape[1]),
        in_specs=[lines(parts, tall + more, lambda i, p: (0, p, i * tall))],
        out_specs=pl.BlockSpec((tall, wide, deep), lambda i, p: (i, 0, p)),
        out_shape=jax.ShapeDtypeStruct((tiles * tall, wide, planes), x.dtype),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel")),
        interpret=interpret,
    )(parts)
    return y[:oh, :ow].transpose(2, 0, 1).reshape(n, c, oh, ow)
