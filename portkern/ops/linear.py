"""A linear layer without a bias: y = x W', of a weight that has a row for each column of y."""

from __future__ import annotations

from typing import TYPE_CHECKING

from portkern.ops._adversaries import cancelling_product, whole_product
from portkern.ops._sizes import workloads
from portkern.spec.op import Op, Signature, TensorSpec

if TYPE_CHECKING:
    import torch


def run(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    import torch

    return torch.nn.functional.linear(x, weight)


def cancelling(
    kind: torch.dtype, generator: torch.Generator, x: torch.Tensor, weight: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The second half of the products takes away the first, but for a few per cent."""
    x, turned = cancelling_product(kind, generator, x, weight.T.contiguous())
    return x, turned.T.contiguous()


SIGNATURE = Signature(
    "linear",
    axes=("m", "n", "k"),
    inputs=(TensorSpec("x", ("m", "k")), TensorSpec("weight", ("n", "k"))),
    outputs=(TensorSpec("y", ("m", "n")),),
)

OP = Op(
    SIGNATURE,
    reference=run,
    flops=lambda d: 2.0 * d["m"] * d["n"] * d["k"],
    description=__doc__,
    terms=lambda d: d["k"],
    cancels=True,
    adversaries={"cancelling": cancelling, "integers": whole_product},
    workloads=workloads(
        SIGNATURE.axes,
        ci=[(33, 65, 17), (128, 128, 128)],
        typical=[(1, 4096, 4096), (2048, 4096, 4096), (4096, 14336, 4096)],
        edge=[
            (0, 4, 4),
            (4, 4, 0),
            (1, 1, 1),
            (1, 1021, 509),
            (127, 1, 129),
            (7001, 1, 3),
            (3, 7001, 2),
            (5, 96, 1024),
        ],
        heldout=[(257, 383, 191), (613, 769, 1031), (9, 33013, 8)],
    ),
)
