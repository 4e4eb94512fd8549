"""Attention with a running maximum over blocks of keys. Queries of a group are rows of one tile, so
that keys and values are read once for all of them. Where tiles are few, as in decoding, programs
share the keys of each, and a second kernel puts together what they found."""

import torch
import triton
import triton.language as tl

ROWS = 64  # knob: 32 64 128
KEYS = 64  # knob: 32 64 128
KEYS_WIDE = 32  # knob: 16 32 64
NUM_WARPS = 4  # knob: 4 8
NUM_STAGES = 2  # knob: 1 2 3
PROGRAMS = 528  # knob: 264 528 1056
LEAST_KEYS = 256  # knob: 128 256 512


@triton.jit
def _capped(score, cap):
    """cap * tanh(score / cap); near 0, where a difference would lose digits, by its series."""
    x = score / cap
    square = x * x
    series = 1.0 + square * (-1 / 3 + square * (2 / 15 + square * (-17 / 315 + square * 62 / 2835)))
    far = 2.0 / (1.0 + tl.exp(-2.0 * x)) - 1.0
    return cap * tl.where(square < 0.09, x * series, far)


@triton.jit
def _attend(
    q,
    k,
    v,
    y,
    notes,
    rows,
    queries,
    keys,
    dim,
    scale,
    window,
    softcap,
    span,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    DIM: tl.constexpr,
    CAPPED: tl.constexpr,
    SHARED: tl.constexpr,
):
    """Of the keys ``[part * span, part * span + span)``. Where keys are SHARED, y is the part's
    sums, and notes have its largest score and its sum of powers of each row."""
    head = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    place = keys - queries + row % queries
    there = row < rows
    col = tl.arange(0, DIM)[None, :]
    within = col < dim
    q_tile = q + (head * rows + row)[:, None] * dim + col
    own = tl.load(q_tile, mask=there[:, None] & within, other=0.0)
    first = tl.program_id(2) * span
    last = tl.minimum(first + span, tl.max(tl.where(there, place, -1), axis=0) + 1)
    if window > 0:
        nearest = tl.min(tl.where(there, place, keys), axis=0) - window + 1
        first = tl.maximum(first, nearest // KEYS * KEYS)
    most = tl.full((ROWS,), -float("inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    sums = tl.zeros((ROWS, DIM), tl.float32)
    for start in range(first, last, KEYS):
        key = start + tl.arange(0, KEYS)
        of_keys = (head * keys + key)[:, None] * dim + col
        mask = (key < keys)[:, None] & within
        key_tile = tl.load(k + of_keys, mask=mask, other=0.0)
        score = tl.dot(own, tl.trans(key_tile), input_precision="ieee") * scale
        if CAPPED:
            score = _capped(score, softcap)
        seen = (key[None, :] <= place[:, None]) & (key < last)[None, :]
        if window > 0:
            seen = seen & (key[None, :] > place[:, None] - window)
        score = tl.where(seen, score, -float("inf"))
        higher = tl.maximum(most, tl.max(score, axis=1))
        shift = tl.where(higher == -float("inf"), 0.0, higher)
        power = tl.exp(score - shift[:, None])
        before = tl.exp(most - shift)
        total = total * before + tl.sum(power, axis=1)
        value_tile = tl.load(v + of_keys, mask=mask, other=0.0)
        sums *= before[:, None]
        sums = tl.dot(power.to(v.dtype.element_ty), value_tile, sums, input_precision="ieee")
        most = higher
    if SHARED:
        at = (tl.program_id(2).to(tl.int64) * tl.num_programs(1) + head) * rows + row
        tl.store(notes + 2 * at, most, mask=there)
        tl.store(notes + 2 * at + 1, total, mask=there)
        tl.store(y + at[:, None] * dim + col, sums, mask=there[:, None] & within)
    else:
        result = sums / tl.where(total > 0.0, total, 1.0)[:, None]
        target = y + (head * rows + row)[:, None] * dim + col
        tl.store(target, result.to(y.dtype.element_ty), mask=there[:, None] & within)


@triton.jit
def _together(parts, notes, y, lines, dim, many, DIM: tl.constexpr):
    line = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, DIM)
    most = tl.full((), -float("inf"), tl.float32)
    for part in range(many):
        most = tl.maximum(most, tl.load(notes + 2 * (part * lines + line)))
    shift = tl.where(most == -float("inf"), 0.0, most)
    total = tl.full((), 0.0, tl.float32)
    sums = tl.zeros((DIM,), tl.float32)
    for part in range(many):
        at = part * lines + line
        factor = tl.exp(tl.load(notes + 2 * at) - shift)
        total += factor * tl.load(notes + 2 * at + 1)
        sums += factor * tl.load(parts + at * dim + col, mask=col < dim, other=0.0)
    result = sums / tl.where(total > 0.0, total, 1.0)
    tl.store(y + line * dim + col, result.to(y.dtype.element_ty), mask=col < dim)


def grouped_attention(q, k, v, y, window, softcap):
    batch, kv_heads, group, queries, dim = q.shape
    keys, heads, rows = k.shape[2], batch * kv_heads, group * queries
    if y.numel() == 0:
        return
    wide = max(16, triton.next_power_of_2(dim))
    long = wide * q.element_size() > 256
    block, most = (KEYS_WIDE, ROWS // 2) if long else (KEYS, ROWS)
    tall = max(16, min(most, triton.next_power_of_2(rows)))
    tiles = triton.cdiv(rows, tall)
    many = max(1, min(PROGRAMS // (tiles * heads), keys // LEAST_KEYS))
    span = max(block, triton.cdiv(triton.cdiv(keys, many), block) * block)
    many = max(1, triton.cdiv(keys, span))
    options = {"dtype": torch.float32, "device": q.device}
    parts = torch.empty((many, y.numel()), **options) if many > 1 else y
    notes = torch.empty((many, 2 * heads * rows), **options) if many > 1 else y
    _attend[(tiles, heads, many)](
        q,
        k,
        v,
        parts,
        notes,
        rows,
        queries,
        keys,
        dim,
        dim**-0.5,
        window,
        softcap,
        span,
        ROWS=tall,
        KEYS=block,
        DIM=wide,
        CAPPED=softcap > 0,
        SHARED=many > 1,
        num_warps=NUM_WARPS,
        num_stages=NUM_STAGES,
    )
    if many > 1:
        _together[(heads * rows,)](parts, notes, y, heads * rows, dim, many, DIM=wide, num_warps=2)
