"""gelu(x + bias) with the exact error function; the bias is broadcast over the rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from portkern.ops._sizes import workloads
from portkern.spec.op import Op, Signature, TensorSpec

if TYPE_CHECKING:
    import torch


def run(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    import torch

    x = x + bias
    if x.dtype == torch.float64:  # where 1 is added to erf, the lower tail is lost
        tail: torch.Tensor = torch.special.erfc(-x * 0.5**0.5)
        return 0.5 * x * tail
    return torch.nn.functional.gelu(x)


def large(
    kind: torch.dtype, generator: torch.Generator, x: torch.Tensor, bias: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Magnitudes from 1e-4 to 1e3, where an x^3 overflows in halves and both tails are flat."""
    import torch

    power = torch.rand(x.shape, generator=generator) * 7 - 4
    return x.sign() * 10**power, bias


SIGNATURE = Signature(
    "bias_gelu",
    axes=("rows", "cols"),
    inputs=(TensorSpec("x", ("rows", "cols")), TensorSpec("bias", ("cols",))),
    outputs=(TensorSpec("y", ("rows", "cols")),),
)

OP = Op(
    SIGNATURE,
    reference=run,
    flops=lambda d: 9.0 * d["rows"] * d["cols"],
    terms=lambda _: 1,
    description=__doc__,
    adversaries={"large": large},
    workloads=workloads(
        SIGNATURE.axes,
        ci=[(7, 33), (128, 512)],
        typical=[(2048, 2048), (8192, 4096), (8192, 8192)],
        edge=[(0, 5), (1, 1), (1, 7919), (1021, 1), (127, 129), (70001, 3)],
        heldout=[(613, 769), (4099, 1537)],
    ),
)
