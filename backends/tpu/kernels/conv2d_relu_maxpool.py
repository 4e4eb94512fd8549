"""Convolution with bias, rectified and pooled: what is convolved stays in VMEM."""

from functools import partial

import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from portkern.backends.tpu.include.convolution import arranged, convolution, size

OUTPUTS = 512  # knob: 128 256 512 1024


def conv2d_relu_maxpool(x, weight, bias, *, stride, padding, window, pool_stride, interpret=False):
    pool = window, pool_stride
    n, f, oh, ow = size(x, weight, stride, padding, pool)
    if n * f * oh * ow == 0:
        return jnp.zeros((n, f, oh, ow), x.dtype)
    operands, asked = arranged(
        x, weight, bias, stride=stride, padding=padding, outputs=OUTPUTS, pool=pool
    )
    y = pl.pallas_call(
        partial(convolution, pool=pool),
        **asked,
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel", "parallel", "arbitrary")
        ),
        interpret=interpret,
    )(*operands)
    return y[:, :oh, :ow].transpose(0, 3, 1, 2)
