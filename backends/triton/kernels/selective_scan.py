"""A program has some channels with all of their states and goes through a part of a sequence; where
there are several parts, first from states of zero, of which the ends are kept, then from the states
that these give."""

import torch
import triton
import triton.language as tl

TILE = 512  # knob: 256 512 1024
NUM_WARPS = 2  # knob: 1 2 4
LEAST_SPAN = 32  # knob: 16 32 64
PROGRAMS = 2048  # knob: 1024 2048 4096


@triton.jit
def _go_through(
    x,
    step,
    rate,
    b,
    c,
    skip,
    y,
    ends,
    sums,
    length,
    channels,
    states,
    span,
    parts,
    FIRST: tl.constexpr,
    CARRIED: tl.constexpr,
    CHANNELS: tl.constexpr,
    STATES: tl.constexpr,
):
    """FIRST: from states of zero, whose ends and sums of steps are kept; else y, from states that
    are CARRIED."""
    tiles = tl.cdiv(channels, CHANNELS)
    part = tl.program_id(0) // tiles
    sequence = (part // parts).to(tl.int64)
    col = tl.program_id(0) % tiles * CHANNELS + tl.arange(0, CHANNELS)
    number = tl.arange(0, STATES)
    there, known = col < channels, number < states
    both = there[:, None] & known[None, :]
    rates = tl.load(rate + col[:, None] * states + number[None, :], mask=both, other=0.0)
    exponents = rates.to(tl.float32) * -1.4426950408889634
    place = (part.to(tl.int64) * channels + col[:, None]) * states + number[None, :]
    state = tl.zeros((CHANNELS, STATES), tl.float32)
    if CARRIED:
        state = tl.load(ends + place, mask=both, other=0.0)
    total = tl.zeros((CHANNELS,), tl.float32)
    through = tl.load(skip + col, mask=there, other=0.0).to(tl.float32)
    begin = part % parts * span
    for t in range(begin, tl.minimum(begin + span, length)):
        row = sequence * length + t
        time = tl.load(step + row * channels + col, mask=there, other=0.0).to(tl.float32)
        given = tl.load(x + row * channels + col, mask=there, other=0.0).to(tl.float32)
        into = tl.load(b + row * states + number, mask=known, other=0.0).to(tl.float32)
        state = tl.exp2(time[:, None] * exponents) * state + (time * given)[:, None] * into[None, :]
        if FIRST:
            total += time
        else:
            out = tl.load(c + row * states + number, mask=known, other=0.0).to(tl.float32)
            seen = tl.sum(state * out[None, :], axis=1) + through * given
            tl.store(y + row * channels + col, seen.to(y.dtype.element_ty), mask=there)
    if FIRST:
        tl.store(ends + place, state, mask=both)
        tl.store(sums + part.to(tl.int64) * channels + col, total, mask=there)


@triton.jit
def _carry(rate, ends, sums, channels, states, parts, count, BLOCK: tl.constexpr):
    """The states at the end of each part, from zero, become those at its beginning."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = at < count
    size = channels.to(tl.int64) * states
    sequence, within = at // size, at % size
    exponent = tl.load(rate + within, mask=mask, other=0.0).to(tl.float32) * -1.4426950408889634
    state = tl.zeros((BLOCK,), tl.float32)
    for number in range(parts):
        part = sequence * parts + number
        end = tl.load(ends + part * size + within, mask=mask, other=0.0)
        steps = tl.load(sums + part * channels + within // states, mask=mask, other=0.0)
        tl.store(ends + part * size + within, state, mask=mask)
        state = tl.exp2(exponent * steps) * state + end


def selective_scan(x, step, rate, b, c, skip, y):
    batch, length, channels = x.shape
    states = rate.shape[1]
    if y.numel() == 0:
        return
    wide = triton.next_power_of_2(max(states, 1))
    some = min(triton.next_power_of_2(channels), max(1, TILE // wide))
    tiles = triton.cdiv(channels, some)
    tried = max(1, min(PROGRAMS // (batch * tiles), triton.cdiv(length, LEAST_SPAN)))
    span = triton.cdiv(length, tried)
    parts = triton.cdiv(length, span)
    several = parts > 1 and states > 0
    options = {"dtype": torch.float32, "device": x.device}
    ends = torch.empty((batch * parts, channels, states), **options) if several else y
    sums = torch.empty((batch * parts, channels), **options) if several else y
    given = (x, step, rate, b, c, skip, y, ends, sums, length, channels, states, span, parts)
    grid = (batch * parts * tiles,)
    sizes = {"CHANNELS": some, "STATES": wide, "num_warps": NUM_WARPS}
    if several:
        _go_through[grid](*given, FIRST=True, CARRIED=False, **sizes)
        count, block = batch * channels * states, 128
        _carry[(triton.cdiv(count, block),)](
            rate, ends, sums, channels, states, parts, count, BLOCK=block, num_warps=4
        )
    _go_through[grid](*given, FIRST=False, CARRIED=several, **sizes)
