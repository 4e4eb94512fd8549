"""Convolution as a product of matrices: weights (f, terms) by the pixels' patches (terms, pixels),
which are gathered from x as they are needed and never written."""

from functools import partial

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

BLOCK_F = 64  # knob: 32 64 128
BLOCK_PIXELS = 128  # knob: 64 128
BLOCK_K = 32  # knob: 16 32 64
# For float32, which runs on the ordinary multipliers.
BLOCK_F32 = 64  # knob: 32 64
BLOCK_K_F32 = 16  # knob: 16 32
NUM_WARPS = 8  # knob: 4 8
NUM_STAGES = 2  # knob: 2 3


def _kernel(x_ref, weight_ref, bias_ref, y_ref, *, image, kernel, stride, padding, blocks):
    (channels, height, width), (kh, kw) = image, kernel
    block_f, block_p, block_k = blocks
    n, features, oh, ow = y_ref.shape
    terms = channels * kh * kw
    # Features are the faster axis of the grid: all of them read the same patches from the L2.
    tiles_f = pl.cdiv(features, block_f)
    start_f = pl.program_id(0) % tiles_f * block_f
    feature = start_f + jnp.arange(block_f)
    pixel = pl.program_id(0) // tiles_f * block_p + jnp.arange(block_p)
    number, row, col = pixel // (oh * ow), pixel % (oh * ow) // ow, pixel % ow
    in_feature, in_pixel = feature < features, number < n
    top, left = (row * stride - padding)[None, :], (col * stride - padding)[None, :]
    corner = (number * channels * height * width)[None, :] + top * width + left

    def step(index, total):
        start = index * block_k
        term = start + jnp.arange(block_k)
        channel, down, right = term // (kh * kw), term % (kh * kw) // kw, term % kw
        down, right, in_term = down[:, None], right[:, None], term < terms
        inside = (top + down >= 0) & (top + down < height)
        inside &= (left + right >= 0) & (left + right < width)
        offset = (channel * height * width)[:, None] + down * width + right
        mask = inside & in_term[:, None] & in_pixel[None, :]
        patch = plt.load(x_ref.at[corner + offset], mask=mask, other=0.0)
        part = weight_ref.at[pl.ds(start_f, block_f), pl.ds(start, block_k)]
        weight = plt.load(part, mask=in_feature[:, None] & in_term[None, :], other=0.0)
        precision = jax.lax.Precision.HIGHEST if patch.dtype == jnp.float32 else None
        dot = jnp.dot(weight, patch, precision=precision, preferred_element_type=jnp.float32)
        return total + dot

    zero = jnp.zeros((block_f, block_p), jnp.float32)
    total = jax.lax.fori_loop(0, pl.cdiv(terms, block_k), step, zero)
    bias = plt.load(bias_ref.at[pl.ds(start_f, block_f)], mask=in_feature, other=0.0)
    result = (total + bias.astype(jnp.float32)[:, None]).astype(y_ref.dtype)
    part = y_ref.at[number[None, :], feature[:, None], row[None, :], col[None, :]]
    plt.store(part, result, mask=in_feature[:, None] & in_pixel[None, :])


def _fit(length, block):
    """A smaller block for a smaller matrix; 16 is the least that every dot unit takes."""
    return max(16, min(block, pl.next_power_of_2(length)))


def conv2d(x, weight, bias, *, stride, padding, interpret=False):
    (n, *image), (features, channels, kh, kw) = x.shape, weight.shape
    oh = (x.shape[2] + 2 * padding - kh) // stride + 1
    ow = (x.shape[3] + 2 * padding - kw) // stride + 1
    shape = (n, features, oh, ow)
    if 0 in shape:
        return jnp.empty(shape, x.dtype)
    strict = x.dtype == jnp.float32
    block_f = _fit(features, BLOCK_F32 if strict else BLOCK_F)
    block_p = _fit(n * oh * ow, BLOCK_F32 if strict else BLOCK_PIXELS)
    block_k = _fit(channels * kh * kw, BLOCK_K_F32 if strict else BLOCK_K)
    geometry = {"image": image, "kernel": (kh, kw), "stride": stride, "padding": padding}
    return pl.pallas_call(
        partial(_kernel, **geometry, blocks=(block_f, block_p, block_k)),
        grid=(pl.cdiv(n * oh * ow, block_p) * pl.cdiv(features, block_f),),
        out_shape=jax.ShapeDtypeStruct(shape, x.dtype),
        compiler_params=plt.CompilerParams(
            num_warps=min(NUM_WARPS, max(4, block_f * block_p // 1024)), num_stages=NUM_STAGES
        ),
        interpret=interpret,
    )(x.reshape(-1), weight.reshape(features, -1), bias)
