"""Root-mean-square normalisation over the last axis, with weight."""

from __future__ import annotations

from typing import Any

from portkern.op import Op, ScalarSpec, Signature, TensorSpec
from portkern.ops._sizes import workloads


def run(x: Any, weight: Any, eps: float) -> Any:
    import torch

    return torch.nn.functional.rms_norm(x, x.shape[-1:], weight, eps)


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
    workloads=workloads(
        SIGNATURE.axes,
        ci=[(32, 129), (64, 1024)],
        typical=[(4096, 1024), (8192, 4096), (8192, 8192)],
        edge=[(0, 8), (1, 1), (3, 7919), (1021, 3), (2, 65537)],
        heldout=[(613, 769), (259, 5003)],
    ),
)
