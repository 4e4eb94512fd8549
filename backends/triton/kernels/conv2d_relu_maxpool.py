"""Convolution as a product of the weights, (f, c * kh * kw), and what each pixel's window holds,
once for each place in a pool's window: the largest is kept in registers. Where pools overlap that
would convolve pixels again, so the rectified convolution goes through scratch memory, which the L2
holds much of, and is pooled from there.

Of many channels, a tile's depth is channels of one tap of the filter: what of it lies inside the
image is asked once for all of them.
"""

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
PROGRAMS = 128  # knob: 0 128 256
TF32 = 0  # knob: 0 1
TILE_POOL = 1024  # knob: 512 1024 2048


@triton.jit
def _convolve(
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
    window,
    pool_stride,
    KH: tl.constexpr,
    KW: tl.constexpr,
    BY_TAP: tl.constexpr,
    BLOCK_F: tl.constexpr,
    BLOCK_P: tl.constexpr,
    BLOCK_K: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """The largest of a window by window square of convolved pixels, or 0: for a window of 1 that
    is the rectified convolution itself."""
    tiles_f = tl.cdiv(f, BLOCK_F)
    plane = oh * ow
    feature = tl.program_id(0) % tiles_f * BLOCK_F + tl.arange(0, BLOCK_F)
    # Pixels are counted through all images in 64 bits; within an image, 32 are quicker to divide.
    start = (tl.program_id(0) // tiles_f).to(tl.int64) * BLOCK_P
    pixel = (start % plane).to(tl.int32) + tl.arange(0, BLOCK_P)
    image = start // plane + pixel // plane
    pixel = pixel % plane
    shift = tl.load(bias + feature, mask=feature < f, other=0.0).to(tl.float32)[:, None]
    w_row = weight + feature.to(tl.int64)[:, None] * (c * KH * KW)
    best = tl.zeros((BLOCK_F, BLOCK_P), tl.float32)
    for place in range(window * window):
        top = (pixel // ow * pool_stride + place // window) * stride - padding
        left = (pixel % ow * pool_stride + place % window) * stride - padding
        corner = x + image * c * h * w + top * w + left
        total = tl.zeros((BLOCK_F, BLOCK_P), tl.float32)
        if BY_TAP:
            for tap in range(KH * KW):
                down, across = tap // KW, tap % KW
                row, col = top + down, left + across
                inside = (row >= 0) & (row < h) & (col >= 0) & (col < w) & (image < n)
                first_channel = corner + down * w + across
                for first in range(0, c, BLOCK_K):
                    channel = first + tl.arange(0, BLOCK_K)
                    there = first_channel[None, :] + channel.to(tl.int64)[:, None] * (h * w)
                    in_patch = inside[None, :] & (channel < c)[:, None]
                    patch = tl.load(there, mask=in_patch, other=0.0)
                    w_mask = (feature < f)[:, None] & (channel < c)[None, :]
                    w_tile = w_row + channel[None, :] * (KH * KW) + tap
                    w_value = tl.load(w_tile, mask=w_mask, other=0.0)
                    total = tl.dot(w_value, patch, total, input_precision=PRECISION)
        else:
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
                patch = tl.load(corner[None, :] + offset[:, None], mask=inside, other=0.0)
                w_mask = (feature < f)[:, None] & in_depth[None, :]
                w_value = tl.load(w_row + depth[None, :], mask=w_mask, other=0.0)
                total = tl.dot(w_value, patch, total, input_precision=PRECISION)
        best = tl.maximum(best, total + shift)
    target = y + (image[None, :] * f + feature[:, None]) * plane + pixel[None, :]
    mask = (feature < f)[:, None] & (image < n)[None, :]
    tl.store(target, best.to(y.dtype.element_ty), mask=mask)


@triton.jit
def _pool(
    x,
    y,
    planes,
    h,
    w,
    oh,
    ow,
    stride,
    WINDOW: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Rounding keeps the order, so the largest rounded number is the largest one rounded."""
    tiles = tl.cdiv(oh * ow, BLOCK)
    plane = (tl.program_id(0) // tiles).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    pixel = tl.program_id(0) % tiles * BLOCK + tl.arange(0, BLOCK)[None, :]
    mask = (plane < planes) & (pixel < oh * ow)
    corner = x + plane * h * w + (pixel // ow * w + pixel % ow) * stride
    best = tl.zeros((ROWS, BLOCK), tl.float32)
    for dy in range(WINDOW):
        for dx in tl.static_range(WINDOW):
            value = tl.load(corner + dy * w + dx, mask=mask, other=0.0).to(tl.float32)
            best = tl.maximum(best, value)
    tl.store(y + plane * oh * ow + pixel, best.to(y.dtype.element_ty), mask=mask)


def _precision(x):
    """How a dot multiplies float32: as it is, or as TF32 where that is asked for and NVIDIA's."""
    if not TF32 or x.dtype != torch.float32 or not x.is_cuda:
        return "ieee"
    return "tf32" if triton.runtime.driver.active.get_current_target().backend == "cuda" else "ieee"


def _fit(length, block):
    """A smaller block for a smaller side; 16 is the least that every dot unit takes."""
    return max(16, min(block, triton.next_power_of_2(length)))


def _by_tap(channels, block):
    """Whether tiles of a depth of so many channels are at most a third larger than these are."""
    return 4 * channels >= 3 * triton.cdiv(channels, block) * block


def _blocks(features, pixels, most_features, most_pixels):
    """Smaller tiles where there are few."""
    block_f, block_p = _fit(features, most_features), _fit(pixels, most_pixels)
    while triton.cdiv(features, block_f) * triton.cdiv(pixels, block_p) < PROGRAMS and block_p > 16:
        block_p //= 2
    return block_f, block_p


def _launch(x, weight, bias, y, stride, padding, window, pool_stride):
    (n, c, h, w), (f, _, kh, kw) = x.shape, weight.shape
    oh, ow = y.shape[2:]
    strict = x.dtype == torch.float32
    most_f, most_p = (BLOCK_F32, BLOCK_F32) if strict else (BLOCK_F, BLOCK_P)
    block_f, block_p = _blocks(f, n * oh * ow, most_f, most_p)
    block_k = _fit(c * kh * kw, BLOCK_K_F32 if strict else BLOCK_K)
    grid = (triton.cdiv(f, block_f) * triton.cdiv(n * oh * ow, block_p),)
    _convolve[grid](
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
        window,
        pool_stride,
        KH=kh,
        KW=kw,
        BY_TAP=_by_tap(c, block_k),
        BLOCK_F=block_f,
        BLOCK_P=block_p,
        BLOCK_K=block_k,
        PRECISION=_precision(x),
        num_warps=min(NUM_WARPS, max(4, block_f * block_p // 1024)),
        num_stages=NUM_STAGES,
    )


def conv2d_relu_maxpool(x, weight, bias, y, stride, padding, window, pool_stride):
    n, f, oh, ow = y.shape
    if y.numel() == 0:
        return
    if window <= pool_stride:
        _launch(x, weight, bias, y, stride, padding, window, pool_stride)
        return
    # As many rows and columns as the pools reach.
    height, width = (oh - 1) * pool_stride + window, (ow - 1) * pool_stride + window
    scratch = torch.empty((n, f, height, width), dtype=y.dtype, device=y.device)
    _launch(x, weight, bias, scratch, stride, padding, 1, 1)
    block = min(TILE_POOL, triton.next_power_of_2(oh * ow))
    rows = TILE_POOL // block
    grid = (triton.cdiv(n * f, rows) * triton.cdiv(oh * ow, block),)
    _pool[grid](
        scratch,
        y,
        n * f,
        height,
        width,
        oh,
        ow,
        pool_stride,
        WINDOW=window,
        ROWS=rows,
        BLOCK=block,
        num_warps=4,
    )
