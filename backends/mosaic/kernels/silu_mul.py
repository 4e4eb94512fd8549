"""silu(gate) * up: each program copies two tiles to shared memory and one back by TMA."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

ROWS = 32  # knob: 16 32 64
LANES = 128


def _kernel(gate_ref, up_ref, y_ref, gates, ups, came):
    at = pl.ds(jax.lax.axis_index("tile") * ROWS, ROWS)
    plgpu.copy_gmem_to_smem(gate_ref.at[at], gates, came)
    plgpu.copy_gmem_to_smem(up_ref.at[at], ups, came)
    plgpu.barrier_wait(came)
    gate, up = gates[...].astype(jnp.float32), ups[...].astype(jnp.float32)
    gates[...] = (gate / (1.0 + jnp.exp(-gate)) * up).astype(gates.dtype)
    plgpu.commit_smem()
    plgpu.copy_smem_to_gmem(gates, y_ref.at[at])
    plgpu.wait_smem_to_gmem(0)


def silu_mul(gate, up, *, interpret=False):
    if gate.size == 0:
        return jnp.empty_like(gate)
    tiles = pl.cdiv(gate.size, ROWS * LANES)
    shape = (tiles * ROWS, LANES)
    y = plgpu.kernel(
        _kernel,
        out_type=jax.ShapeDtypeStruct(shape, gate.dtype),
        grid=(tiles,),
        grid_names=("tile",),
        scratch_types=[
            plgpu.SMEM((ROWS, LANES), gate.dtype),
            plgpu.SMEM((ROWS, LANES), gate.dtype),
            plgpu.Barrier(num_arrivals=2),
        ],
        kernel_name="silu_mul",
        interpret=interpret,
    )(*(jnp.pad(x, (0, shape[0] * LANES - x.size)).reshape(shape) for x in (gate, up)))
    return y.reshape(-1)[: gate.size]
