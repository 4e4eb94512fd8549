"""A linear layer: y = x W' + bias, of a weight that has a row for each column of y."""

from __future__ import annotations

from typing import TYPE_CHECKING

from portkern.ops import linear
from portkern.ops._adversaries import whole_product
from portkern.spec.op import Op, Signature, TensorSpec

if TYPE_CHECKING:
    import torch


def run(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    import torch

    return torch.nn.functional.linear(x, weight, bias)


def cancelling(
    kind: torch.dtype,
    generator: torch.Generator,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The second half of the products takes away the first, but for a few per cent."""
    return (*linear.cancelling(kind, generator, x, weight), bias)


def integers(
    kind: torch.dtype,
    generator: torch.Generator,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Any order of adding is exact in float32; the reduced precisions cannot hold ``x``."""
    return (*whole_product(kind, generator, x, weight), bias.round())


SIGNATURE = Signature(
    "linear_bias",
    axes=("m", "n", "k"),
    inputs=(
        TensorSpec("x", ("m", "k")),
        TensorSpec("weight", ("n", "k")),
        TensorSpec("bias", ("n",)),
    ),
    outputs=(TensorSpec("y", ("m", "n")),),
)

OP = Op(
    SIGNATURE,
    reference=run,
    flops=lambda d: d["m"] * d["n"] * (2.0 * d["k"] + 1),
    description=__doc__,
    terms=lambda d: d["k"] + 1,
    cancels=True,
    adversaries={"cancelling": cancelling, "integers": integers},
    workloads=linear.OP.workloads,
)
