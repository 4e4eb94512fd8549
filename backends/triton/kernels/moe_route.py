"""The k largest logits of each token, taken out one after another of a tile of rows, and the
softmax over them."""

import triton
import triton.language as tl

TILE = 1024  # knob: 512 1024 2048
NUM_WARPS = 4  # knob: 2 4 8


@triton.jit
def _route(
    logits,
    gates,
    chosen,
    tokens,
    experts,
    kept,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    KEPT: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    col = tl.arange(0, BLOCK)[None, :]
    slot = tl.arange(0, KEPT)[None, :]
    left = (row < tokens) & (col < experts)
    value = tl.load(logits + row * experts + col, mask=left, other=0.0).to(tl.float32)
    values = tl.full((ROWS, KEPT), -float("inf"), tl.float32)
    places = tl.zeros((ROWS, KEPT), tl.int32)
    for number in range(kept):
        free = tl.where(left, value, -float("inf"))
        most = tl.max(free, axis=1)[:, None]
        place = tl.min(tl.where(left & (free == most), col, BLOCK), axis=1)[:, None]
        values = tl.where(slot == number, most, values)
        places = tl.where(slot == number, place, places)
        left = left & (col != place)
    top = tl.max(values, axis=1)[:, None]
    power = tl.where(slot < kept, tl.exp(values - top), 0.0)
    gate = power / tl.sum(power, axis=1)[:, None]
    mask = (row < tokens) & (slot < kept)
    tl.store(gates + row * kept + slot, gate.to(gates.dtype.element_ty), mask=mask)
    tl.store(chosen + row * kept + slot, tl.minimum(places, experts - 1).to(tl.int64), mask=mask)


def moe_route(logits, gates, chosen, k):
    tokens, experts = logits.shape
    if gates.numel() == 0:
        return
    block = max(16, triton.next_power_of_2(experts))
    rows = max(1, min(TILE // block, 64))
    slots = max(2, triton.next_power_of_2(k))
    grid = (triton.cdiv(tokens, rows),)
    _route[grid](logits, gates, chosen, tokens, experts, k, rows, block, slots, num_warps=NUM_WARPS)
