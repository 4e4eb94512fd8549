"""Matrix product with weights of int8, each column with a scale: c = (a w) * scale."""

from __future__ import annotations

from typing import TYPE_CHECKING

from portkern.ops._sizes import workloads
from portkern.spec.op import Op, Signature, TensorSpec

if TYPE_CHECKING:
    import torch


def run(a: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return (a @ weight.to(a.dtype)) * scale


def cancelling(
    kind: torch.dtype,
    generator: torch.Generator,
    a: torch.Tensor,
    weight: torch.Tensor,
    scale: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The second half of the products takes away the first, but for one step of each weight."""
    half = a.shape[1] // 2
    a = a.to(kind).float()
    a[:, half : 2 * half] = -a[:, :half]
    step = (weight[:half] < 127).to(weight.dtype)
    weight[half : 2 * half] = weight[:half] + step
    return a, weight, scale


SIGNATURE = Signature(
    "int8_matmul",
    axes=("m", "n", "k"),
    inputs=(
        TensorSpec("a", ("m", "k")),
        TensorSpec("weight", ("k", "n"), "int8", within=(-127, 128)),
        TensorSpec("scale", ("n",)),
    ),
    outputs=(TensorSpec("c", ("m", "n")),),
)

OP = Op(
    SIGNATURE,
    reference=run,
    flops=lambda d: 2.0 * d["m"] * d["n"] * d["k"],
    description=__doc__,
    terms=lambda d: d["k"],
    cancels=True,
    adversaries={"cancelling": cancelling},
    workloads=workloads(
        SIGNATURE.axes,
        ci=[(33, 65, 17), (128, 128, 128)],
        typical=[(16, 4096, 4096), (1024, 4096, 4096), (4096, 4096, 4096)],
        edge=[
            (0, 4, 4),
            (4, 4, 0),
            (1, 1, 1),
            (1, 1021, 509),
            (127, 1, 129),
            (70001, 1, 3),
            (3, 70001, 2),
        ],
        heldout=[(257, 383, 191), (61, 769, 1031), (1, 33013, 7)],
    ),
)
