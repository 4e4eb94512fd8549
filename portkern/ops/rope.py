"""Rotary position embedding: the two halves of each head are turned by their token's angles.

Cosines and sines come as float32 tables of (tokens, half), as models keep them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from portkern.ops._sizes import workloads
from portkern.spec.op import Op, Signature, TensorSpec

if TYPE_CHECKING:
    import torch


def run(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    import torch

    cos, sin = cos[:, None], sin[:, None]
    first, second = x[:, :, 0], x[:, :, 1]
    turned = torch.stack((first * cos - second * sin, second * cos + first * sin), dim=2)
    return turned.to(x.dtype)


def angles(
    kind: torch.dtype,
    generator: torch.Generator,
    x: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Real angles, positions from 0 to 1e5 over wavelengths of up to 1e4."""
    import torch

    tokens, half = cos.shape
    position = torch.randint(0, 100_000, (tokens, 1), generator=generator).double()
    angle = position * 10_000.0 ** (-torch.arange(half).double() / max(half, 1))
    return x, angle.cos().float(), angle.sin().float()


SIGNATURE = Signature(
    "rope",
    axes=("tokens", "heads", "half"),
    inputs=(
        TensorSpec("x", ("tokens", "heads", 2, "half")),
        TensorSpec("cos", ("tokens", "half"), "float32"),
        TensorSpec("sin", ("tokens", "half"), "float32"),
    ),
    outputs=(TensorSpec("y", ("tokens", "heads", 2, "half")),),
)

OP = Op(
    SIGNATURE,
    reference=run,
    flops=lambda d: 6.0 * d["tokens"] * d["heads"] * d["half"],
    description=__doc__,
    terms=lambda _: 2,
    cancels=True,
    adversaries={"angles": angles},
    workloads=workloads(
        SIGNATURE.axes,
        ci=[(9, 3, 16), (16, 4, 32)],
        typical=[(4096, 32, 64), (8192, 32, 64), (16384, 32, 64)],
        edge=[(0, 2, 4), (1, 1, 1), (3, 5, 7), (1021, 1, 33), (2, 3, 4099), (70001, 1, 1)],
        heldout=[(257, 7, 40), (61, 12, 64), (1009, 2, 3)],
    ),
)
