"""c = (a w) * scale: weights travel as int8 and become a's type, which holds them exactly, just
before the dot; the columns' scales are applied to the finished sums.

The depth is shared out where too few tiles would fill a device, and a second kernel adds up its
parts. Few rows or columns go without a dot, since its least tile would be empty for the most part.
"""

import math
from functools import partial

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

BLOCK_M = 128  # knob: 64 128
BLOCK_N = 128  # knob: 64 128
BLOCK_K = 64  # knob: 32 64 128
NUM_WARPS = 8  # knob: 4 8
NUM_STAGES = 3  # knob: 2 3 4
# For float32, which runs on the ordinary multipliers.
BLOCK_F32 = 64  # knob: 32 64 128
BLOCK_K_F32 = 16  # knob: 16 32
LEAST_DEPTH_F32 = 256  # knob: 128 256 512
GROUP = 8  # knob: 1 4 8 16
PROGRAMS = 256  # knob: 128 256 512
PROGRAMS_THIN = 1024  # knob: 512 1024 2048
LEAST_DEPTH = 512  # knob: 256 512 1024
THIN_TILE = 8192  # knob: 4096 8192
THIN_COLS = 64  # knob: 32 64 128
ADD_COLS = 128  # knob: 64 128 256
ADD_TILE = 2048  # knob: 1024 2048 4096
# The most rows or columns that go without a dot; in 16 bits a dot's multipliers are much faster.
THIN_F32 = 8
THIN_16 = 2


def _scales(scale_ref, where, mask):
    return plt.load(scale_ref.at[where], mask=mask, other=0.0).astype(jnp.float32)


def _int8_matmul(a_ref, weight_ref, scale_ref, c_ref, *, m, n, k, span, block_m, block_n, block_k):
    """Of the depth ``[part * span, part * span + span)``."""
    tiles_m, tiles_n = pl.cdiv(m, block_m), pl.cdiv(n, block_n)
    # GROUP rows of tiles are walked column by column, so that their operands stay in the L2.
    group = pl.program_id(0) // (GROUP * tiles_n)
    height = jnp.minimum(tiles_m - group * GROUP, GROUP)
    within = pl.program_id(0) % (GROUP * tiles_n)
    start_m = (group * GROUP + within % height) * block_m
    start_n = within // height * block_n
    in_m = jnp.arange(block_m) < m - start_m
    in_n = jnp.arange(block_n) < n - start_n
    first = pl.program_id(1) * span

    def step(index, total):
        start = first + index * block_k
        in_k = jnp.arange(block_k) < k - start
        a_part = a_ref.at[pl.ds(start_m, block_m), pl.ds(start, block_k)]
        weight_part = weight_ref.at[pl.ds(start, block_k), pl.ds(start_n, block_n)]
        a = plt.load(a_part, mask=in_m[:, None] & in_k[None, :], other=0.0)
        weight = plt.load(weight_part, mask=in_k[:, None] & in_n[None, :], other=0).astype(a.dtype)
        precision = jax.lax.Precision.HIGHEST if a.dtype == jnp.float32 else None
        return total + jnp.dot(a, weight, precision=precision, preferred_element_type=jnp.float32)

    zero = jnp.zeros((block_m, block_n), jnp.float32)
    total = jax.lax.fori_loop(0, span // block_k, step, zero)
    if span >= k:
        total *= _scales(scale_ref, pl.ds(start_n, block_n), in_n)[None, :]
    part = c_ref.at[pl.ds(start_m, block_m), pl.ds(start_n, block_n)]
    plt.store(part, total.astype(c_ref.dtype), mask=in_m[:, None] & in_n[None, :])


def _thin(a_ref, weight_ref, scale_ref, c_ref, *, m, n, k, span, block_m, block_n, block_k):
    """Each lane multiplies at places of its own in the depth, which are added up at the end."""
    tiles_n = pl.cdiv(n, block_n)
    start_m, start_n = pl.program_id(0) // tiles_n * block_m, pl.program_id(0) % tiles_n * block_n
    row = start_m + jnp.arange(block_m)[:, None, None]
    col = start_n + jnp.arange(block_n)[None, None, :]
    in_m, in_n, first = row < m, col < n, pl.program_id(1) * span

    def step(index, total):
        start = first + index * block_k
        depth = start + jnp.arange(block_k)[None, :, None]
        a = plt.load(a_ref.at[row, depth], mask=in_m & (depth < k), other=0.0)
        weight = plt.load(weight_ref.at[depth, col], mask=in_n & (depth < k), other=0)
        return total + a.astype(jnp.float32) * weight.astype(jnp.float32)

    zero = jnp.zeros((block_m, block_k, block_n), jnp.float32)
    total = jnp.sum(jax.lax.fori_loop(0, span // block_k, step, zero), axis=1)
    if span >= k:
        total *= _scales(scale_ref, pl.ds(start_n, block_n), in_n[0, 0])[None, :]
    part = c_ref.at[pl.ds(start_m, block_m), pl.ds(start_n, block_n)]
    plt.store(part, total.astype(c_ref.dtype), mask=in_m[:, 0] & in_n[0])


def _add(parts_ref, scale_ref, c_ref, *, n, parts, count, block_p):
    (block,) = c_ref.shape
    at = pl.program_id(0) * block + jnp.arange(block)
    in_count = at < count

    def step(index, total):
        start = index * block_p
        mask = (jnp.arange(block_p) < parts - start)[:, None] & in_count[None, :]
        part = parts_ref.at[pl.ds(start, block_p), pl.ds(0, block)]
        return total + plt.load(part, mask=mask, other=0.0)

    zero = jnp.zeros((block_p, block), jnp.float32)
    total = jnp.sum(jax.lax.fori_loop(0, pl.cdiv(parts, block_p), step, zero), axis=0)
    total *= _scales(scale_ref, at % n, in_count)
    plt.store(c_ref, total.astype(c_ref.dtype), mask=in_count)


def _sum_of_parts(sums, scale, dtype, interpret):
    parts, count = sums.shape
    block = min(ADD_COLS, pl.next_power_of_2(count))
    block_p = min(ADD_TILE // block, pl.next_power_of_2(parts))
    return pl.pallas_call(
        partial(_add, n=scale.size, parts=parts, count=count, block_p=block_p),
        grid=(pl.cdiv(count, block),),
        in_specs=[
            pl.BlockSpec((parts, block), lambda i: (0, i)),
            pl.BlockSpec(scale.shape, lambda i: (0,)),
        ],
        out_specs=pl.BlockSpec((block,), lambda i: (i,)),
        out_shape=jax.ShapeDtypeStruct((count,), dtype),
        compiler_params=plt.CompilerParams(num_warps=4),
        interpret=interpret,
    )(sums, scale)


def _in_parts(kernel, a, weight, scale, blocks, programs, warps, interpret):
    """Where there are few tiles, each is of a part of the depth."""
    (m, k), n = a.shape, weight.shape[1]
    block_m, block_n, block_k = blocks
    tiles = pl.cdiv(m, block_m) * pl.cdiv(n, block_n)
    least = LEAST_DEPTH_F32 if a.dtype == jnp.float32 else LEAST_DEPTH
    parts = max(1, min(programs // tiles, k // max(block_k, least)))
    span = pl.cdiv(pl.cdiv(k, parts), block_k) * block_k
    parts = pl.cdiv(k, span)
    sizes = {"m": m, "n": n, "k": k, "span": span}
    sums = pl.pallas_call(
        partial(kernel, **sizes, block_m=block_m, block_n=block_n, block_k=block_k),
        grid=(tiles, parts),
        out_specs=pl.BlockSpec((None, m, n), lambda i, part: (part, 0, 0)),
        out_shape=jax.ShapeDtypeStruct((parts, m, n), a.dtype if parts == 1 else jnp.float32),
        compiler_params=plt.CompilerParams(num_warps=warps, num_stages=NUM_STAGES),
        interpret=interpret,
    )(a, weight, scale)
    if parts > 1:
        sums = _sum_of_parts(sums.reshape(parts, m * n), scale, a.dtype, interpret)
    return sums.reshape(m, n)


def _fit(length, block):
    """A smaller block for a smaller matrix; 16 is the least that every dot unit takes."""
    return max(16, min(block, pl.next_power_of_2(length)))


def _blocks(m, n, k, strict):
    block_m = _fit(m, BLOCK_F32 if strict else BLOCK_M)
    block_n = _fit(n, BLOCK_F32 if strict else BLOCK_N)
    # Smaller ones fill a device where there are few; what there is of depth is shared out instead.
    least = 64 * 64 if k >= 2 * LEAST_DEPTH else 32 * 32
    while block_m * block_n > least and pl.cdiv(m, block_m) * pl.cdiv(n, block_n) < PROGRAMS // 2:
        block_m, block_n = (block_m // 2, block_n) if block_m > block_n else (block_m, block_n // 2)
    deep = 2 if block_m * block_n <= 32 * 32 else 1  # as much is to be on its way
    return block_m, block_n, _fit(k, deep * (BLOCK_K_F32 if strict else BLOCK_K))


def _thin_blocks(m, n, k):
    block_m = min(pl.next_power_of_2(m), 8)
    block_n = min(pl.next_power_of_2(n), THIN_COLS if m <= n else 8)
    return block_m, block_n, min(pl.next_power_of_2(k), THIN_TILE // (block_m * block_n))


def int8_matmul(a, weight, scale, *, interpret=False):
    (m, k), n = a.shape, weight.shape[1]
    if m == 0 or n == 0 or k == 0:
        return jnp.zeros((m, n), a.dtype)
    strict = a.dtype == jnp.float32
    if min(m, n) <= (THIN_F32 if strict else THIN_16):
        kernel, programs, blocks = _thin, PROGRAMS_THIN, _thin_blocks(m, n, k)
        warps = max(1, min(8, math.prod(blocks) // 1024))
    else:
        kernel, blocks = _int8_matmul, _blocks(m, n, k, strict)
        area = blocks[0] * blocks[1]
        # Of small tiles a processor holds more at a time.
        programs = PROGRAMS if area > 64 * 64 else 2 * PROGRAMS
        warps = min(NUM_WARPS, max(4, area // 2048))
    return _in_parts(kernel, a, weight, scale, blocks, programs, warps, interpret)
