"""Root-mean-square normalisation over the last axis, with weight."""

from __future__ import annotations

from typing import TYPE_CHECKING

from portkern.ops._sizes import workloads
from portkern.spec.op import Op, ScalarSpec, Signature, TensorSpec

if TYPE_CHECKING:
    import torch


def run(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    import torch

    return torch.nn.functional.rms_norm(x, x.shape[-1:], weight, eps)


def uneven(
    kind: torch.dtype, generator: torch.Generator, x: torch.Tensor, weight: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows from 1e-5, where eps is what counts, to 1e3, whose squares a half cannot hold."""
    import torch

    power = torch.randint(-5, 4, (x.shape[0], 1), generator=generator)
    return x * 10.0**power, weight


SIGNATURE = Signature(
    "rmsnorm",
    axes=("rows", "cols"),
    inputs=(TensorSpec("x", ("rows", "cols")), TensorSpec("weight", ("cols",))),
    outputs=(TensorSpec("y", ("rows", "cols")),),
    scalars=(ScalarSpec("eps", "float32", 1e-06),),
)

OP = Op(
    SIGNATURE,
    reference=run,
    flops=lambda d: 4.0 * d["rows"] * d["cols"],
    description=__doc__,
    terms=lambda d: d["cols"],
    adversaries={"uneven": uneven},
    workloads=workloads(
        SIGNATURE.axes,
        ci=[(32, 129), (64, 1024)],
        typical=[(4096, 1024), (8192, 4096), (8192, 8192)],
        edge=[(0, 8), (1, 1), (3, 7919), (1021, 3), (2, 65537)],
        heldout=[(613, 769), (259, 5003), (33013, 5)],
    ),
)
