"""Matrix product."""

from __future__ import annotations

from typing import TYPE_CHECKING

from portkern.ops._adversaries import cancelling_product, whole_product
from portkern.ops._sizes import workloads
from portkern.spec.op import Op, Signature, TensorSpec

if TYPE_CHECKING:
    import torch


def run(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b


SIGNATURE = Signature(
    "matmul",
    axes=("m", "n", "k"),
    inputs=(TensorSpec("a", ("m", "k")), TensorSpec("b", ("k", "n"))),
    outputs=(TensorSpec("c", ("m", "n")),),
)

OP = Op(
    SIGNATURE,
    reference=run,
    flops=lambda d: 2.0 * d["m"] * d["n"] * d["k"],
    description=__doc__,
    terms=lambda d: d["k"],
    cancels=True,
    adversaries={"cancelling": cancelling_product, "integers": whole_product},
    workloads=workloads(
        SIGNATURE.axes,
        ci=[(33, 65, 17), (128, 128, 128)],
        typical=[(1024, 1024, 1024), (2048, 2048, 2048), (4096, 4096, 4096)],
        edge=[
            (0, 4, 4),
            (4, 4, 0),
            (1, 1, 1),
            (1, 1021, 509),
            (127, 1, 129),
            (70001, 1, 3),
            (3, 70001, 2),
        ],
        heldout=[(257, 383, 191), (613, 769, 1031), (1, 33013, 7)],
        headline=[(4096, 4096, 4096)],
    ),
)
