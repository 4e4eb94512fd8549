"""Causal attention without its matrix: a tile of queries goes through the tiles of keys up to its
end with a running maximum, and what was summed is scaled when the maximum rises."""

import torch
import triton
import triton.language as tl

BLOCK_M = 64  # knob: 64 128
BLOCK_N = 64  # knob: 32 64 128
NUM_WARPS = 4  # knob: 4 8
NUM_STAGES = 3  # knob: 1 2 3
# For float32, which runs on the ordinary multipliers: they take a part of the dimensions at a time.
# A thread has 16 sums of each product or more, since of few it reads nearly two numbers for each
# multiplication; of the weighted values not many more, for the registers' sake.
BLOCK_M_F32 = 64  # knob: 32 64 128
BLOCK_N_F32 = 64  # knob: 32 64
MOST_F32 = 8192  # knob: 4096 8192
PART_F32 = 16  # knob: 16 32
NUM_WARPS_F32 = 8  # knob: 4 8
# So many queries or more of float32 are worth the tensor cores, which multiply them in slices.
SLICED_FROM = 64  # knob: 64 256 1000000
BLOCK_N_SLICED = 32  # knob: 32 64
# On AMD what a stage brings to LDS is in registers on its way, where there is no room for it.
NUM_STAGES_AMD = 1  # knob: 1 2
BLOCK_N_SLICED_AMD = 16  # knob: 16 32
MOST_DIM = 256


@triton.jit
def _rows(at, there, dim: tl.constexpr, ROWS: tl.constexpr, FIRST: tl.constexpr, DIM: tl.constexpr):
    """Of the ROWS rows at ``at``, of which ``there`` are there (None: all), DIM dimensions."""
    row = tl.arange(0, ROWS)[:, None]
    d = FIRST + tl.arange(0, DIM)[None, :]
    mask = d < dim if there is None else (d < dim) & (row < there)
    return tl.load(at + row * dim + d, mask=mask, other=0.0)


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
def _step(
    query,
    query_rest,
    q,
    k,
    v,
    top,
    total,
    result,
    result_rest,
    rows,
    keys,
    behind,
    dim: tl.constexpr,
    scale,
    MASKED: tl.constexpr,
    BLOCK_N: tl.constexpr,
    PART: tl.constexpr,
    DIM: tl.constexpr,
    REST: tl.constexpr,
    SLICED: tl.constexpr,
):
    """Take in the tile of keys at ``k``, of which ``keys`` are there; the tile of ``rows`` queries
    at ``q`` is ``behind`` it. MASKED where some of the keys come after a query."""
    row = tl.arange(0, query.shape[0])[:, None]
    key = tl.arange(0, BLOCK_N)
    there = keys if MASKED else None
    if PART == DIM and not SLICED:
        scores = tl.dot(
            query, tl.trans(_rows(k, there, dim, BLOCK_N, 0, DIM)), input_precision="ieee"
        )
        if REST:
            tile = _rows(k, there, dim, BLOCK_N, DIM, REST)
            scores = tl.dot(query_rest, tl.trans(tile), scores, input_precision="ieee")
    else:
        scores = tl.zeros((query.shape[0], BLOCK_N), tl.float32)
        for first in range(0, dim, PART):
            part = first + tl.arange(0, PART)[None, :]
            left = tl.load(q + row * dim + part, mask=(row < rows) & (part < dim), other=0.0)
            in_keys = (key < keys)[:, None] & (part < dim)
            right = tl.load(k + key[:, None] * dim + part, mask=in_keys, other=0.0)
            if SLICED:
                scores += _product(left, tl.trans(right))
            else:
                scores = tl.dot(left, tl.trans(right), scores, input_precision="ieee")
    scores *= scale
    if MASKED:
        scores = tl.where(key[None, :] <= row + behind, scores, -float("inf"))
    # Never -inf: all queries have the first key, which is in the first tile.
    higher = tl.maximum(top, tl.max(scores, axis=1))
    weights = tl.exp2(scores - higher[:, None])
    fade = tl.exp2(top - higher)
    total = total * fade + tl.sum(weights, axis=1)
    value = _rows(v, there, dim, BLOCK_N, 0, DIM)
    weights = weights.to(value.dtype)
    if SLICED:
        result = result * fade[:, None] + _product(weights, value)
    else:
        result = tl.dot(weights, value, result * fade[:, None], input_precision="ieee")
    if REST:
        value = _rows(v, there, dim, BLOCK_N, DIM, REST)
        result_rest = tl.dot(weights, value, result_rest * fade[:, None], input_precision="ieee")
    return higher, total, result, result_rest


@triton.jit
def _attention(
    q,
    k,
    v,
    y,
    length,
    dim: tl.constexpr,
    scale,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    PART: tl.constexpr,
    DIM: tl.constexpr,
    REST: tl.constexpr,
    SLICED: tl.constexpr,
):
    # The dimensions are a constant: of rows whose length is not known to be a multiple of 8 the
    # compiler loads one element at a time, without copies ahead, and spills the addresses. They are
    # DIM and, where that is fewer than the next power of two, REST.
    tiles = tl.cdiv(length, BLOCK_M)
    base = (tl.program_id(0) // tiles).to(tl.int64) * length * dim
    # A head's last queries have the most keys, and start first.
    start = (tiles - 1 - tl.program_id(0) % tiles) * BLOCK_M
    rows = length - start
    q += base + start.to(tl.int64) * dim
    k += base
    v += base
    row = tl.arange(0, BLOCK_M)[:, None]
    d = tl.arange(0, DIM)[None, :]
    query = _rows(q, rows, dim, BLOCK_M, 0, DIM)
    query_rest = _rows(q, rows, dim, BLOCK_M, DIM, REST) if REST else query
    top = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    result = tl.zeros((BLOCK_M, DIM), tl.float32)
    result_rest = tl.zeros((BLOCK_M, REST if REST else 1), tl.float32)
    for _ in range(0, start, BLOCK_N):
        top, total, result, result_rest = _step(
            query,
            query_rest,
            q,
            k,
            v,
            top,
            total,
            result,
            result_rest,
            rows,
            BLOCK_N,
            0,
            dim,
            scale,
            False,
            BLOCK_N,
            PART,
            DIM,
            REST,
            SLICED,
        )
        k += BLOCK_N * dim
        v += BLOCK_N * dim
    for first in range(0, tl.minimum(BLOCK_M, rows), BLOCK_N):
        top, total, result, result_rest = _step(
            query,
            query_rest,
            q,
            k,
            v,
            top,
            total,
            result,
            result_rest,
            rows,
            rows - first,
            -first,
            dim,
            scale,
            True,
            BLOCK_N,
            PART,
            DIM,
            REST,
            SLICED,
        )
        k += BLOCK_N * dim
        v += BLOCK_N * dim
    y += base + start.to(tl.int64) * dim
    result = (result / total[:, None]).to(y.dtype.element_ty)
    tl.store(y + row * dim + d, result, mask=(row < rows) & (d < dim))
    if REST:
        d = DIM + tl.arange(0, REST)[None, :]
        result_rest = (result_rest / total[:, None]).to(y.dtype.element_ty)
        tl.store(y + row * dim + d, result_rest, mask=(row < rows) & (d < dim))


def _on_amd(x):
    return x.is_cuda and triton.runtime.driver.active.get_current_target().backend == "hip"


def attention(q, k, v, y):
    batch, heads, length, dim = q.shape
    if dim > MOST_DIM:
        raise ValueError(f"attention holds a head in registers, at most {MOST_DIM}, got {dim}")
    if y.numel() == 0:
        return
    strict = q.dtype == torch.float32
    fit = max(16, triton.next_power_of_2(length))
    whole = max(16, triton.next_power_of_2(dim))
    sliced = strict and length >= SLICED_FROM and dim <= 128
    part, rest = (min(32, whole) if sliced else PART_F32, 0) if strict else (whole, 0)
    # Half of the power of two and the rest, where that is less: of 72, 64 and 16, not 128.
    last = max(16, triton.next_power_of_2(dim - whole // 2))
    if not strict and whole // 2 + last < whole:
        part, rest = whole // 2, last
    # Tiles of many dimensions are shorter, for the registers' sake.
    most_m, most_n = (MOST_F32 // whole,) * 2 if strict else (16384 // whole, 8192 // whole)
    block_m = max(16, min(fit, BLOCK_M_F32 if strict else BLOCK_M, most_m))
    block_n = max(16, min(block_m, BLOCK_N_F32 if strict else BLOCK_N, most_n))
    if sliced:
        block_m, block_n = 64, BLOCK_N_SLICED_AMD if _on_amd(q) else BLOCK_N_SLICED
    warps = (
        max(4, min(NUM_WARPS_F32, block_m * whole // 512)) if strict and not sliced else NUM_WARPS
    )
    # Powers of two are quicker than of e, so the logarithm of e goes into the scale.
    scale = dim**-0.5 * 1.4426950408889634
    _attention[(batch * heads * triton.cdiv(length, block_m),)](
        q,
        k,
        v,
        y,
        length,
        dim,
        scale,
        BLOCK_M=block_m,
        BLOCK_N=block_n,
        PART=part,
        DIM=whole if strict else part,
        REST=rest,
        SLICED=sliced,
        num_warps=warps,
        num_stages=NUM_STAGES_AMD if _on_amd(q) else NUM_STAGES,
    )
