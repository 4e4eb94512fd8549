"""Convolution as a product: the weights, (f, c * kh * kw), times what each pixel's window holds,
which is gathered tile by tile as it is multiplied; accumulated in float32. Inputs of float32 keep
their precision, but for TF32 = 1.

Of many channels, image and weights are copied with channels last before: a tile's depth is channels
of one tap of the filter then, which come 16 bytes at a time while others are multiplied.

Where tiles are few, programs share their depth out: the parts' sums are scratch, and a last launch
adds them up.
"""

import torch
import triton
import triton.language as tl

BLOCK_F = 128  # knob: 32 64 128
BLOCK_P = 128  # knob: 64 128
BLOCK_K = 32  # knob: 32 64
BLOCK_K_LAST = 64  # knob: 32 64 128
NUM_WARPS = 4  # knob: 4 8
NUM_STAGES = 3  # knob: 2 3 4
BLOCK_F32 = 64  # knob: 32 64 128
BLOCK_K_F32 = 16  # knob: 16 32
NUM_WARPS_F32 = 2  # knob: 2 4
PROGRAMS = 128  # knob: 0 128 256
# For tiles whose depth is shared out: so many programs, each with so much depth or more.
PROGRAMS_DEEP = 256  # knob: 128 256 512
LEAST_DEPTH = 256  # knob: 128 256 512
LEAST_DEPTH_F32 = 64  # knob: 32 64 128
NUM_WARPS_DEEP_F32 = 4  # knob: 2 4 8
TF32 = 0  # knob: 0 1
LEAST = 16  # that every dot unit takes
MANY = 16  # knob: 8 16 32
# Multiplications from which copying pays.
LAST_FROM = 16777216  # knob: 0 4194304 16777216


@triton.jit
def _tile(f, pixels, BLOCK_F: tl.constexpr, BLOCK_P: tl.constexpr, ACROSS: tl.constexpr):
    """The program's features, and its pixels with their images: of one image, so that what is
    written lies together, or (ACROSS) of as many as it takes, where they have few pixels."""
    tiles_f = tl.cdiv(f, BLOCK_F)
    feature = tl.program_id(0) % tiles_f * BLOCK_F + tl.arange(0, BLOCK_F)
    tile = tl.program_id(0) // tiles_f
    if ACROSS:
        # All images' pixels are counted in 64 bits; within an image, 32 are quicker to divide.
        start = tile.to(tl.int64) * BLOCK_P
        pixel = (start % pixels).to(tl.int32) + tl.arange(0, BLOCK_P)
        image = start // pixels + pixel // pixels
        pixel %= pixels
    else:
        tiles_p = tl.cdiv(pixels, BLOCK_P)
        image = tl.zeros((BLOCK_P,), tl.int64) + tile // tiles_p
        pixel = tile % tiles_p * BLOCK_P + tl.arange(0, BLOCK_P)
    return feature, image, pixel


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
    ow,
    pixels,
    stride,
    padding,
    span,
    KH: tl.constexpr,
    KW: tl.constexpr,
    BLOCK_F: tl.constexpr,
    BLOCK_P: tl.constexpr,
    BLOCK_K: tl.constexpr,
    ACROSS: tl.constexpr,
    PARTS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    feature, image, pixel = _tile(f, pixels, BLOCK_F, BLOCK_P, ACROSS)
    there = (image < n) & (pixel < pixels)
    top = pixel // ow * stride - padding
    left = pixel % ow * stride - padding
    corner = x + image * c * h * w + top * w + left
    total = tl.zeros((BLOCK_F, BLOCK_P), tl.float32)
    begin = tl.program_id(1) * span
    for first in range(begin, tl.minimum(c * KH * KW, begin + span), BLOCK_K):
        depth = first + tl.arange(0, BLOCK_K)
        in_depth = depth < c * KH * KW
        channel, tap = depth // (KH * KW), depth % (KH * KW)
        down, across = tap // KW, tap % KW
        row = top[None, :] + down[:, None]
        col = left[None, :] + across[:, None]
        inside = (row >= 0) & (row < h) & (col >= 0) & (col < w)
        inside = inside & in_depth[:, None] & there[None, :]
        offset = (channel.to(tl.int64) * h + down) * w + across
        window = tl.load(corner[None, :] + offset[:, None], mask=inside, other=0.0)
        w_tile = weight + feature.to(tl.int64)[:, None] * (c * KH * KW) + depth[None, :]
        w_mask = (feature < f)[:, None] & in_depth[None, :]
        w_value = tl.load(w_tile, mask=w_mask, other=0.0)
        total = tl.dot(w_value, window, total, input_precision=PRECISION)
    if PARTS:
        y += tl.program_id(1).to(tl.int64) * n * f * pixels
    else:
        total += tl.load(bias + feature, mask=feature < f, other=0.0).to(tl.float32)[:, None]
    target = y + (image[None, :] * f + feature[:, None]) * pixels + pixel[None, :]
    mask = (feature < f)[:, None] & there[None, :]
    tl.store(target, total.to(y.dtype.element_ty), mask=mask)


@triton.jit
def _channels_last(x, y, channels, pixels, width, BLOCK_C: tl.constexpr, BLOCK_P: tl.constexpr):
    """(..., channels, pixels) as (..., pixels, width), zeros for channels that x does not have."""
    tiles_p = tl.cdiv(pixels, BLOCK_P)
    tiles = tl.cdiv(width, BLOCK_C) * tiles_p
    image = (tl.program_id(0) // tiles).to(tl.int64)
    tile = tl.program_id(0) % tiles
    channel = tile // tiles_p * BLOCK_C + tl.arange(0, BLOCK_C)
    pixel = tile % tiles_p * BLOCK_P + tl.arange(0, BLOCK_P)
    source = x + image * channels * pixels + channel.to(tl.int64)[:, None] * pixels + pixel[None, :]
    mask = (channel < channels)[:, None] & (pixel < pixels)[None, :]
    value = tl.load(source, mask=mask, other=0.0)
    target = y + image * pixels * width + pixel.to(tl.int64)[:, None] * width + channel[None, :]
    mask = (pixel < pixels)[:, None] & (channel < width)[None, :]
    tl.store(target, tl.trans(value), mask=mask)


@triton.jit
def _conv2d_last(
    x,
    weight,
    bias,
    y,
    n,
    h,
    w,
    width,
    f,
    ow,
    pixels,
    stride,
    padding,
    span,
    KH: tl.constexpr,
    KW: tl.constexpr,
    BLOCK_F: tl.constexpr,
    BLOCK_P: tl.constexpr,
    BLOCK_K: tl.constexpr,
    ACROSS: tl.constexpr,
    PARTS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Of images (n, h, w, width) and weights (f, kh, kw, width); both kernels multiply the depth
    ``[part * span, part * span + span)``, and write the sum as it is where there are PARTS."""
    feature, image, pixel = _tile(f, pixels, BLOCK_F, BLOCK_P, ACROSS)
    there = (image < n) & (pixel < pixels)
    top = pixel // ow * stride - padding
    left = pixel % ow * stride - padding
    channel = tl.arange(0, BLOCK_K)
    w_row = weight + feature.to(tl.int64)[:, None] * (KH * KW * width) + channel[None, :]
    total = tl.zeros((BLOCK_F, BLOCK_P), tl.float32)
    start = tl.program_id(1) * span
    for first in range(start, tl.minimum(KH * KW * width, start + span), BLOCK_K):
        tap = first // width
        row, col = top + tap // KW, left + tap % KW
        inside = (row >= 0) & (row < h) & (col >= 0) & (col < w) & there
        # Triton 3.6 does not see by itself that this is a multiple.
        begin = tl.multiple_of(((image * h + row) * w + col) * width + first % width, 16)
        window = tl.load(x + begin[:, None] + channel[None, :], mask=inside[:, None], other=0.0)
        w_value = tl.load(w_row + first, mask=(feature < f)[:, None], other=0.0)
        total = tl.dot(w_value, tl.trans(window), total, input_precision=PRECISION)
    if PARTS:
        y += tl.program_id(1).to(tl.int64) * n * f * pixels
    else:
        total += tl.load(bias + feature, mask=feature < f, other=0.0).to(tl.float32)[:, None]
    target = y + (image[None, :] * f + feature[:, None]) * pixels + pixel[None, :]
    mask = (feature < f)[:, None] & there[None, :]
    tl.store(target, total.to(y.dtype.element_ty), mask=mask)


@triton.jit
def _together(sums, bias, y, count, parts, f, pixels, MANY: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    part = tl.arange(0, MANY)[:, None]
    source = sums + part.to(tl.int64) * count + at[None, :]
    value = tl.load(source, mask=(part < parts) & (at < count)[None, :], other=0.0)
    shift = tl.load(bias + at // pixels % f, mask=at < count, other=0.0).to(tl.float32)
    result = tl.sum(value, axis=0) + shift
    tl.store(y + at, result.to(y.dtype.element_ty), mask=at < count)


def _target(x):
    """Whose GPU it lies on, ``cuda`` or ``hip``; empty where none is."""
    return triton.runtime.driver.active.get_current_target().backend if x.is_cuda else ""


def _precision(x):
    """How a dot multiplies float32: as it is, or as TF32 where that is asked for and NVIDIA's."""
    return "tf32" if TF32 and x.dtype == torch.float32 and _target(x) == "cuda" else "ieee"


# What is on its way to LDS is in registers on AMD, which have no room for two stages of it, nor for
# one beside 64 sums of a lane.
def _stages(x):
    return min(NUM_STAGES, 2) if _target(x) == "hip" else NUM_STAGES


def _warps(x, parts):
    if x.dtype != torch.float32:
        return NUM_WARPS
    # Parts' programs are few, and leave registers for more warps, which wait less for each other.
    return NUM_WARPS_DEEP_F32 if parts > 1 or _target(x) == "hip" else NUM_WARPS_F32


def _fit(length, block):
    """A smaller block for a smaller side."""
    return max(LEAST, min(block, triton.next_power_of_2(length)))


def _with_channels_last(x, width):
    images, channels = x.shape[:2]
    pixels = x.shape[2] * x.shape[3]
    if pixels == 1 and width == channels:
        return x
    y = torch.empty((images, pixels, width), dtype=x.dtype, device=x.device)
    block_c = min(64, triton.next_power_of_2(width))
    block_p = min(64, triton.next_power_of_2(pixels))
    tiles = triton.cdiv(width, block_c) * triton.cdiv(pixels, block_p)
    _channels_last[(images * tiles,)](
        x, y, channels, pixels, width, BLOCK_C=block_c, BLOCK_P=block_p
    )
    return y


def _tiles(features, images, pixels, depth, strict):
    """Features and pixels of a tile, whether it has those of several images, how many there are
    and in how many parts their depth is. Where tiles are few and not deep, they are smaller."""
    most_f, most_p = (BLOCK_F32, BLOCK_F32) if strict else (BLOCK_F, BLOCK_P)
    across = 2 * pixels <= LEAST
    if across:
        images, pixels = 1, images * pixels
    block_f, block_p = _fit(features, most_f), _fit(pixels, most_p)

    def count():
        return triton.cdiv(features, block_f) * images * triton.cdiv(pixels, block_p)

    parts = depth // (LEAST_DEPTH_F32 if strict else LEAST_DEPTH)
    if 2 * count() <= PROGRAMS and parts > 1:
        return block_f, block_p, across, count(), min(parts, PROGRAMS_DEEP // count())
    while count() < PROGRAMS and block_p > LEAST:
        block_p //= 2
    return block_f, block_p, across, count(), 1


def conv2d(x, weight, bias, y, stride, padding):
    (n, c, h, w), (f, _, kh, kw) = x.shape, weight.shape
    oh, ow = y.shape[2:]
    if y.numel() == 0:
        return
    strict = x.dtype == torch.float32
    block_f, block_p, across, programs, parts = _tiles(f, n, oh * ow, c * kh * kw, strict)
    last = c >= MANY and y.numel() * c * kh * kw >= LAST_FROM
    if last:
        block_k = _fit(c, BLOCK_K_F32 if strict else BLOCK_K_LAST)
        width = triton.cdiv(c, block_k) * block_k
        x, weight = _with_channels_last(x, width), _with_channels_last(weight, width)
        kernel, sizes, depth = _conv2d_last, (n, h, w, width), width * kh * kw
    else:
        block_k = _fit(c * kh * kw, BLOCK_K_F32 if strict else BLOCK_K)
        kernel, sizes, depth = _conv2d, (n, c, h, w), c * kh * kw
    span = triton.cdiv(triton.cdiv(depth, parts), block_k) * block_k
    parts = triton.cdiv(depth, span)
    sums = y
    if parts > 1:
        sums = torch.empty((parts, y.numel()), dtype=torch.float32, device=y.device)
    kernel[(programs, parts)](
        x,
        weight,
        bias,
        sums,
        *sizes,
        f,
        ow,
        oh * ow,
        stride,
        padding,
        span,
        KH=kh,
        KW=kw,
        BLOCK_F=block_f,
        BLOCK_P=block_p,
        BLOCK_K=block_k,
        ACROSS=across,
        PARTS=parts > 1,
        PRECISION=_precision(x),
        num_warps=_warps(x, parts),
        num_stages=_stages(x),
    )
    if parts > 1:
        many = triton.next_power_of_2(parts)
        block = max(32, 4096 // many)
        _together[(triton.cdiv(y.numel(), block),)](
            sums, bias, y, y.numel(), parts, f, oh * ow, MANY=many, BLOCK=block, num_warps=4
        )
