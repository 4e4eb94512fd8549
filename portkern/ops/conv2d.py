"""Two-dimensional convolution with bias; images are channels first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from portkern.ops import _conv
from portkern.ops._sizes import workloads
from portkern.spec.op import Op, Signature

if TYPE_CHECKING:
    import torch


def run(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, stride: int, padding: int
) -> torch.Tensor:
    import torch

    return torch.nn.functional.conv2d(x, weight, bias, stride, padding)


def flops(dims: Mapping[str, int]) -> float:
    return 2.0 * dims["n"] * dims["f"] * dims["oh"] * dims["ow"] * _conv.terms(dims)


SIGNATURE = Signature("conv2d", _conv.AXES, _conv.INPUTS, _conv.OUTPUTS, _conv.SCALARS)

OP = Op(
    SIGNATURE,
    reference=run,
    flops=flops,
    description=__doc__,
    terms=_conv.terms,
    cancels=True,
    derived=_conv.convolved,
    adversaries={"cancelling": _conv.cancelling, "integers": _conv.integers},
    workloads=workloads(
        SIGNATURE.axes,
        scalars=("stride", "padding"),
        derived=_conv.convolved,
        ci=[(2, 3, 13, 17, 5, 3, 3, 1, 1), (1, 8, 16, 16, 8, 5, 5, 2, 2)],
        typical=[
            (32, 64, 56, 56, 64, 3, 3, 1, 1),
            (16, 256, 14, 14, 256, 3, 3, 1, 1),
            (16, 3, 224, 224, 64, 7, 7, 2, 3),
        ],
        edge=[
            (0, 3, 8, 8, 4, 3, 3, 1, 1),
            (1, 1, 1, 1, 1, 1, 1, 1, 0),
            (1, 1, 3, 3, 1, 3, 3, 1, 0),
            (3, 7, 5, 4, 1, 1, 1, 1, 0),
            (1, 2, 9, 1021, 3, 2, 5, 3, 1),
            (1, 1, 4, 4, 1, 4, 4, 5, 3),
            (1, 67, 7, 7, 33, 3, 3, 1, 1),
        ],
        heldout=[
            (3, 5, 31, 29, 19, 3, 5, 1, 2),
            (2, 33, 17, 23, 67, 1, 1, 2, 0),
            (1, 3, 113, 127, 37, 7, 7, 3, 3),
        ],
        headline=[(100, 3, 224, 224, 96, 11, 11, 4, 2)],
    ),
)
