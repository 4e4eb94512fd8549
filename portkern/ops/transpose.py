"""Transpose of a matrix, written out contiguously."""

from __future__ import annotations

from typing import TYPE_CHECKING

from portkern.ops._adversaries import special
from portkern.ops._sizes import workloads
from portkern.spec.op import Op, Signature, TensorSpec

if TYPE_CHECKING:
    import torch


def run(x: torch.Tensor) -> torch.Tensor:
    return x.t().contiguous()


SIGNATURE = Signature(
    "transpose",
    axes=("rows", "cols"),
    inputs=(TensorSpec("x", ("rows", "cols")),),
    outputs=(TensorSpec("y", ("cols", "rows")),),
)

OP = Op(
    SIGNATURE,
    reference=run,
    flops=lambda d: 0.0,
    terms=lambda _: 1,
    description=__doc__,
    adversaries={"special": special},
    workloads=workloads(
        SIGNATURE.axes,
        ci=[(33, 65), (128, 256)],
        typical=[(2048, 2048), (8192, 4096), (8192, 8192)],
        edge=[(0, 8), (1, 1), (1, 7919), (1021, 1), (127, 129), (70001, 3), (3, 70001)],
        heldout=[(613, 769), (4099, 1537)],
    ),
)
