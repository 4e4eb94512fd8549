"""c = a b for each pair of a batch, accumulated in float32; float32 is multiplied without TF32.

In tiles of a dot, whose depth is shared out where too few tiles would fill a device. Few rows or
columns go without a dot, since its least tile would be empty for the most part; small products of
little depth share a program. The parts of a depth are added up by a second kernel.
"""

import math
from functools import partial

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

BLOCK_M = 128  # knob: 64 128
BLOCK_N = 128  # knob: 64 128
BLOCK_K = 64  # knob: 32 64
NUM_WARPS = 8  # knob: 4 8
NUM_STAGES = 3  # knob: 2 3 4
# For float32, which runs on the ordinary multipliers.
BLOCK_F32 = 64  # knob: 32 64 128
BLOCK_K_F32 = 16  # knob: 16 32
LEAST_DEPTH_F32 = 256  # knob: 128 256 512
TILE_SMALL = 1024  # knob: 512 1024 2048
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
# Products of less depth leave the lanes that share it idle.
DEEP = 64


def _bmm(a_ref, b_ref, c_ref, *, m, n, k, tiles, span, block_m, block_n, block_k):
    """Of the depth ``[part * span, part * span + span)``."""
    tile = pl.program_id(0) % tiles  # a product's tiles are neighbours: it stays in the L2
    tiles_n = pl.cdiv(n, block_n)
    start_m, start_n = tile // tiles_n * block_m, tile % tiles_n * block_n
    in_m = jnp.arange(block_m) < m - start_m
    in_n = jnp.arange(block_n) < n - start_n
    first = pl.program_id(1) * span

    def step(index, total):
        start = first + index * block_k
        in_k = jnp.arange(block_k) < k - start
        a_part = a_ref.at[pl.ds(start_m, block_m), pl.ds(start, block_k)]
        b_part = b_ref.at[pl.ds(start, block_k), pl.ds(start_n, block_n)]
        a = plt.load(a_part, mask=in_m[:, None] & in_k[None, :], other=0.0)
        b = plt.load(b_part, mask=in_k[:, None] & in_n[None, :], other=0.0)
        precision = jax.lax.Precision.HIGHEST if a.dtype == jnp.float32 else None
        return total + jnp.dot(a, b, precision=precision, preferred_element_type=jnp.float32)

    zero = jnp.zeros((block_m, block_n), jnp.float32)
    total = jax.lax.fori_loop(0, span // block_k, step, zero)
    part = c_ref.at[pl.ds(start_m, block_m), pl.ds(start_n, block_n)]
    plt.store(part, total.astype(c_ref.dtype), mask=in_m[:, None] & in_n[None, :])


def _thin(a_ref, b_ref, c_ref, *, m, n, k, tiles, span, block_m, block_n, block_k):
    """Each lane multiplies at places of its own in the depth, which are added up at the end."""
    tile, tiles_n = pl.program_id(0) % tiles, pl.cdiv(n, block_n)
    start_m, start_n = tile // tiles_n * block_m, tile % tiles_n * block_n
    row = start_m + jnp.arange(block_m)[:, None, None]
    col = start_n + jnp.arange(block_n)[None, None, :]
    in_m, in_n, first = row < m, col < n, pl.program_id(1) * span

    def step(index, total):
        depth = first + index * block_k + jnp.arange(block_k)[None, :, None]
        a = plt.load(a_ref.at[row, depth], mask=in_m & (depth < k), other=0.0)
        b = plt.load(b_ref.at[depth, col], mask=in_n & (depth < k), other=0.0)
        return total + a.astype(jnp.float32) * b.astype(jnp.float32)

    zero = jnp.zeros((block_m, block_k, block_n), jnp.float32)
    total = jnp.sum(jax.lax.fori_loop(0, span // block_k, step, zero), axis=1)
    part = c_ref.at[pl.ds(start_m, block_m), pl.ds(start_n, block_n)]
    plt.store(part, total.astype(c_ref.dtype), mask=in_m[:, 0] & in_n[0])


def _small(a_ref, b_ref, c_ref, *, batch, m, n, k):
    many, block_m, block_n = c_ref.shape
    there = (pl.program_id(0) * many + jnp.arange(many) < batch)[:, None, None]
    in_m = there & (jnp.arange(block_m) < m)[None, :, None]
    in_n = there & (jnp.arange(block_n) < n)[None, None, :]
    batches, rows, cols = pl.ds(0, many), pl.ds(0, block_m), pl.ds(0, block_n)

    def step(depth, total):
        a = plt.load(a_ref.at[batches, rows, pl.ds(depth, 1)], mask=in_m, other=0.0)
        b = plt.load(b_ref.at[batches, pl.ds(depth, 1), cols], mask=in_n, other=0.0)
        return total + a.astype(jnp.float32) * b.astype(jnp.float32)

    zero = jnp.zeros((many, block_m, block_n), jnp.float32)
    total = jax.lax.fori_loop(0, k, step, zero)
    plt.store(c_ref, total.astype(c_ref.dtype), mask=in_m & in_n)


def _share_programs(a, b, interpret):
    (batch, m, k), n = a.shape, b.shape[2]
    block_m, block_n = pl.next_power_of_2(m), pl.next_power_of_2(n)
    many = TILE_SMALL // (block_m * block_n)

    def some(*shape):
        return pl.BlockSpec((many, *shape), lambda i: (i, 0, 0))

    return pl.pallas_call(
        partial(_small, batch=batch, m=m, n=n, k=k),
        grid=(pl.cdiv(batch, many),),
        in_specs=[some(m, k), some(k, n)],
        out_specs=some(block_m, block_n),
        out_shape=jax.ShapeDtypeStruct((batch, m, n), a.dtype),
        compiler_params=plt.CompilerParams(num_warps=4),
        interpret=interpret,
    )(a, b)


def _add(parts_ref, c_ref, *, parts, count, block_p):
    (block,) = c_ref.shape
    in_count = jnp.arange(block) < count - pl.program_id(0) * block

    def step(index, total):
        start = index * block_p
        mask = (jnp.arange(block_p) < parts - start)[:, None] & in_count[None, :]
        part = parts_ref.at[pl.ds(start, block_p), pl.ds(0, block)]
        return total + plt.load(part, mask=mask, other=0.0)

    zero = jnp.zeros((block_p, block), jnp.float32)
    total = jnp.sum(jax.lax.fori_loop(0, pl.cdiv(parts, block_p), step, zero), axis=0)
    plt.store(c_ref, total.astype(c_ref.dtype), mask=in_count)


def _sum_of_parts(sums, dtype, interpret):
    parts, count = sums.shape
    block = min(ADD_COLS, pl.next_power_of_2(count))
    block_p = min(ADD_TILE // block, pl.next_power_of_2(parts))
    return pl.pallas_call(
        partial(_add, parts=parts, count=count, block_p=block_p),
        grid=(pl.cdiv(count, block),),
        in_specs=[pl.BlockSpec((parts, block), lambda i: (0, i))],
        out_specs=pl.BlockSpec((block,), lambda i: (i,)),
        out_shape=jax.ShapeDtypeStruct((count,), dtype),
        compiler_params=plt.CompilerParams(num_warps=4),
        interpret=interpret,
    )(sums)


def _in_parts(kernel, a, b, blocks, programs, warps, interpret):
    """Where there are few tiles, each is of a part of the depth."""
    (batch, m, k), n = a.shape, b.shape[2]
    block_m, block_n, block_k = blocks
    tiles = pl.cdiv(m, block_m) * pl.cdiv(n, block_n)
    least = LEAST_DEPTH_F32 if a.dtype == jnp.float32 else LEAST_DEPTH
    parts = max(1, min(programs // (batch * tiles), k // max(block_k, least)))
    span = pl.cdiv(pl.cdiv(k, parts), block_k) * block_k
    parts = pl.cdiv(k, span)
    sizes = {"m": m, "n": n, "k": k, "tiles": tiles, "span": span}

    def matrix(*shape):
        return pl.BlockSpec((None, *shape), lambda i, part: (i // tiles, 0, 0))

    sums = pl.pallas_call(
        partial(kernel, **sizes, block_m=block_m, block_n=block_n, block_k=block_k),
        grid=(batch * tiles, parts),
        in_specs=[matrix(m, k), matrix(k, n)],
        out_specs=pl.BlockSpec((None, None, m, n), lambda i, part: (part, i // tiles, 0, 0)),
        out_shape=jax.ShapeDtypeStruct(
            (parts, batch, m, n), a.dtype if parts == 1 else jnp.float32
        ),
        compiler_params=plt.CompilerParams(num_warps=warps, num_stages=NUM_STAGES),
        interpret=interpret,
    )(a, b)
    if parts > 1:
        sums = _sum_of_parts(sums.reshape(parts, -1), a.dtype, interpret)
    return sums.reshape(batch, m, n)


def _fit(length, block):
    """A smaller block for a smaller matrix; 16 is the least that every dot unit takes."""
    return max(16, min(block, pl.next_power_of_2(length)))


def _blocks(batch, m, n, k, strict):
    block_m = _fit(m, BLOCK_F32 if strict else BLOCK_M)
    block_n = _fit(n, BLOCK_F32 if strict else BLOCK_N)
    # Smaller ones fill a device where there are few; what there is of depth is shared out instead.
    least = 64 * 64 if k >= 2 * LEAST_DEPTH else 32 * 32
    while (
        block_m * block_n > least
        and batch * pl.cdiv(m, block_m) * pl.cdiv(n, block_n) < PROGRAMS // 2
    ):
        block_m, block_n = (block_m // 2, block_n) if block_m > block_n else (block_m, block_n // 2)
    deep = 2 if block_m * block_n <= 32 * 32 else 1  # as much is to be on its way
    return block_m, block_n, _fit(k, deep * (BLOCK_K_F32 if strict else BLOCK_K))


def _thin_blocks(m, n, k):
    block_m = min(pl.next_power_of_2(m), 8)
    block_n = min(pl.next_power_of_2(n), THIN_COLS if m <= n else 8)
    return block_m, block_n, min(pl.next_power_of_2(k), THIN_TILE // (block_m * block_n))


def bmm(a, b, *, interpret=False):
    (batch, m, k), n = a.shape, b.shape[2]
    if batch == 0 or m == 0 or n == 0 or k == 0:
        return jnp.zeros((batch, m, n), a.dtype)
    strict = a.dtype == jnp.float32
    if m < 16 and n < 16 and k <= DEEP:
        return _share_programs(a, b, interpret)
    if k > DEEP and min(m, n) <= (THIN_F32 if strict else THIN_16):
        kernel, programs, blocks = _thin, PROGRAMS_THIN, _thin_blocks(m, n, k)
        warps = max(1, min(8, math.prod(blocks) // 1024))
    else:
        kernel, blocks = _bmm, _blocks(batch, m, n, k, strict)
        area = blocks[0] * blocks[1]
        # Of small tiles a processor holds more at a time.
        programs = PROGRAMS if area > 64 * 64 else 2 * PROGRAMS
        warps = min(NUM_WARPS, max(4, area // 2048))
    return _in_parts(kernel, a, b, blocks, programs, warps, interpret)
