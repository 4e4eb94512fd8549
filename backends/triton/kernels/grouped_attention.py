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
NUM_STAGES = 3  # knob: 1 2 3
PROGRAMS = 528  # knob: 264 528 1056
LEAST_KEYS = 256  # knob: 128 256 512
# Of float32, which tensor cores multiply in slices: dimensions at a time, and keys.
PART = 32  # knob: 16 32
KEYS_SLICED = 32  # knob: 16 32 64
NUM_STAGES_SLICED = 2  # knob: 1 2 3
# On AMD what a stage brings to LDS is in registers on its way, where there is no room for it.
NUM_STAGES_AMD = 1  # knob: 1 2
KEYS_SLICED_AMD = 16  # knob: 16 32


@triton.jit
def _slices(x):
    """Three bfloat16 whose sum is ``x``; the first is finite, as the largest floats round up."""
    most: tl.constexpr = 3.3895313892515355e38
    high = tl.minimum(tl.maximum(x, -most), most).to(tl.bfloat16)
    x -= high.to(tl.float32)
    middle = x.to(tl.bfloat16)
    return high, middle, (x - middle.to(tl.float32)).to(tl.bfloat16)


@triton.jit
def _product(left, right):
    """Of float32 in slices those terms that float32 can tell, small ones first. Tensor cores round
    sums towards zero, so they add to nothing, and the caller adds what they return."""
    left_high, left_middle, left_low = _slices(left)
    right_high, right_middle, right_low = _slices(right)
    result = tl.dot(left_low, right_high)
    result = tl.dot(left_high, right_low, result)
    result = tl.dot(left_middle, right_middle, result)
    result = tl.dot(left_middle, right_high, result)
    result = tl.dot(left_high, right_middle, result)
    return tl.dot(left_high, right_high, result)


@triton.jit
def _capped(score, scale, cap):
    """cap * tanh(score * scale / cap) as an exponent of 2; near 0, where a difference would lose
    digits, by its series."""
    x = score * (scale / cap)
    square = x * x
    series = 1.0 + square * (-1 / 3 + square * (2 / 15 + square * (-17 / 315 + square * 62 / 2835)))
    far = 2.0 / (1.0 + tl.exp2(-2.8853900817779268 * x)) - 1.0
    return (cap * 1.4426950408889634) * tl.where(square < 0.09, x * series, far)


@triton.jit
def _tile(at, row, there, dim: tl.constexpr, FIRST: tl.constexpr, DIM: tl.constexpr):
    """Of the rows at ``at``, of which ``there`` are there (None: all), DIM dimensions."""
    d = FIRST + tl.arange(0, DIM)[None, :]
    mask = d < dim if there is None else (d < dim) & (row[:, None] < there)
    return tl.load(at + row[:, None] * dim + d, mask=mask, other=0.0)


@triton.jit
def _step(
    q,
    own,
    k,
    v,
    most,
    total,
    sums,
    row,
    rows,
    place,
    start,
    keys,
    last,
    dim: tl.constexpr,
    scale,
    window,
    softcap,
    MASKED: tl.constexpr,
    KEYS: tl.constexpr,
    DIM: tl.constexpr,
    PART: tl.constexpr,
    CAPPED: tl.constexpr,
    WINDOW: tl.constexpr,
    SLICED: tl.constexpr,
):
    """Take in the tile of keys from ``start`` on. MASKED where a row does not see some of them."""
    key = start + tl.arange(0, KEYS)
    there = keys if MASKED else None
    if SLICED:
        score = tl.zeros((row.shape[0], KEYS), tl.float32)
        for part in tl.static_range(0, DIM, PART):
            left = _tile(q, row, rows, dim, part, PART)
            right = _tile(k, key, there, dim, part, PART)
            score += _product(left, tl.trans(right))
    else:
        right = _tile(k, key, there, dim, 0, DIM)
        score = tl.dot(own, tl.trans(right), input_precision="ieee")
    score = _capped(score, scale, softcap) if CAPPED else score * (scale * 1.4426950408889634)
    if MASKED:
        seen = (key[None, :] <= place[:, None]) & (key < last)[None, :]
        if WINDOW:
            seen = seen & (key[None, :] > place[:, None] - window)
        score = tl.where(seen, score, -float("inf"))
    higher = tl.maximum(most, tl.max(score, axis=1))
    shift = tl.where(higher == -float("inf"), 0.0, higher)
    power = tl.exp2(score - shift[:, None])
    before = tl.exp2(most - shift)
    total = total * before + tl.sum(power, axis=1)
    value = _tile(v, key, there, dim, 0, DIM)
    if SLICED:
        sums = sums * before[:, None] + _product(power, value)
    else:
        power = power.to(value.dtype)
        sums = tl.dot(power, value, sums * before[:, None], input_precision="ieee")
    return higher, total, sums


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
    dim: tl.constexpr,
    scale,
    window,
    softcap,
    span,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    DIM: tl.constexpr,
    PART: tl.constexpr,
    CAPPED: tl.constexpr,
    WINDOW: tl.constexpr,
    SHARED: tl.constexpr,
    SLICED: tl.constexpr,
):
    """Of the keys ``[part * span, part * span + span)``. Where keys are SHARED, y is the part's
    sums, and notes have its largest score and its sum of powers of each row."""
    # The last rows of one query head have the most keys, and start first.
    tile = tl.num_programs(0) - 1 - tl.program_id(0)
    head = tl.program_id(1).to(tl.int64)
    row = tile * ROWS + tl.arange(0, ROWS)
    place = keys - queries + row % queries
    there = row < rows
    q += head * rows * dim
    k += head * keys * dim
    v += head * keys * dim
    own = row if SLICED else _tile(q, row, rows, dim, 0, DIM)
    least = tl.min(tl.where(there, place, keys), axis=0)
    largest = tl.max(tl.where(there, place, -1), axis=0)
    first = tl.program_id(2) * span
    last = tl.minimum(first + span, largest + 1)
    if WINDOW:
        first = tl.maximum(first, tl.maximum(least - window + 1, 0) // KEYS * KEYS)
    # Between these all rows see all keys. In slices masks cost little, and a loop takes seconds to
    # compile.
    inner = first
    outer = first
    if WINDOW and not SLICED:
        inner = tl.maximum(first, (tl.maximum(largest - window + 1, 0) + KEYS - 1) // KEYS * KEYS)
    if not SLICED:
        outer = tl.maximum(inner, tl.minimum(last, least + 1) // KEYS * KEYS)
    most = tl.full((ROWS,), -float("inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    sums = tl.zeros((ROWS, DIM), tl.float32)
    if WINDOW and not SLICED:
        for start in range(first, tl.minimum(inner, last), KEYS):
            most, total, sums = _step(
                q, own, k, v, most, total, sums, row, rows, place, start, keys, last, dim, scale,
                window, softcap, True, KEYS, DIM, PART, CAPPED, WINDOW, SLICED,
            )  # fmt: skip
    if not SLICED:
        for start in range(inner, outer, KEYS):
            most, total, sums = _step(
                q, own, k, v, most, total, sums, row, rows, place, start, keys, last, dim, scale,
                window, softcap, False, KEYS, DIM, PART, CAPPED, WINDOW, SLICED,
            )  # fmt: skip
    for start in range(outer, last, KEYS):
        most, total, sums = _step(
            q, own, k, v, most, total, sums, row, rows, place, start, keys, last, dim, scale,
            window, softcap, True, KEYS, DIM, PART, CAPPED, WINDOW, SLICED,
        )  # fmt: skip
    col = tl.arange(0, DIM)[None, :]
    within = there[:, None] & (col < dim)
    if SHARED:
        at = (tl.program_id(2).to(tl.int64) * tl.num_programs(1) + head) * rows + row
        tl.store(notes + 2 * at, most, mask=there)
        tl.store(notes + 2 * at + 1, total, mask=there)
        tl.store(y + at[:, None] * dim + col, sums, mask=within)
    else:
        result = sums / tl.where(total == 0.0, 1.0, total)[:, None]
        target = y + (head * rows + row)[:, None] * dim + col
        tl.store(target, result.to(y.dtype.element_ty), mask=within)


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
        factor = tl.exp2(tl.load(notes + 2 * at) - shift)
        total += factor * tl.load(notes + 2 * at + 1)
        sums += factor * tl.load(parts + at * dim + col, mask=col < dim, other=0.0)
    result = sums / tl.where(total == 0.0, 1.0, total)
    tl.store(y + line * dim + col, result.to(y.dtype.element_ty), mask=col < dim)


def _on_amd(x):
    return x.is_cuda and triton.runtime.driver.active.get_current_target().backend == "hip"


def grouped_attention(q, k, v, y, window, softcap):
    batch, kv_heads, group, queries, dim = q.shape
    keys, heads, rows = k.shape[2], batch * kv_heads, group * queries
    if y.numel() == 0:
        return
    amd, sliced = _on_amd(q), q.dtype == torch.float32
    wide = max(16, triton.next_power_of_2(dim))
    long = wide * 2 > 256
    block, most = (KEYS_WIDE, ROWS // 2) if long else (KEYS, ROWS)
    if sliced:
        block = KEYS_SLICED_AMD if amd or long else KEYS_SLICED
    tall = max(16, min(most, triton.next_power_of_2(rows)))
    # Masks on many sides take registers.
    crowded = wide > 64 and tall > 32 and (window > 0 or softcap > 0)
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
        PART=min(PART, wide),
        CAPPED=softcap > 0,
        WINDOW=window > 0,
        SHARED=many > 1,
        SLICED=sliced,
        num_warps=2 * NUM_WARPS if crowded else NUM_WARPS,
        num_stages=NUM_STAGES_AMD if amd else NUM_STAGES_SLICED if sliced else NUM_STAGES,
    )
    if many > 1:
        _together[(heads * rows,)](parts, notes, y, heads * rows, dim, many, DIM=wide, num_warps=2)
