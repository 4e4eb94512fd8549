"""The largest of each window, position by position; small planes share a program's tile."""

import triton
import triton.language as tl

TILE = 1024  # knob: 512 1024 2048
NUM_WARPS = 4  # knob: 4 8


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
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    tiles = tl.cdiv(oh * ow, BLOCK)
    # Planes are counted in 64 bits, what is in one in 32.
    plane = (tl.program_id(0) // tiles).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    pixel = tl.program_id(0) % tiles * BLOCK + tl.arange(0, BLOCK)[None, :]
    inside = (plane < planes) & (pixel < oh * ow)
    top = pixel // ow * stride - padding
    left = pixel % ow * stride - padding
    best = tl.full((ROWS, BLOCK), -float("inf"), tl.float32)
    for dy in range(WINDOW):
        row = top + dy
        in_column = inside & (row >= 0) & (row < h)
        for dx in tl.static_range(WINDOW):
            col = left + dx
            mask = in_column & (col >= 0) & (col < w)
            source = x + plane * h * w + (row * w + col)
            value = tl.load(source, mask=mask, other=-float("inf")).to(tl.float32)
            # A NaN takes the place of any number, and none takes a NaN's.
            best = tl.where((value > best) | (value != value), value, best)
    tl.store(y + plane * oh * ow + pixel, best.to(y.dtype.element_ty), mask=inside)


def maxpool2d(x, y, window, stride, padding):
    n, c, h, w = x.shape
    oh, ow = y.shape[2:]
    if y.numel() == 0:
        return
    block = min(TILE, triton.next_power_of_2(oh * ow))
    rows = TILE // block
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
        ROWS=rows,
        BLOCK=block,
        num_warps=NUM_WARPS,
    )
