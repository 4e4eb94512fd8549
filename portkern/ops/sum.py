"""Sum over the middle axis of three."""

from __future__ import annotations

from typing import Any

from portkern.op import Op, Signature, TensorSpec
from portkern.ops._sizes import workloads


def run(x: Any) -> Any:
    return x.sum(dim=1)


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
    workloads=workloads(
        SIGNATURE.axes,
        ci=[(64, 1000, 1), (4, 129, 37)],
        typical=[(4096, 4096, 1), (64, 1024, 512), (8192, 8192, 1), (1, 8192, 8192)],
        edge=[(3, 0, 5), (1, 1, 1), (1, 7919, 1), (5, 1, 7), (2, 3, 1021)],
        heldout=[(613, 769, 1), (3, 517, 259)],
    ),
)
