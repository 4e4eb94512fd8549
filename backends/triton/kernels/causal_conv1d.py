"""Depthwise convolution of the last positions: a tile of positions and channels per program, which
is loaded once for each tap, from a nearer cache but for the first time."""

import triton
import triton.language as tl

TIMES = 16  # knob: 8 16 32
CHANNELS = 128  # knob: 64 128 256
NUM_WARPS = 4  # knob: 2 4 8
UNROLLED = 8  # knob: 4 8 16


@triton.jit
def _tap(total, x, weight, at, back, channels, col, length, TIMES: tl.constexpr):
    """The total with what lies ``back`` positions before adds to it."""
    time = at + tl.arange(0, TIMES)[:, None]
    mask = (time >= back) & (time < length) & (col < channels)
    value = tl.load(x + (time - back).to(tl.int64) * channels + col, mask=mask, other=0.0)
    return total + value.to(tl.float32) * tl.load(weight, mask=col < channels, other=0.0).to(
        tl.float32
    )


@triton.jit
def _convolve(
    x,
    weight,
    bias,
    y,
    length,
    channels,
    taps,
    TAPS: tl.constexpr,
    SILU: tl.constexpr,
    TIMES: tl.constexpr,
    CHANNELS: tl.constexpr,
):
    """TAPS of 0: as many as ``taps`` says."""
    tiles, spans = tl.cdiv(channels, CHANNELS), tl.cdiv(length, TIMES)
    span = tl.program_id(0) // tiles
    at = span % spans * TIMES
    start = (span // spans).to(tl.int64) * length * channels
    col = tl.program_id(0) % tiles * CHANNELS + tl.arange(0, CHANNELS)[None, :]
    total = tl.zeros((TIMES, CHANNELS), tl.float32)
    total += tl.load(bias + col, mask=col < channels, other=0.0).to(tl.float32)
    if TAPS > 0:
        for tap in tl.static_range(TAPS):
            own = weight + col * TAPS + tap
            total = _tap(total, x + start, own, at, TAPS - 1 - tap, channels, col, length, TIMES)
    else:
        for tap in range(taps):
            own = weight + col.to(tl.int64) * taps + tap
            total = _tap(total, x + start, own, at, taps - 1 - tap, channels, col, length, TIMES)
    if SILU:
        # Where the exponential overflows, the quotient is -0, as it should be.
        total = total / (1.0 + tl.exp(-total))
    time = at + tl.arange(0, TIMES)[:, None]
    target = y + start + time.to(tl.int64) * channels + col
    tl.store(target, total.to(y.dtype.element_ty), mask=(time < length) & (col < channels))


def causal_conv1d(x, weight, bias, y, silu):
    batch, length, channels = x.shape
    taps = weight.shape[1]
    if y.numel() == 0:
        return
    wide = max(16, min(CHANNELS, triton.next_power_of_2(channels)))
    tall = TIMES * CHANNELS // wide
    grid = (batch * triton.cdiv(length, tall) * triton.cdiv(channels, wide),)
    _convolve[grid](
        x,
        weight,
        bias,
        y,
        length,
        channels,
        taps,
        TAPS=taps if taps <= UNROLLED else 0,
        SILU=bool(silu),
        TIMES=tall,
        CHANNELS=wide,
        num_warps=NUM_WARPS,
    )
