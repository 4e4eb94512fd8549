"""Layer normalisation over the last axis, with weight and bias."""

from __future__ import annotations

from typing import Any

from portkern.op import Op, ScalarSpec, Signature, TensorSpec
from portkern.ops._sizes import workloads


def run(x: Any, weight: Any, bias: Any, eps: float) -> Any:
    import torch

    return torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, eps)


SIGNATURE = Signature(
    "layernorm",
    axes=("rows", "cols"),
    inputs=(
        TensorSpec("x", ("rows", "cols")),
        TensorSpec("weight", ("cols",)),
        TensorSpec("bias", ("cols",)),
    ),
    outputs=(TensorSpec("y", ("rows", "cols")),),
    scalars=(ScalarSpec("eps", "float32", 1e-05),),
)

OP = Op(
    SIGNATURE,
    reference=run,
    flops=lambda d: 8.0 * d["rows"] * d["cols"],
    description=__doc__,
    terms=lambda d: d["cols"],
    workloads=workloads(
        SIGNATURE.axes,
        ci=[(32, 129), (64, 1024)],
        typical=[(4096, 1024), (8192, 4096), (8192, 8192)],
        edge=[(0, 8), (1, 2), (3, 7919), (1021, 3), (2, 65537)],
        heldout=[(613, 769), (259, 5003)],
    ),
)
