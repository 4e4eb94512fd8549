"""Gaussian error linear unit with the exact error function."""

from __future__ import annotations

from typing import TYPE_CHECKING

from portkern.ops._sizes import workloads
from portkern.spec.op import Op, Signature, TensorSpec

if TYPE_CHECKING:
    import torch


def run(x: torch.Tensor) -> torch.Tensor:
    import torch

    if x.dtype == torch.float64:  # where 1 is added to erf, the lower tail is lost
        tail: torch.Tensor = torch.special.erfc(-x * 0.5**0.5)
        return 0.5 * x * tail
    return torch.nn.functional.gelu(x)


def large(kind: torch.dtype, generator: torch.Generator, x: torch.Tensor) -> tuple[torch.Tensor]:
    """Magnitudes from 1e-4 to 1e3, where an x^3 overflows in halves and both tails are flat."""
    import torch

    power = torch.rand(x.shape, generator=generator) * 7 - 4
    return (x.sign() * 10**power,)


SIGNATURE = Signature(
    "gelu", axes=("n",), inputs=(TensorSpec("x", ("n",)),), outputs=(TensorSpec("y", ("n",)),)
)

OP = Op(
    SIGNATURE,
    reference=run,
    flops=lambda d: 6.0 * d["n"],
    terms=lambda _: 1,
    description=__doc__,
    adversaries={"large": large},
    workloads=workloads(
        SIGNATURE.axes,
        ci=[(1000,), (65536,)],
        typical=[(4194304,), (33554432,), (67108864,)],
        edge=[(0,), (1,), (7919,), (1048579,)],
        heldout=[(99991,), (1572869,), (2097153,)],
    ),
)
