"""Inclusive running sum along the last axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from portkern.ops._sizes import workloads
from portkern.spec.op import Op, Signature, TensorSpec

if TYPE_CHECKING:
    import torch


def run(x: torch.Tensor) -> torch.Tensor:
    return x.cumsum(dim=-1)


def cancelling(
    kind: torch.dtype, generator: torch.Generator, x: torch.Tensor
) -> tuple[torch.Tensor]:
    """Each element takes away most of what the one before it added."""
    x = x.to(kind).float() * 64
    last = x.shape[-1] // 2 * 2
    x[..., 1:last:2] = x[..., 1:last:2] / 4096 - x[..., 0:last:2]
    return (x,)


SIGNATURE = Signature(
    "cumsum",
    axes=("rows", "cols"),
    inputs=(TensorSpec("x", ("rows", "cols")),),
    outputs=(TensorSpec("y", ("rows", "cols")),),
)

OP = Op(
    SIGNATURE,
    reference=run,
    flops=lambda d: d["rows"] * d["cols"],
    description=__doc__,
    terms=lambda d: d["cols"],
    cancels=True,
    # Infinities are not tried: a scan as a product with a triangle of ones is honest and gives NaN.
    adversaries={"cancelling": cancelling},
    workloads=workloads(
        SIGNATURE.axes,
        ci=[(8, 129), (16, 1024)],
        typical=[(4096, 1024), (8192, 4096), (8192, 8192)],
        edge=[(0, 8), (1, 1), (3, 7919), (1021, 1), (2, 65537)],
        heldout=[(613, 769), (259, 5003), (33013, 5)],
    ),
)
