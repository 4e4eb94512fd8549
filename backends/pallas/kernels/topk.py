"""The k largest of each row in two kernels: the first finds the kth largest bit by bit and keeps
the indices of those not below it, the second puts each where as many are before it."""

from functools import partial

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

BLOCK = 8192  # knob: 2048 4096 8192
PER_THREAD = 16  # knob: 8 16 32
BLOCK_K = 128  # knob: 32 64 128


def _order(value):
    """Integers that compare as the op wants the values to: one zero, and NaN above all."""
    bits = value.dtype.itemsize * 8
    kind = jnp.int32 if bits == 32 else jnp.int16
    most = 2 ** (bits - 1) - 1
    pattern = jax.lax.bitcast_convert_type(value, kind).astype(jnp.int32)
    order = pattern ^ ((pattern >> 31) & most)
    value = value.astype(jnp.float32)
    # -1 is the negative zero alone; a comparison of the value's bits may become one of floats, to
    # which a subnormal number is a zero where they are flushed.
    return jnp.where(value != value, most, jnp.where(order == -1, 0, order))


def _select(x_ref, at_ref, *, cols, k, block):
    """One row; ``at_ref`` gets the columns of its k largest, in the order of the row."""
    steps, bits = pl.cdiv(cols, block), x_ref.dtype.itemsize * 8
    least = -(2 ** (bits - 1))  # below -inf too

    def load(step):
        start = step * block
        mask = jnp.arange(block) < cols - start
        value = plt.load(x_ref.at[pl.ds(start, block)], mask=mask, other=0.0)
        return jnp.where(mask, _order(value), least)

    held = load(0) if steps == 1 else None

    def over_row(body, carry):
        if steps == 1:
            return body(0, held, carry)
        return jax.lax.fori_loop(0, steps, lambda step, c: body(step, load(step), c), carry)

    def count(condition):
        def add(_, order, total):
            return total + jnp.sum(condition(order).astype(jnp.int32))

        return over_row(add, jnp.int32(0))

    def refine(step, bound):
        """The next bit of the kth largest, the highest first: set if k are still not below."""
        higher = bound + (1 << (bits - 1 - step))
        return jnp.where(count(lambda order: order >= higher) >= k, higher, bound)

    bound = jax.lax.fori_loop(0, bits, refine, jnp.int32(least))
    equal_kept = k - count(lambda order: order > bound)

    def pick(step, order, carry):
        taken, seen = carry
        equal = order == bound
        ordinal = seen + jax.lax.cumsum(equal.astype(jnp.int32))
        keep = (order > bound) | (equal & (ordinal <= equal_kept))
        place = taken + jax.lax.cumsum(keep.astype(jnp.int32)) - 1
        # What is masked needs a place of its own: interpret mode writes there what was there.
        place = jnp.where(keep, place, k)
        plt.store(at_ref.at[place], step * block + jnp.arange(block), mask=keep)
        return taken + jnp.sum(keep.astype(jnp.int32)), seen + jnp.sum(equal.astype(jnp.int32))

    over_row(pick, (jnp.int32(0), jnp.int32(0)))


def _arrange(x_ref, at_ref, value_ref, index_ref, *, k, block):
    def load(start):
        mask = jnp.arange(block) < k - start
        at = plt.load(at_ref.at[pl.ds(start, block)], mask=mask, other=0)
        return mask, at, plt.load(x_ref.at[at], mask=mask, other=0.0)

    start = pl.program_id(1) * block
    mask, at, value = load(start)
    mine = _order(value)[:, None], at[:, None]

    def step(index, rank):
        there, other_at, other = load(index * block)
        order, other_at = _order(other)[None, :], other_at[None, :]
        before = (order > mine[0]) | ((order == mine[0]) & (other_at < mine[1]))
        return rank + jnp.sum((before & there[None, :]).astype(jnp.int32), axis=1)

    rank = jax.lax.fori_loop(0, pl.cdiv(k, block), step, jnp.zeros((block,), jnp.int32))
    rank = jnp.where(mask, rank, k)
    plt.store(value_ref.at[rank], value, mask=mask)
    plt.store(index_ref.at[rank], at.astype(index_ref.dtype), mask=mask)


def topk(x, *, k, interpret=False):
    rows, cols = x.shape
    out = jax.ShapeDtypeStruct((rows, k), x.dtype), jax.ShapeDtypeStruct((rows, k), jnp.int32)
    if rows == 0 or k == 0:
        return tuple(jnp.empty(one.shape, one.dtype) for one in out)
    block = min(BLOCK, pl.next_power_of_2(cols))
    at = pl.pallas_call(
        partial(_select, cols=cols, k=k, block=block),
        grid=(rows,),
        in_specs=[pl.BlockSpec((None, cols), lambda i: (i, 0))],
        out_specs=pl.BlockSpec((None, k), lambda i: (i, 0)),
        out_shape=jax.ShapeDtypeStruct((rows, k), jnp.int32),
        compiler_params=plt.CompilerParams(num_warps=max(1, min(16, block // (32 * PER_THREAD)))),
        interpret=interpret,
    )(x)
    block = min(BLOCK_K, pl.next_power_of_2(k))
    chosen = pl.BlockSpec((None, k), lambda i, j: (i, 0))
    return pl.pallas_call(
        partial(_arrange, k=k, block=block),
        grid=(rows, pl.cdiv(k, block)),
        in_specs=[pl.BlockSpec((None, cols), lambda i, j: (i, 0)), chosen],
        out_specs=(chosen, chosen),
        out_shape=out,
        compiler_params=plt.CompilerParams(num_warps=max(1, min(8, block * block // 1024))),
        interpret=interpret,
    )(x, at)
