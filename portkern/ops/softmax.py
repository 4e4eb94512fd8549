"""Softmax over the last axis."""

from __future__ import annotations

from typing import Any

from portkern.op import Op, Signature, TensorSpec
from portkern.ops._sizes import workloads


def run(x: Any) -> Any:
    return x.softmax(dim=-1)


SIGNATURE = Signature(
    "softmax",
    axes=("rows", "cols"),
    inputs=(TensorSpec("x", ("rows", "cols")),),
    outputs=(TensorSpec("y", ("rows", "cols")),),
)

OP = Op(
    SIGNATURE,
    reference=run,
    flops=lambda d: 5.0 * d["rows"] * d["cols"],
    description=__doc__,
    terms=lambda d: d["cols"],
    workloads=workloads(
        SIGNATURE.axes,
        ci=[(32, 129), (64, 1024)],
        typical=[(4096, 1024), (8192, 4096), (8192, 8192)],
        edge=[(0, 8), (1, 1), (3, 7919), (1021, 1), (2, 65537)],
        heldout=[(613, 769), (259, 5003)],
    ),
)
