"""Functions that the convolutions share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from portkern.ops._adversaries import whole_product
from portkern.ops._sizes import windows
from portkern.spec.op import Scalar, ScalarSpec, TensorSpec

if TYPE_CHECKING:
    import torch

AXES = ("n", "c", "h", "w", "f", "kh", "kw", "oh", "ow")
INPUTS = (
    TensorSpec("x", ("n", "c", "h", "w")),
    TensorSpec("weight", ("f", "c", "kh", "kw")),
    TensorSpec("bias", ("f",)),
)
OUTPUTS = (TensorSpec("y", ("n", "f", "oh", "ow")),)
SCALARS = (ScalarSpec("stride", "int64", 1), ScalarSpec("padding", "int64", 0))


def convolved(dims: Mapping[str, int], scalars: Mapping[str, Scalar]) -> dict[str, int]:
    stride, padding = int(scalars["stride"]), int(scalars["padding"])
    return {
        "oh": windows(dims["h"], dims["kh"], stride, padding),
        "ow": windows(dims["w"], dims["kw"], stride, padding),
    }


def terms(dims: Mapping[str, int]) -> int:
    return dims["c"] * dims["kh"] * dims["kw"] + 1


def cancelling(
    kind: torch.dtype,
    generator: torch.Generator,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The second half of the channels takes away the first, but for a few per cent."""
    half = x.shape[1] // 2
    x = x.to(kind).float()
    weight = weight.to(kind).float()
    x[:, half : 2 * half] = -x[:, :half]
    weight[:, half : 2 * half] = weight[:, :half] + weight[:, half : 2 * half] / 64
    return x, weight, bias / 64


def integers(
    kind: torch.dtype,
    generator: torch.Generator,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Any order of adding is exact in float32; the reduced precisions cannot hold ``x``."""
    import torch

    return *whole_product(kind, generator, x, weight), torch.zeros_like(bias)
