"""The rows of a table that the indices name, in their order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from portkern.ops._adversaries import special
from portkern.ops._sizes import workloads
from portkern.spec.op import ITEMSIZE, Op, Signature, TensorSpec

if TYPE_CHECKING:
    import torch


def run(table: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    import torch

    return torch.nn.functional.embedding(index, table)


def reads(dims: Mapping[str, int], dtype: str) -> int:
    """The indices, and the rows that as many random ones name: v (1 - (1 - 1/v)^n) of v rows."""
    vocab, n = dims["vocab"], dims["n"]
    rows = vocab * (1 - (1 - 1 / vocab) ** n) if vocab else 0
    return int(rows * dims["dim"]) * ITEMSIZE[dtype] + n * ITEMSIZE["int64"]


SIGNATURE = Signature(
    "embedding",
    axes=("vocab", "dim", "n"),
    inputs=(
        TensorSpec("table", ("vocab", "dim")),
        TensorSpec("index", ("n",), "int64", within=(0, "vocab")),
    ),
    outputs=(TensorSpec("y", ("n", "dim")),),
)

OP = Op(
    SIGNATURE,
    reference=run,
    flops=lambda _: 0.0,
    terms=lambda _: 1,
    description=__doc__,
    reads=reads,
    adversaries={"special": special},
    workloads=workloads(
        SIGNATURE.axes,
        ci=[(64, 129, 33), (257, 64, 100)],
        typical=[(32000, 1024, 16384), (50257, 768, 32768), (16384, 4096, 16384)],
        edge=[(5, 3, 0), (1, 1, 1), (1, 7919, 3), (3, 5, 4099), (65537, 3, 7), (7, 1, 70001)],
        heldout=[(613, 769, 257), (33013, 5, 1021), (1009, 1030, 67)],
    ),
)
