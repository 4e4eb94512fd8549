"""The largest of each window, position by position; small planes share a program's tile."""

import triton
import triton.language as tl

TILE = 1024  # knob: 512 1024 2048
NUM_WARPS = 4  # knob: 4 8
SMALL = 256  # knob: 128 256 512
FEW = 1 << 20  # outputs: larger tiles would be fewer than a GPU wants
FEWER = 1 << 16  # outputs: too few threads to hide what one waits for, row by row of its window
UNROLLED_OF_FEWER = 5
UNROLLED = 4  # the longest window whose loads are all under way at the same time


@triton.jit
def _row(best, source, left, w, inside, WINDOW: tl.constexpr):
    for dx in tl.static_range(WINDOW):
        col = tl.minimum(tl.maximum(left + dx, 0), w - 1)
        value = tl.load(source + col, mask=inside, other=0.0).to(tl.float32)
        # A NaN takes the place of any number, and none takes a NaN's.
        best = tl.where((value > best) | (value != value), value, best)
    return best


@triton.jit
def _maxpool2d(
    x,
    y,
    planes,
    h,
    w,
    oh,
    ow,
    stride,
    padding,
    WINDOW: tl.constexpr,
    UNROLL: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    tiles = tl.cdiv(oh * ow, BLOCK)
    # Planes are counted in 64 bits, what is in one in 32.
    plane = (tl.program_id(0) // tiles).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    pixel = tl.program_id(0) % tiles * BLOCK + tl.arange(0, BLOCK)[None, :]
    inside = (plane < planes) & (pixel < oh * ow)
    # A window that reaches into the padding sees the edge twice instead: that changes no maximum.
    top = pixel // ow * stride - padding
    left = pixel % ow * stride - padding
    source = x + plane * h * w
    best = tl.full((ROWS, BLOCK), -float("inf"), tl.float32)
    if UNROLL:
        for dy in tl.static_range(WINDOW):
            row = tl.minimum(tl.maximum(top + dy, 0), h - 1)
            best = _row(best, source + row * w, left, w, inside, WINDOW)
    else:
        for dy in range(WINDOW):
            row = tl.minimum(tl.maximum(top + dy, 0), h - 1)
            best = _row(best, source + row * w, left, w, inside, WINDOW)
    tl.store(y + plane * oh * ow + pixel, best.to(y.dtype.element_ty), mask=inside)


def maxpool2d(x, y, window, stride, padding):
    n, c, h, w = x.shape
    oh, ow = y.shape[2:]
    if y.numel() == 0:
        return
    tile = SMALL if y.numel() <= FEW else TILE
    unroll = window <= UNROLLED
    if not unroll and window <= UNROLLED_OF_FEWER and y.numel() <= FEWER:
        # An output of a thread, whose registers hold its window.
        tile, unroll = 32 * NUM_WARPS, True
    block = min(tile, triton.next_power_of_2(oh * ow))
    rows = tile // block
    grid = (triton.cdiv(n * c, rows) * triton.cdiv(oh * ow, block),)
    _maxpool2d[grid](
        x,
        y,
        n * c,
        h,
        w,
        oh,
        ow,
        stride,
        padding,
        WINDOW=window,
        UNROLL=unroll,
        ROWS=rows,
        BLOCK=block,
        num_warps=NUM_WARPS,
    )
