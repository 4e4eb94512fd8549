"""Layer normalisation over the last axis, with weight and bias."""

from __future__ import annotations

from typing import TYPE_CHECKING

from portkern.ops._sizes import workloads
from portkern.spec.op import Op, ScalarSpec, Signature, TensorSpec

if TYPE_CHECKING:
    import torch


def run(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    import torch

    return torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, eps)


def far(
    kind: torch.dtype,
    generator: torch.Generator,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Means of many standard deviations: the difference of E[x^2] and E[x]^2 loses all digits."""
    import torch

    mean = 3000.0 if kind is torch.float32 else 60.0
    side = torch.randint(0, 2, (x.shape[0], 1), generator=generator) * 2 - 1
    return x + side * mean, weight, bias


SIGNATURE = Signature(
    "layernorm",
    axes=("rows", "cols"),
    inputs=(
        TensorSpec("x", ("rows", "cols")),
        TensorSpec("weight", ("cols",)),
        TensorSpec("bias", ("cols",)),
    ),
    outputs=(TensorSpec("y", ("rows", "cols")),),
    scalars=(ScalarSpec("eps", "float32", 1e-05),),
)

OP = Op(
    SIGNATURE,
    reference=run,
    flops=lambda d: 8.0 * d["rows"] * d["cols"],
    description=__doc__,
    terms=lambda d: d["cols"],
    shifts=True,
    adversaries={"far": far},
    workloads=workloads(
        SIGNATURE.axes,
        ci=[(32, 129), (64, 1024)],
        typical=[(4096, 1024), (8192, 4096), (8192, 8192)],
        edge=[(0, 8), (1, 2), (3, 7919), (1021, 3), (2, 65537)],
        heldout=[(613, 769), (259, 5003), (33013, 5)],
        headline=[(16, 64 * 256 * 256)],
    ),
)
