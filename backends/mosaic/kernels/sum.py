"""Sum over the middle axis of three: programs add tiles up in registers, whole rows where the last
axis is 1, lanes of their own where it is longer."""

from functools import partial

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

PART = 8192  # knob: 2048 4096 8192
LANES = 128
DEEP = 32  # knob: 8 16 32 64


def _rows(x_ref, y_ref, tile, sums, came, *, parts):
    row, tall = jax.lax.axis_index("row"), tile.shape[0]

    def add(part, total):
        plgpu.copy_gmem_to_smem(x_ref.at[row, pl.ds(part * tall, tall)], tile, came)
        plgpu.barrier_wait(came)
        return total + jnp.sum(tile[...].astype(jnp.float32))

    total = jax.lax.fori_loop(0, parts, add, jnp.float32(0))
    sums[...] = jnp.full((LANES,), total).astype(sums.dtype)
    plgpu.commit_smem()
    plgpu.copy_smem_to_gmem(sums, y_ref.at[row])
    plgpu.wait_smem_to_gmem(0)


def _lanes(x_ref, y_ref, tile, sums, came, *, parts):
    outer, lanes = jax.lax.axis_index("outer"), pl.ds(jax.lax.axis_index("inner") * LANES, LANES)

    def add(part, total):
        at = x_ref.at[outer, pl.ds(part * DEEP, DEEP), lanes]
        plgpu.copy_gmem_to_smem(at, tile, came)
        plgpu.barrier_wait(came)
        for line in range(DEEP):
            total = total + tile[line].astype(jnp.float32)
        return total

    # The first apart: zeros lie in registers otherwise than what is loaded.
    total = jax.lax.fori_loop(1, parts, add, add(0, jnp.zeros((LANES,), jnp.float32)))
    sums[...] = total.astype(sums.dtype)
    plgpu.commit_smem()
    plgpu.copy_smem_to_gmem(sums, y_ref.at[outer, lanes])
    plgpu.wait_smem_to_gmem(0)


def sum(x, *, interpret=False):
    outer, depth, inner = x.shape
    if x.size == 0:
        return jnp.zeros((outer, inner), x.dtype)
    if inner == 1:
        parts = pl.cdiv(depth, PART)
        tall = pl.cdiv(depth, parts * LANES)
        x = jnp.pad(x[:, :, 0], ((0, 0), (0, parts * tall * LANES - depth)))
        x = x.reshape(outer, parts * tall, LANES)
        grid, tile, wide = {"row": outer}, (tall, LANES), LANES
    else:
        parts, tiles = pl.cdiv(depth, DEEP), pl.cdiv(inner, LANES)
        x = jnp.pad(x, ((0, 0), (0, parts * DEEP - depth), (0, tiles * LANES - inner)))
        grid, tile, wide = {"outer": outer, "inner": tiles}, (DEEP, LANES), tiles * LANES
    y = plgpu.kernel(
        partial(_rows if inner == 1 else _lanes, parts=parts),
        out_type=jax.ShapeDtypeStruct((outer, wide), x.dtype),
        grid=tuple(grid.values()),
        grid_names=tuple(grid),
        scratch_types=[plgpu.SMEM(tile, x.dtype), plgpu.SMEM((LANES,), x.dtype), plgpu.Barrier()],
        kernel_name="sum",
        interpret=interpret,
    )(x)
    return y[:, :inner]
