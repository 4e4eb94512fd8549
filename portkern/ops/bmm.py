"""Matrix products of a batch."""

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
    "bmm",
    axes=("batch", "m", "n", "k"),
    inputs=(TensorSpec("a", ("batch", "m", "k")), TensorSpec("b", ("batch", "k", "n"))),
    outputs=(TensorSpec("c", ("batch", "m", "n")),),
)

OP = Op(
    SIGNATURE,
    reference=run,
    flops=lambda d: 2.0 * d["batch"] * d["m"] * d["n"] * d["k"],
    description=__doc__,
    terms=lambda d: d["k"],
    cancels=True,
    adversaries={"cancelling": cancelling_product, "integers": whole_product},
    workloads=workloads(
        SIGNATURE.axes,
        ci=[(3, 33, 65, 17), (2, 64, 64, 64)],
        typical=[(16, 512, 512, 512), (64, 512, 512, 128), (32, 1024, 1024, 1024)],
        edge=[
            (0, 4, 4, 4),
            (2, 4, 4, 0),
            (1, 1, 1, 1),
            (7, 1, 1021, 509),
            (5, 127, 1, 129),
            (70001, 3, 2, 4),
        ],
        heldout=[(5, 257, 83, 191), (3, 113, 269, 131), (11, 1, 3301, 7)],
    ),
)
