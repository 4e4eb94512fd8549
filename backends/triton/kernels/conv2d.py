"""Convolution as a product: the weights, (f, c * kh * kw), times what each pixel's window holds,
which is gathered tile by tile as it is multiplied; accumulated in float32. Inputs of float32 keep
their precision, but for TF32 = 1."""

import torch
import triton
import triton.language as tl

BLOCK_F = 64  # knob: 32 64 128
BLOCK_P = 128  # knob: 64 128
BLOCK_K = 32  # knob: 32 64
NUM_WARPS = 8  # knob: 4 8
NUM_STAGES = 3  # knob: 2 3 4
BLOCK_F32 = 64  # knob: 32 64 128
BLOCK_K_F32 = 16  # knob: 16 32
TF32 = 0  # knob: 0 1


@triton.jit
def _conv2d(
    x,
    weight,
    bias,
    y,
    n,
    c,
    h,
    w,
    f,
    oh,
    ow,
    stride,
    padding,
    KH: tl.constexpr,
    KW: tl.constexpr,
    BLOCK_F: tl.constexpr,
    BLOCK_P: tl.constexpr,
    BLOCK_K: tl.constexpr,
    PRECISION: tl.constexpr,
):
    tiles_f = tl.cdiv(f, BLOCK_F)
    plane = oh * ow
    feature = tl.program_id(0) % tiles_f * BLOCK_F + tl.arange(0, BLOCK_F)
    # Pixels are counted through all images in 64 bits; within an image, 32 are quicker to divide.
    start = (tl.program_id(0) // tiles_f).to(tl.int64) * BLOCK_P
    pixel = (start % plane).to(tl.int32) + tl.arange(0, BLOCK_P)
    image = start // plane + pixel // plane
    pixel = pixel % plane
    top = pixel // ow * stride - padding
    left = pixel % ow * stride - padding
    corner = x + image * c * h * w + top * w + left
    total = tl.zeros((BLOCK_F, BLOCK_P), tl.float32)
    for first in range(0, c * KH * KW, BLOCK_K):
        depth = first + tl.arange(0, BLOCK_K)
        in_depth = depth < c * KH * KW
        channel, tap = depth // (KH * KW), depth % (KH * KW)
        down, across = tap // KW, tap % KW
        row = top[None, :] + down[:, None]
        col = left[None, :] + across[:, None]
        inside = (row >= 0) & (row < h) & (col >= 0) & (col < w)
        inside = inside & in_depth[:, None] & (image < n)[None, :]
        offset = (channel.to(tl.int64) * h + down) * w + across
        window = tl.load(corner[None, :] + offset[:, None], mask=inside, other=0.0)
        w_tile = weight + feature.to(tl.int64)[:, None] * (c * KH * KW) + depth[None, :]
        w_mask = (feature < f)[:, None] & in_depth[None, :]
        w_value = tl.load(w_tile, mask=w_mask, other=0.0)
        total = tl.dot(w_value, window, total, input_precision=PRECISION)
    total += tl.load(bias + feature, mask=feature < f, other=0.0).to(tl.float32)[:, None]
    target = y + (image[None, :] * f + feature[:, None]) * plane + pixel[None, :]
    mask = (feature < f)[:, None] & (image < n)[None, :]
    tl.store(target, total.to(y.dtype.element_ty), mask=mask)


def _precision(x):
    """How a dot multiplies float32: as it is, or as TF32 where that is asked for and NVIDIA's."""
    if not TF32 or x.dtype != torch.float32 or not x.is_cuda:
        return "ieee"
    return "tf32" if triton.runtime.driver.active.get_current_target().backend == "cuda" else "ieee"


def _fit(length, block):
    """A smaller block for a smaller side; 16 is the least that every dot unit takes."""
    return max(16, min(block, triton.next_power_of_2(length)))


def conv2d(x, weight, bias, y, stride, padding):
    (n, c, h, w), (f, _, kh, kw) = x.shape, weight.shape
    oh, ow = y.shape[2:]
    if y.numel() == 0:
        return
    strict = x.dtype == torch.float32
    block_f = _fit(f, BLOCK_F32 if strict else BLOCK_F)
    block_p = _fit(n * oh * ow, BLOCK_F32 if strict else BLOCK_P)
    block_k = _fit(c * kh * kw, BLOCK_K_F32 if strict else BLOCK_K)
    grid = (triton.cdiv(f, block_f) * triton.cdiv(n * oh * ow, block_p),)
    _conv2d[grid](
        x,
        weight,
        bias,
        y,
        n,
        c,
        h,
        w,
        f,
        oh,
        ow,
        stride,
        padding,
        KH=kh,
        KW=kw,
        BLOCK_F=block_f,
        BLOCK_P=block_p,
        BLOCK_K=block_k,
        PRECISION=_precision(x),
        num_warps=min(NUM_WARPS, max(4, block_f * block_p // 1024)),
        num_stages=NUM_STAGES,
    )
