"""Convolution with bias, rectified and pooled in one pass, as in AlexNet's first block.

Windows are square, without padding; ``window`` and ``pool_stride`` are the pool's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from portkern.ops import _conv
from portkern.ops._sizes import windows, workloads
from portkern.spec.op import Op, Scalar, ScalarSpec, Signature

if TYPE_CHECKING:
    import torch


def run(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    stride: int,
    padding: int,
    window: int,
    pool_stride: int,
) -> torch.Tensor:
    import torch

    y = torch.nn.functional.conv2d(x, weight, bias, stride, padding)
    return torch.nn.functional.max_pool2d(y.relu(), window, pool_stride)


def derived(dims: Mapping[str, int], scalars: Mapping[str, Scalar]) -> dict[str, int]:
    window, stride = int(scalars["window"]), int(scalars["pool_stride"])
    whole = _conv.convolved(dims, scalars)
    return {axis: windows(length, window, stride) for axis, length in whole.items()}


def flops(dims: Mapping[str, int]) -> float:
    """The least number of operations: of one element of each window, since windows may not
    overlap."""
    return 2.0 * dims["n"] * dims["f"] * dims["oh"] * dims["ow"] * _conv.terms(dims)


SCALARS = (*_conv.SCALARS, ScalarSpec("window", "int64", 3), ScalarSpec("pool_stride", "int64", 2))
SIGNATURE = Signature("conv2d_relu_maxpool", _conv.AXES, _conv.INPUTS, _conv.OUTPUTS, SCALARS)

OP = Op(
    SIGNATURE,
    reference=run,
    flops=flops,
    description=__doc__,
    terms=_conv.terms,
    cancels=True,
    derived=derived,
    adversaries={"cancelling": _conv.cancelling, "integers": _conv.integers},
    workloads=workloads(
        SIGNATURE.axes,
        scalars=("stride", "padding", "window", "pool_stride"),
        derived=derived,
        ci=[(2, 3, 17, 19, 5, 3, 3, 1, 1, 3, 2), (1, 4, 24, 24, 8, 5, 5, 2, 2, 2, 2)],
        typical=[
            (16, 3, 224, 224, 64, 7, 7, 2, 3, 3, 2),
            (32, 3, 224, 224, 96, 11, 11, 4, 2, 3, 2),
            (16, 64, 27, 27, 192, 5, 5, 1, 2, 3, 2),
        ],
        edge=[
            (0, 3, 8, 8, 4, 3, 3, 1, 1, 2, 2),
            (1, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1),
            (1, 1, 5, 5, 1, 3, 3, 1, 0, 3, 1),
            (3, 7, 5, 4, 1, 1, 1, 1, 0, 2, 3),
            (1, 2, 9, 1021, 3, 2, 5, 3, 1, 2, 1),
            (1, 67, 9, 9, 33, 3, 3, 1, 1, 3, 3),
        ],
        heldout=[
            (3, 5, 31, 29, 19, 3, 5, 1, 2, 3, 2),
            (2, 33, 17, 23, 67, 1, 1, 2, 0, 2, 2),
            (1, 3, 113, 127, 37, 7, 7, 3, 3, 3, 2),
        ],
        headline=[(100, 3, 224, 224, 96, 11, 11, 4, 2, 3, 2)],
    ),
)
