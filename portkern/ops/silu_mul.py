"""silu(gate) * up, the gated half of a SwiGLU block, element by element."""

from __future__ import annotations

from typing import TYPE_CHECKING

from portkern.ops._sizes import workloads
from portkern.spec.op import Op, Signature, TensorSpec

if TYPE_CHECKING:
    import torch


def run(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    import torch

    return torch.nn.functional.silu(gate) * up


def large(
    kind: torch.dtype, generator: torch.Generator, gate: torch.Tensor, up: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Gates from -200 to 200, where the exponential overflows on one side."""
    return gate * 60, up


SIGNATURE = Signature(
    "silu_mul",
    axes=("n",),
    inputs=(TensorSpec("gate", ("n",)), TensorSpec("up", ("n",))),
    outputs=(TensorSpec("y", ("n",)),),
)

OP = Op(
    SIGNATURE,
    reference=run,
    flops=lambda d: 5.0 * d["n"],
    terms=lambda _: 1,
    description=__doc__,
    adversaries={"large": large},
    workloads=workloads(
        SIGNATURE.axes,
        ci=[(1000,), (65536,)],
        typical=[(4194304,), (33554432,), (67108864,)],
        edge=[(0,), (1,), (7919,), (1048579,)],
        heldout=[(99991,), (1572869,)],
    ),
)
