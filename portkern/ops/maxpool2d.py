"""The largest element of each square window; the padding is -infinity, a NaN is the largest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from portkern.ops._adversaries import special
from portkern.ops._sizes import windows, workloads
from portkern.spec.op import Op, Scalar, ScalarSpec, Signature, TensorSpec

if TYPE_CHECKING:
    import torch


def run(x: torch.Tensor, window: int, stride: int, padding: int) -> torch.Tensor:
    import torch

    return torch.nn.functional.max_pool2d(x, window, stride, padding)


def pooled(dims: Mapping[str, int], scalars: Mapping[str, Scalar]) -> dict[str, int]:
    given = int(scalars["window"]), int(scalars["stride"]), int(scalars["padding"])
    return {"oh": windows(dims["h"], *given), "ow": windows(dims["w"], *given)}


def low(kind: torch.dtype, generator: torch.Generator, x: torch.Tensor) -> tuple[torch.Tensor]:
    """All below the padding of zeros that a careless kernel has."""
    return (x - 1000.0,)


SIGNATURE = Signature(
    "maxpool2d",
    axes=("n", "c", "h", "w", "oh", "ow"),
    inputs=(TensorSpec("x", ("n", "c", "h", "w")),),
    outputs=(TensorSpec("y", ("n", "c", "oh", "ow")),),
    scalars=(
        ScalarSpec("window", "int64", 2),
        ScalarSpec("stride", "int64", 2),
        ScalarSpec("padding", "int64", 0),
    ),
)

OP = Op(
    SIGNATURE,
    reference=run,
    flops=lambda d: d["n"] * d["c"] * d["h"] * d["w"],
    terms=lambda _: 1,
    description=__doc__,
    derived=pooled,
    adversaries={"special": special, "low": low},
    workloads=workloads(
        SIGNATURE.axes,
        scalars=("window", "stride", "padding"),
        derived=pooled,
        ci=[(2, 3, 13, 17, 3, 2, 1), (2, 4, 32, 32, 2, 2, 0)],
        typical=[
            (32, 64, 112, 112, 3, 2, 1),
            (64, 128, 56, 56, 2, 2, 0),
            (64, 256, 56, 56, 3, 2, 1),
        ],
        edge=[
            (0, 3, 8, 8, 2, 2, 0),
            (1, 1, 1, 1, 1, 1, 0),
            (1, 1, 5, 5, 5, 1, 2),
            (3, 1, 7, 1021, 3, 1, 1),
            (1, 70001, 2, 2, 2, 2, 1),
            (1, 2, 9, 9, 2, 5, 0),
        ],
        heldout=[(3, 5, 61, 29, 3, 2, 1), (2, 7, 33, 47, 2, 3, 1), (5, 3, 19, 23, 4, 2, 0)],
    ),
)
