"""Causal attention of each head: softmax(q k' / sqrt(dim)) v over the keys up to the query's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from portkern.ops._sizes import workloads
from portkern.spec.op import Op, Signature, TensorSpec

if TYPE_CHECKING:
    import torch

SHAPE = ("batch", "heads", "length", "dim")


def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    import torch

    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def sharp(
    kind: torch.dtype, generator: torch.Generator, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Scores of some hundreds: one key has nearly all weight, powers overflow without a maximum."""
    return q * 30, k, v


def rising(
    kind: torch.dtype, generator: torch.Generator, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Every key outweighs those before it, so that a running maximum changes all the way."""
    import torch

    step = torch.linspace(0, 30, max(k.shape[2], 1))[:, None]
    return q.abs(), k.abs() * step, v


def flops(dims: Mapping[str, int]) -> float:
    """Two products of (length, length, dim), of which the half under the diagonal counts."""
    pairs = dims["length"] * (dims["length"] + 1) / 2
    return dims["batch"] * dims["heads"] * pairs * (4.0 * dims["dim"] + 4)


SIGNATURE = Signature(
    "attention",
    axes=SHAPE,
    inputs=(TensorSpec("q", SHAPE), TensorSpec("k", SHAPE), TensorSpec("v", SHAPE)),
    outputs=(TensorSpec("y", SHAPE),),
)

OP = Op(
    SIGNATURE,
    reference=run,
    flops=flops,
    description=__doc__,
    terms=lambda d: d["length"] + d["dim"],
    shifts=True,
    adversaries={"sharp": sharp, "rising": rising},
    workloads=workloads(
        SIGNATURE.axes,
        ci=[(1, 2, 37, 16), (2, 2, 64, 32)],
        typical=[(4, 16, 1024, 64), (2, 16, 2048, 128), (1, 16, 4096, 128)],
        edge=[
            (0, 2, 8, 8),
            (1, 1, 1, 1),
            (2, 3, 129, 24),
            (1, 1, 517, 64),
            (3, 1, 5, 256),
            (1, 2, 33, 3),
        ],
        heldout=[(1, 3, 257, 40), (2, 1, 191, 72), (1, 2, 65, 128)],
        headline=[(2, 16, 8192, 128)],
    ),
)
