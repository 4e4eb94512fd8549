"""Sum of a matrix and a row, broadcast over the rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from portkern.ops._adversaries import special
from portkern.ops._sizes import workloads
from portkern.spec.op import Op, Signature, TensorSpec

if TYPE_CHECKING:
    import torch


def run(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a + b


SIGNATURE = Signature(
    "add",
    axes=("m", "n"),
    inputs=(TensorSpec("a", ("m", "n")), TensorSpec("b", ("n",))),
    outputs=(TensorSpec("c", ("m", "n")),),
)

OP = Op(
    SIGNATURE,
    reference=run,
    flops=lambda d: d["m"] * d["n"],
    terms=lambda _: 1,
    description=__doc__,
    adversaries={"special": special},
    workloads=workloads(
        SIGNATURE.axes,
        ci=[(7, 33), (128, 512)],
        typical=[(2048, 2048), (8192, 4096), (8192, 8192)],
        edge=[(0, 5), (1, 1), (1, 7919), (1021, 1), (127, 129), (70001, 3)],
        heldout=[(613, 769), (4099, 1537)],
    ),
)
