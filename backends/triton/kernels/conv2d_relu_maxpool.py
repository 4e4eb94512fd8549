"""Convolution as a product of the weights, (f, c * kh * kw), and what each pixel's window holds,
once for each place in a pool's window: the largest is kept in registers. Where pools overlap that
would convolve pixels again, and few tiles of a deep convolution would take all places in turn:
there the rectified convolution goes through scratch memory, which the L2 holds much of, and is
pooled from there.

Of many channels, image and weights are copied with channels last before: a tile's depth is channels
of one tap of the filter then, which come 16 bytes at a time while others are multiplied.

Where tiles are few, programs share their depth out: the parts' sums are scratch, and are added up
as they are pooled.
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
# Parts for which touching pools give up their one kernel.
DEEP_PARTS = 4  # knob: 4 8
TF32 = 0  # knob: 0 1
LEAST = 16  # that every dot unit takes
MANY = 16  # knob: 8 16 32
# Multiplications from which copying pays.
LAST_FROM = 16777216  # knob: 0 4194304 16777216
TILE_POOL = 1024  # knob: 512 1024 2048


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
    ow,
    pixels,
    stride,
    padding,
    window,
    pool_stride,
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
    """The largest of a window by window square of convolved pixels, or 0: for a window of 1 that
    is the rectified convolution itself. With PARTS, and a window of 1, it is the sum over the depth
    ``[part * span, part * span + span)`` as it is."""
    feature, image, pixel = _tile(f, pixels, BLOCK_F, BLOCK_P, ACROSS)
    there = (image < n) & (pixel < pixels)
    shift = tl.load(bias + feature, mask=feature < f, other=0.0).to(tl.float32)[:, None]
    best = tl.zeros((BLOCK_F, BLOCK_P), tl.float32)
    for place in range(window * window):
        top = (pixel // ow * pool_stride + place // window) * stride - padding
        left = (pixel % ow * pool_stride + place % window) * stride - padding
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
            patch = tl.load(corner[None, :] + offset[:, None], mask=inside, other=0.0)
            w_tile = weight + feature.to(tl.int64)[:, None] * (c * KH * KW) + depth[None, :]
            w_mask = (feature < f)[:, None] & in_depth[None, :]
            w_value = tl.load(w_tile, mask=w_mask, other=0.0)
            total = tl.dot(w_value, patch, total, input_precision=PRECISION)
        if PARTS:
            best = total
        else:
            best = tl.maximum(best, total + shift)
    if PARTS:
        y += tl.program_id(1).to(tl.int64) * n * f * pixels
    target = y + (image[None, :] * f + feature[:, None]) * pixels + pixel[None, :]
    mask = (feature < f)[:, None] & there[None, :]
    tl.store(target, best.to(y.dtype.element_ty), mask=mask)


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
def _convolve_last(
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
    window,
    pool_stride,
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
    """As above, of images (n, h, w, width) and weights (f, kh, kw, width)."""
    feature, image, pixel = _tile(f, pixels, BLOCK_F, BLOCK_P, ACROSS)
    there = (image < n) & (pixel < pixels)
    channel = tl.arange(0, BLOCK_K)
    w_row = weight + feature.to(tl.int64)[:, None] * (KH * KW * width) + channel[None, :]
    shift = tl.load(bias + feature, mask=feature < f, other=0.0).to(tl.float32)[:, None]
    best = tl.zeros((BLOCK_F, BLOCK_P), tl.float32)
    for place in range(window * window):
        top = (pixel // ow * pool_stride + place // window) * stride - padding
        left = (pixel % ow * pool_stride + place % window) * stride - padding
        total = tl.zeros((BLOCK_F, BLOCK_P), tl.float32)
        start = tl.program_id(1) * span
        for first in range(start, tl.minimum(KH * KW * width, start + span), BLOCK_K):
            tap = first // width
            row, col = top + tap // KW, left + tap % KW
            inside = (row >= 0) & (row < h) & (col >= 0) & (col < w) & there
            # Triton 3.6 does not see by itself that this is a multiple.
            begin = tl.multiple_of(((image * h + row) * w + col) * width + first % width, 16)
            patch = tl.load(x + begin[:, None] + channel[None, :], mask=inside[:, None], other=0.0)
            w_value = tl.load(w_row + first, mask=(feature < f)[:, None], other=0.0)
            total = tl.dot(w_value, tl.trans(patch), total, input_precision=PRECISION)
        if PARTS:
            best = total
        else:
            best = tl.maximum(best, total + shift)
    if PARTS:
        y += tl.program_id(1).to(tl.int64) * n * f * pixels
    target = y + (image[None, :] * f + feature[:, None]) * pixels + pixel[None, :]
    mask = (feature < f)[:, None] & there[None, :]
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


@triton.jit
def _pool_parts(
    sums,
    bias,
    y,
    count,
    step,
    f,
    h,
    w,
    oh,
    ow,
    stride,
    parts,
    WINDOW: tl.constexpr,
    MANY: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """As above, of sums that are ``step`` apart and lack the bias; all parts come at once."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    plane, pixel = at // (oh * ow), at % (oh * ow)
    corner = plane * h * w + (pixel // ow * w + pixel % ow) * stride
    part = tl.arange(0, MANY)[:, None]
    mask = (part < parts) & (at < count)[None, :]
    source = sums + part.to(tl.int64) * step + corner[None, :]
    shift = tl.load(bias + plane % f, mask=at < count, other=0.0).to(tl.float32)
    best = tl.zeros((BLOCK,), tl.float32)
    for dy in range(WINDOW):
        for dx in tl.static_range(WINDOW):
            value = tl.load(source + dy * w + dx, mask=mask, other=0.0)
            best = tl.maximum(best, tl.sum(value, axis=0) + shift)
    tl.store(y + at, best.to(y.dtype.element_ty), mask=at < count)


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


def _tiles(features, images, pixels, depth, strict, few=PROGRAMS // 2):
    """Features and pixels of a tile, whether it has those of several images, how many there are
    and in how many parts their depth is. Where tiles are few and not deep, they are smaller.
    Up to ``few`` share their depth out."""
    most_f, most_p = (BLOCK_F32, BLOCK_F32) if strict else (BLOCK_F, BLOCK_P)
    across = 2 * pixels <= LEAST
    if across:
        images, pixels = 1, images * pixels
    block_f, block_p = _fit(features, most_f), _fit(pixels, most_p)

    def count():
        return triton.cdiv(features, block_f) * images * triton.cdiv(pixels, block_p)

    parts = depth // (LEAST_DEPTH_F32 if strict else LEAST_DEPTH)
    if count() <= few and parts > 1:
        return block_f, block_p, across, count(), min(parts, max(PROGRAMS_DEEP // count(), 1))
    while count() < PROGRAMS and block_p > LEAST:
        block_p //= 2
    return block_f, block_p, across, count(), 1


def _convolved(x, weight, bias, y, tiles, stride, padding, window, pool_stride):
    """``y`` and 1; or, where the depth is in parts, their sums and how many they are."""
    (n, c, h, w), (f, _, kh, kw) = x.shape, weight.shape
    oh, ow = y.shape[2:]
    block_f, block_p, across, programs, parts = tiles
    strict = x.dtype == torch.float32
    last = c >= MANY and y.numel() * window**2 * c * kh * kw >= LAST_FROM
    if last:
        block_k = _fit(c, BLOCK_K_F32 if strict else BLOCK_K_LAST)
        width = triton.cdiv(c, block_k) * block_k
        x, weight = _with_channels_last(x, width), _with_channels_last(weight, width)
        kernel, sizes, depth = _convolve_last, (n, h, w, width), width * kh * kw
    else:
        block_k = _fit(c * kh * kw, BLOCK_K_F32 if strict else BLOCK_K)
        kernel, sizes, depth = _convolve, (n, c, h, w), c * kh * kw
    span = triton.cdiv(triton.cdiv(depth, parts), block_k) * block_k
    parts = triton.cdiv(depth, span)
    if parts > 1:
        y = torch.empty((parts, y.numel()), dtype=torch.float32, device=y.device)
    kernel[(programs, parts)](
        x,
        weight,
        bias,
        y,
        *sizes,
        f,
        ow,
        oh * ow,
        stride,
        padding,
        window,
        pool_stride,
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
    return y, parts


def _pooled(x, parts, bias, y, height, width, window, stride):
    n, f, oh, ow = y.shape
    if parts > 1:
        many = triton.next_power_of_2(parts)
        block = max(32, 4096 // many)
        _pool_parts[(triton.cdiv(y.numel(), block),)](
            x,
            bias,
            y,
            y.numel(),
            n * f * height * width,
            f,
            height,
            width,
            oh,
            ow,
            stride,
            parts,
            WINDOW=window,
            MANY=many,
            BLOCK=block,
            num_warps=4,
        )
        return
    block = min(TILE_POOL, triton.next_power_of_2(oh * ow))
    rows = TILE_POOL // block
    grid = (triton.cdiv(n * f, rows) * triton.cdiv(oh * ow, block),)
    _pool[grid](
        x,
        y,
        n * f,
        height,
        width,
        oh,
        ow,
        stride,
        WINDOW=window,
        ROWS=rows,
        BLOCK=block,
        num_warps=4,
    )


def conv2d_relu_maxpool(x, weight, bias, y, stride, padding, window, pool_stride):
    n, f, oh, ow = y.shape
    if y.numel() == 0:
        return
    strict = x.dtype == torch.float32
    depth = weight[0].numel()
    # As many rows and columns as the pools reach.
    height, width = (oh - 1) * pool_stride + window, (ow - 1) * pool_stride + window
    tiles = _tiles(f, n, height * width, depth, strict)
    if window < pool_stride or (window == pool_stride and (window == 1 or tiles[4] < DEEP_PARTS)):
        # A pool's maximum cannot be had of parts, so that only a window of 1 has any here.
        pooled = _tiles(f, n, oh * ow, depth if window == 1 else 0, strict)
        # Programs that are few, deep and slow at float32 would take a window's places in turn.
        deep = strict and window > 1 and depth >= LEAST_DEPTH_F32 * DEEP_PARTS * 4
        if not deep or window < pool_stride or pooled[3] >= PROGRAMS:
            result, parts = _convolved(
                x, weight, bias, y, pooled, stride, padding, window, pool_stride
            )
            if parts > 1:
                _pooled(result, parts, bias, y, oh, ow, 1, 1)
            return
        tiles = _tiles(f, n, height * width, depth, strict, few=PROGRAMS)
    scratch = torch.empty((n, f, height, width), dtype=y.dtype, device=y.device)
    scratch, parts = _convolved(x, weight, bias, scratch, tiles, stride, padding, 1, 1)
    _pooled(scratch, parts, bias, y, height, width, window, pool_stride)
