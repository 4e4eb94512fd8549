"""The index of the largest element of each row: the first of equal ones. A NaN is the largest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from portkern.ops._adversaries import special
from portkern.ops._sizes import workloads
from portkern.spec.op import Op, Signature, TensorSpec

if TYPE_CHECKING:
    import torch


def run(x: torch.Tensor) -> torch.Tensor:
    return x.argmax(dim=-1)


def level(kind: torch.dtype, generator: torch.Generator, x: torch.Tensor) -> tuple[torch.Tensor]:
    """Rows of one value, of -inf alone, and of zeros of both signs, which are equal."""
    import torch

    x[0::3] = x[0::3, :1].expand(x[0::3].shape)
    x[1::3] = -torch.inf
    x[2::3] = x[2::3].sign() * 0.0
    return (x,)


SIGNATURE = Signature(
    "argmax",
    axes=("rows", "cols"),
    inputs=(TensorSpec("x", ("rows", "cols")),),
    outputs=(TensorSpec("index", ("rows",), "int64"),),
)

OP = Op(
    SIGNATURE,
    reference=run,
    flops=lambda d: d["rows"] * d["cols"],
    terms=lambda _: 1,
    description=__doc__,
    adversaries={"level": level, "special": special},
    workloads=workloads(
        SIGNATURE.axes,
        ci=[(32, 129), (64, 1024)],
        typical=[(4096, 1024), (8192, 4096), (8192, 8192)],
        edge=[(0, 8), (1, 1), (3, 7919), (1021, 1), (2, 65537)],
        heldout=[(613, 769), (259, 5003), (33013, 5)],
    ),
)
