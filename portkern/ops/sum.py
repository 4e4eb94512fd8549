"""Sum over the middle axis of three."""

from __future__ import annotations

from typing import TYPE_CHECKING

from portkern.ops._sizes import workloads
from portkern.spec.op import Op, Signature, TensorSpec

if TYPE_CHECKING:
    import torch


def run(x: torch.Tensor) -> torch.Tensor:
    return x.sum(dim=1)


def cancelling(
    kind: torch.dtype, generator: torch.Generator, x: torch.Tensor
) -> tuple[torch.Tensor]:
    """Each half takes away what the other adds, but for a few per cent."""
    half = x.shape[1] // 2
    x = x.to(kind).float()  # what is rounded later would not cancel
    x[:, half : 2 * half] = x[:, half : 2 * half] / 64 - x[:, :half]
    return (x,)


SIGNATURE = Signature(
    "sum",
    axes=("outer", "reduce", "inner"),
    inputs=(TensorSpec("x", ("outer", "reduce", "inner")),),
    outputs=(TensorSpec("y", ("outer", "inner")),),
)

OP = Op(
    SIGNATURE,
    reference=run,
    flops=lambda d: d["outer"] * d["reduce"] * d["inner"],
    description=__doc__,
    terms=lambda d: d["reduce"],
    cancels=True,
    adversaries={"cancelling": cancelling},
    workloads=workloads(
        SIGNATURE.axes,
        ci=[(64, 1000, 1), (4, 129, 37)],
        typical=[(4096, 4096, 1), (64, 1024, 512), (8192, 8192, 1), (1, 8192, 8192)],
        edge=[(3, 0, 5), (1, 1, 1), (1, 7919, 1), (5, 1, 7), (2, 3, 1021), (70001, 3, 1)],
        heldout=[(613, 769, 1), (3, 517, 259), (33013, 5, 2)],
    ),
)
