"""A tile of pooled outputs per program: the convolution at each place of their windows in turn, of
which the largest is kept. What windows share is computed again, nothing in between is written.

The convolution is a product of matrices: weights (f, terms) by gathered patches (terms, pixels).
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

BLOCK_F = 64  # knob: 32 64 128
BLOCK_PIXELS = 128  # knob: 64 128
BLOCK_K = 32  # knob: 16 32 64
NUM_WARPS = 8  # knob: 4 8
NUM_STAGES = 2  # knob: 2 3
# For float32, which runs on the ordinary multipliers.
BLOCK_F_F32 = 64  # knob: 32 64
BLOCK_PIXELS_F32 = 32  # knob: 32 64
BLOCK_K_F32 = 16  # knob: 16 32


def _kernel(x_ref, weight_ref, bias_ref, y_ref, *, image, kernel, strides, padding, window, blocks):
    (channels, height, width), (kh, kw), (stride, pool_stride) = image, kernel, strides
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
    first = (number * channels * height * width)[None, :]

    def convolve(place, highest):
        # Not // and %: of a loop's index the lowering has only the truncating ones.
        below, beside = jax.lax.div(place, window), jax.lax.rem(place, window)
        top = ((row * pool_stride + below) * stride - padding)[None, :]
        left = ((col * pool_stride + beside) * stride - padding)[None, :]
        corner = first + top * width + left

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
        return jnp.maximum(highest, total)

    lowest = jnp.full((block_f, block_p), -jnp.inf, jnp.float32)
    highest = jax.lax.fori_loop(0, window * window, convolve, lowest)
    bias = plt.load(bias_ref.at[pl.ds(start_f, block_f)], mask=in_feature, other=0.0)
    # Adding the bias and rectifying keep the order: once for the largest is enough.
    result = jnp.maximum(highest + bias.astype(jnp.float32)[:, None], 0.0)
    part = y_ref.at[number[None, :], feature[:, None], row[None, :], col[None, :]]
    plt.store(part, result.astype(y_ref.dtype), mask=in_feature[:, None] & in_pixel[None, :])


def _fit(length, block):
    """A smaller block for a smaller matrix; 16 is the least that every dot unit takes."""
    return max(16, min(block, pl.next_power_of_2(length)))


def conv2d_relu_maxpool(x, weight, bias, *, stride, padding, window, pool_stride, interpret=False):
    (n, *image), (features, channels, kh, kw) = x.shape, weight.shape
    convolved = [
        (length + 2 * padding - size) // stride + 1
        for length, size in zip(image[1:], (kh, kw), strict=True)
    ]
    oh, ow = ((length - window) // pool_stride + 1 for length in convolved)
    shape = (n, features, oh, ow)
    if 0 in shape:
        return jnp.empty(shape, x.dtype)
    strict = x.dtype == jnp.float32
    block_f = _fit(features, BLOCK_F_F32 if strict else BLOCK_F)
    block_p = _fit(n * oh * ow, BLOCK_PIXELS_F32 if strict else BLOCK_PIXELS)
    block_k = _fit(channels * kh * kw, BLOCK_K_F32 if strict else BLOCK_K)
    geometry = {"image": image, "kernel": (kh, kw), "padding": padding, "window": window}
    return pl.pallas_call(
        partial(
            _kernel, **geometry, strides=(stride, pool_stride), blocks=(block_f, block_p, block_k)
        ),
        grid=(pl.cdiv(n * oh * ow, block_p) * pl.cdiv(features, block_f),),
        out_shape=jax.ShapeDtypeStruct(shape, x.dtype),
        compiler_params=plt.CompilerParams(
            num_warps=min(NUM_WARPS, max(4, block_f * block_p // 1024)), num_stages=NUM_STAGES
        ),
        interpret=interpret,
    )(x.reshape(-1), weight.reshape(features, -1), bias)
