"""Matrix product by Hopper's wgmma: tiles of both operands come ahead by TMA, in slots in turn.

float32 is multiplied as bfloat16: each operand is the sum of three, and six of their nine products
matter, one behind the other along k.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

TALL = 128  # knob: 64 128
WIDE = 128  # knob: 64 128 256
SLOTS = 4  # knob: 2 3 4 5
DEEP = 64  # what a swizzle of 128 bytes holds
TILED = (plgpu.TilingTransform((8, DEEP)), plgpu.SwizzleTransform(128))


def _kernel(a_ref, b_ref, c_ref, lefts, rights, tile, came, *, steps):
    down = pl.ds(jax.lax.axis_index("down") * TALL, TALL)
    across = pl.ds(jax.lax.axis_index("across") * WIDE, WIDE)

    def load(step):
        slot, deep = jax.lax.rem(step, SLOTS), pl.ds(step * DEEP, DEEP)
        plgpu.copy_gmem_to_smem(a_ref.at[down, deep], lefts.at[slot], came.at[slot])
        plgpu.copy_gmem_to_smem(b_ref.at[deep, across], rights.at[slot], came.at[slot])

    for step in range(min(SLOTS - 1, steps)):
        load(jnp.int32(step))

    def product(sum_ref):
        def multiply(step, carry):
            slot = jax.lax.rem(step, SLOTS)
            plgpu.barrier_wait(came.at[slot])
            plgpu.wgmma(sum_ref, lefts.at[slot], rights.at[slot])
            plgpu.wgmma_wait(1)  # the slot before is free

            @pl.when(step + SLOTS - 1 < steps)
            def _ahead():
                load(step + SLOTS - 1)

            return carry

        jax.lax.fori_loop(0, steps, multiply, 0)
        return sum_ref[...]

    tile[...] = pl.run_scoped(product, plgpu.ACC((TALL, WIDE), jnp.float32)).astype(tile.dtype)
    plgpu.commit_smem()
    plgpu.copy_smem_to_gmem(tile, c_ref.at[down, across])
    plgpu.wait_smem_to_gmem(0)


def _parts(x):
    """Three bfloat16 whose sum is x, to float32's last bits. XLA would take a conversion there and
    back for none, and the rest for 0."""
    parts = []
    for _ in range(3):
        part = jax.lax.reduce_precision(x, exponent_bits=8, mantissa_bits=7)
        parts.append(part.astype(jnp.bfloat16))
        x = x - part
    return parts


def matmul(a, b, *, interpret=False):
    (m, k), n, kind = a.shape, b.shape[1], a.dtype
    if m * n * k == 0:
        return jnp.zeros((m, n), kind)
    if kind == jnp.float32:
        (a, a1, a2), (b, b1, b2) = _parts(a), _parts(b)
        # The smallest first.
        a = jnp.concatenate([a2, a1, a, a1, a, a], axis=1)
        b = jnp.concatenate([b, b1, b2, b, b1, b], axis=0)
    blocks = ((m, TALL), (a.shape[1], DEEP), (n, WIDE))
    tall, deep, wide = (pl.cdiv(size, block) * block for size, block in blocks)
    tiled = TILED if kind.itemsize == 2 else (plgpu.TilingTransform((8, 32)), TILED[1])
    c = plgpu.kernel(
        partial(_kernel, steps=deep // DEEP),
        out_type=jax.ShapeDtypeStruct((tall, wide), kind),
        grid=(tall // TALL, wide // WIDE),
        grid_names=("down", "across"),
        scratch_types=[
            plgpu.SMEM((SLOTS, TALL, DEEP), a.dtype, transforms=TILED),
            plgpu.SMEM((SLOTS, DEEP, WIDE), b.dtype, transforms=TILED),
            plgpu.SMEM((TALL, WIDE), kind, transforms=tiled),
            plgpu.Barrier(num_arrivals=2, num_barriers=SLOTS),
        ],
        kernel_name="matmul",
        interpret=interpret,
    )(
        jnp.pad(a, ((0, tall - m), (0, deep - a.shape[1]))),
        jnp.pad(b, ((0, deep - b.shape[0]), (0, wide - n))),
    )
    return c[:m, :n]
