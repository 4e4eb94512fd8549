"""x with rows added to it: src's row i goes to row index[i], and rows may be named many times."""

from __future__ import annotations

from typing import TYPE_CHECKING

from portkern.ops._sizes import workloads
from portkern.spec.op import Op, Signature, TensorSpec

if TYPE_CHECKING:
    import torch


def run(x: torch.Tensor, index: torch.Tensor, src: torch.Tensor) -> torch.Tensor:
    import torch

    wide = torch.promote_types(x.dtype, torch.float32)  # halves would round every partial sum
    return x.to(wide).index_add(0, index, src.to(wide)).to(x.dtype)


def framework(x: torch.Tensor, index: torch.Tensor, src: torch.Tensor) -> torch.Tensor:
    return x.index_add(0, index, src)


def crowded(
    kind: torch.dtype,
    generator: torch.Generator,
    x: torch.Tensor,
    index: torch.Tensor,
    src: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Most indices name one row, the last: what a lost update misses is far from rounding."""
    import torch

    most = torch.rand(index.shape, generator=generator) < 0.75
    return x, torch.where(most, x.shape[0] - 1, index), src


SIGNATURE = Signature(
    "scatter_add",
    axes=("rows", "dim", "n"),
    inputs=(
        TensorSpec("x", ("rows", "dim")),
        TensorSpec("index", ("n",), "int64", within=(0, "rows")),
        TensorSpec("src", ("n", "dim")),
    ),
    outputs=(TensorSpec("y", ("rows", "dim")),),
)

OP = Op(
    SIGNATURE,
    reference=run,
    flops=lambda d: d["n"] * d["dim"],
    description=__doc__,
    terms=lambda d: d["n"] + 1,
    cancels=True,
    baseline=framework,
    adversaries={"crowded": crowded},
    workloads=workloads(
        SIGNATURE.axes,
        ci=[(32, 129, 48), (64, 64, 200)],
        typical=[(16384, 1024, 16384), (32768, 768, 32768), (8192, 4096, 8192)],
        edge=[(4, 8, 0), (1, 1, 1), (1, 3, 1021), (1021, 1, 4099), (3, 7919, 2), (70001, 3, 17)],
        heldout=[(613, 769, 257), (33013, 5, 1021), (7, 1030, 509)],
    ),
)
