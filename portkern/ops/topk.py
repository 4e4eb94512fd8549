"""The k largest elements of each row and their indices, in falling order; of equal ones the first
come first. A NaN is the largest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from portkern.ops._adversaries import special
from portkern.ops._sizes import workloads
from portkern.spec.op import Op, Scalar, ScalarSpec, Signature, TensorSpec

if TYPE_CHECKING:
    import torch


def run(x: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    values, indices = x.sort(dim=-1, descending=True, stable=True)
    return values[:, :k].contiguous(), indices[:, :k].contiguous()


def framework(x: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    values, indices = x.topk(k, dim=-1)
    return values, indices


def level(kind: torch.dtype, generator: torch.Generator, x: torch.Tensor) -> tuple[torch.Tensor]:
    """Rows of few values, of -inf alone, and of zeros of both signs, which are equal."""
    import torch

    x[0::3] = x[0::3].sign()
    x[1::3] = -torch.inf
    x[2::3] = x[2::3].sign() * 0.0
    return (x,)


def derived(dims: Mapping[str, int], scalars: Mapping[str, Scalar]) -> dict[str, int]:
    return {"kept": int(scalars["k"])}


SIGNATURE = Signature(
    "topk",
    axes=("rows", "cols", "kept"),
    inputs=(TensorSpec("x", ("rows", "cols")),),
    outputs=(
        TensorSpec("values", ("rows", "kept")),
        TensorSpec("indices", ("rows", "kept"), "int64"),
    ),
    scalars=(ScalarSpec("k", "int64", 1),),
)

OP = Op(
    SIGNATURE,
    reference=run,
    flops=lambda d: d["rows"] * d["cols"],
    terms=lambda _: 1,
    description=__doc__,
    derived=derived,
    baseline=framework,
    adversaries={"level": level, "special": special},
    workloads=workloads(
        SIGNATURE.axes,
        ci=[(8, 129, 5), (16, 512, 16)],
        typical=[(4096, 1024, 8), (8192, 4096, 64), (1024, 32000, 50)],
        edge=[(0, 8, 2), (1, 1, 1), (3, 7919, 7), (5, 64, 64), (2, 65537, 33), (1021, 3, 2)],
        heldout=[(613, 769, 11), (37, 5003, 100), (4099, 17, 3)],
        scalars=("k",),
        derived=derived,
    ),
)
