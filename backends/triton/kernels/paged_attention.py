"""Attention of one query per sequence over keys in pages, with a running maximum over blocks of
keys. Queries of a group are rows of one tile; programs share the positions of a sequence, and a
second kernel puts together what they found."""

import torch
import triton
import triton.language as tl

KEYS = 64  # knob: 32 64 128
KEYS_WIDE = 32  # knob: 16 32 64
CHUNK_F32 = 32  # knob: 16 32 64
NUM_WARPS = 4  # knob: 2 4 8
NUM_STAGES = 2  # knob: 1 2 3
PROGRAMS = 1056  # knob: 528 1056 2112
LEAST_KEYS = 256  # knob: 128 256 512


@triton.jit
def _attend(
    q,
    key_pages,
    value_pages,
    table,
    lengths,
    y,
    notes,
    heads,
    group,
    dim,
    page,
    slots,
    scale,
    span,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    DIM: tl.constexpr,
    CHUNK: tl.constexpr,
    SHARED: tl.constexpr,
):
    """Of the positions ``[part * span, part * span + span)``. Where they are SHARED, y is the
    part's sums, and notes have its largest score and its sum of powers of each row."""
    tiles = tl.cdiv(group, ROWS)
    pair = tl.program_id(0) // tiles
    seq, head = pair // heads, pair % heads
    lines = tl.num_programs(0) // tiles * group
    row = tl.program_id(0) % tiles * ROWS + tl.arange(0, ROWS)
    there = row < group
    col = tl.arange(0, DIM)[None, :]
    within = col < dim
    line = pair.to(tl.int64) * group + row
    own = tl.load(q + line[:, None] * dim + col, mask=there[:, None] & within, other=0.0)
    first = tl.program_id(1) * span
    last = tl.minimum(first + span, tl.load(lengths + seq))
    most = tl.full((ROWS,), -float("inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    sums = tl.zeros((ROWS, DIM), tl.float32)
    for start in range(first, last, KEYS):
        key = start + tl.arange(0, KEYS)
        seen = key < last
        number = tl.load(table + seq.to(tl.int64) * slots + key // page, mask=seen, other=0)
        position = number.to(tl.int64) * page + key % page
        at = (position * heads + head)[:, None] * dim + col
        mask = seen[:, None] & within
        value_tile = tl.load(value_pages + at, mask=mask, other=0.0)
        if CHUNK == DIM:
            key_tile = tl.load(key_pages + at, mask=mask, other=0.0)
            score = tl.dot(own, tl.trans(key_tile), input_precision="ieee")
        else:
            score = tl.zeros((ROWS, KEYS), tl.float32)
            for chunk in tl.static_range(0, DIM, CHUNK):
                some = chunk + tl.arange(0, CHUNK)[None, :]
                mask = there[:, None] & (some < dim)
                own_part = tl.load(q + line[:, None] * dim + some, mask=mask, other=0.0)
                part = key_pages + (position * heads + head)[:, None] * dim + some
                key_part = tl.load(part, mask=seen[:, None] & (some < dim), other=0.0)
                score = tl.dot(own_part, tl.trans(key_part), score, input_precision="ieee")
        score = tl.where(seen[None, :], score * scale, -float("inf"))
        higher = tl.maximum(most, tl.max(score, axis=1))
        shift = tl.where(higher == -float("inf"), 0.0, higher)
        power = tl.exp(score - shift[:, None])
        before = tl.exp(most - shift)
        total = total * before + tl.sum(power, axis=1)
        sums *= before[:, None]
        power = power.to(value_pages.dtype.element_ty)
        sums = tl.dot(power, value_tile, sums, input_precision="ieee")
        most = higher
    if SHARED:
        at = tl.program_id(1).to(tl.int64) * lines + line
        tl.store(notes + 2 * at, most, mask=there)
        tl.store(notes + 2 * at + 1, total, mask=there)
        tl.store(y + at[:, None] * dim + col, sums, mask=there[:, None] & within)
    else:
        result = sums / tl.where(total == 0.0, 1.0, total)[:, None]
        target = y + line[:, None] * dim + col
        tl.store(target, result.to(y.dtype.element_ty), mask=there[:, None] & within)


@triton.jit
def _together(parts, notes, lengths, y, of_seq, dim, span, DIM: tl.constexpr):
    """Of the parts that have positions; ``of_seq``: queries of a sequence."""
    line, lines = tl.program_id(0).to(tl.int64), tl.num_programs(0)
    many = tl.cdiv(tl.load(lengths + line // of_seq), span)
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
    result = sums / tl.where(total == 0.0, 1.0, total)
    tl.store(y + line * dim + col, result.to(y.dtype.element_ty), mask=col < dim)


def paged_attention(q, key_pages, value_pages, table, lengths, y):
    seqs, heads, group, dim = q.shape
    page, slots = key_pages.shape[1], table.shape[1]
    if y.numel() == 0:
        return
    wide = max(16, triton.next_power_of_2(dim))
    block = KEYS_WIDE if wide * q.element_size() > 256 else KEYS
    chunk, warps, stages = wide, NUM_WARPS, NUM_STAGES
    if q.element_size() == 4:  # what is multiplied without a dot unit lies in registers
        block, chunk, warps, stages = max(16, block // 2), min(wide, CHUNK_F32), 2 * NUM_WARPS, 1
    tall = max(16, min(64, triton.next_power_of_2(group)))
    tiles, keys = triton.cdiv(group, tall), slots * page
    many = max(1, min(PROGRAMS // (tiles * seqs * heads), keys // LEAST_KEYS))
    span = max(block, triton.cdiv(triton.cdiv(keys, many), block) * block)
    many = max(1, triton.cdiv(keys, span))
    options = {"dtype": torch.float32, "device": q.device}
    parts = torch.empty((many, y.numel()), **options) if many > 1 else y
    notes = torch.empty((many, 2 * seqs * heads * group), **options) if many > 1 else y
    # Sequences are on the axis that has room for more than 65,535.
    _attend[(seqs * heads * tiles, many)](
        q,
        key_pages,
        value_pages,
        table,
        lengths,
        parts,
        notes,
        heads,
        group,
        dim,
        page,
        slots,
        dim**-0.5,
        span,
        ROWS=tall,
        KEYS=block,
        DIM=wide,
        CHUNK=chunk,
        SHARED=many > 1,
        num_warps=warps,
        num_stages=stages,
    )
    if many > 1:
        grid = (seqs * heads * group,)
        _together[grid](parts, notes, lengths, y, heads * group, dim, span, DIM=wide, num_warps=2)
