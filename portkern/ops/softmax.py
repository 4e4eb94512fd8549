"""Softmax over the last axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from portkern.ops._sizes import workloads
from portkern.spec.op import Op, Signature, TensorSpec

if TYPE_CHECKING:
    import torch


def run(x: torch.Tensor) -> torch.Tensor:
    return x.softmax(dim=-1)


def peaks(kind: torch.dtype, generator: torch.Generator, x: torch.Tensor) -> tuple[torch.Tensor]:
    """Rows around 1e4 and -1e4, whose powers overflow or vanish unless the maximum is taken out."""
    import torch

    sign = torch.randint(0, 2, (x.shape[0], 1), generator=generator) * 2 - 1
    return (x + sign * 1e4,)


def masked(kind: torch.dtype, generator: torch.Generator, x: torch.Tensor) -> tuple[torch.Tensor]:
    """Half of each row is -inf, from its beginning or anywhere, but for one element."""
    import torch

    rows, cols = x.shape
    hidden = torch.rand(x.shape, generator=generator) < 0.5
    hidden[::2] = torch.arange(cols) < cols // 2
    kept = torch.randint(0, cols, (rows, 1), generator=generator)
    return (x.masked_fill(hidden.scatter(1, kept, False), -torch.inf),)


SIGNATURE = Signature(
    "softmax",
    axes=("rows", "cols"),
    inputs=(TensorSpec("x", ("rows", "cols")),),
    outputs=(TensorSpec("y", ("rows", "cols")),),
)

OP = Op(
    SIGNATURE,
    reference=run,
    flops=lambda d: 5.0 * d["rows"] * d["cols"],
    description=__doc__,
    terms=lambda d: d["cols"],
    adversaries={"peaks": peaks, "masked": masked},
    workloads=workloads(
        SIGNATURE.axes,
        ci=[(32, 129), (64, 1024)],
        typical=[(4096, 1024), (8192, 4096), (8192, 8192)],
        edge=[(0, 8), (1, 1), (3, 7919), (1021, 1), (2, 65537)],
        heldout=[(613, 769), (259, 5003), (33013, 5)],
        headline=[(4096, 65536)],
    ),
)
