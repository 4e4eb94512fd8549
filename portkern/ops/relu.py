"""Rectified linear unit, element by element.

What becomes of a NaN is left open: a comparison keeps it, the maximum of C and of GPUs does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from portkern.ops._adversaries import infinite
from portkern.ops._sizes import workloads
from portkern.spec.op import Op, Signature, TensorSpec

if TYPE_CHECKING:
    import torch


def run(x: torch.Tensor) -> torch.Tensor:
    return x.relu()


SIGNATURE = Signature(
    "relu", axes=("n",), inputs=(TensorSpec("x", ("n",)),), outputs=(TensorSpec("y", ("n",)),)
)

OP = Op(
    SIGNATURE,
    reference=run,
    flops=lambda d: d["n"],
    terms=lambda _: 1,
    description=__doc__,
    adversaries={"infinite": infinite},
    workloads=workloads(
        SIGNATURE.axes,
        ci=[(1000,), (65536,)],
        typical=[(4194304,), (33554432,), (67108864,)],
        edge=[(0,), (1,), (7919,), (1048579,), (33554435,)],
        heldout=[(99991,), (1572869,)],
    ),
)
