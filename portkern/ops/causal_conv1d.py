"""Depthwise convolution along a sequence that looks back alone: of each channel, the last positions
up to its own times the channel's taps, the last tap for its own, with bias and, where asked for,
silu. Channels are the last axis, as the projection before it writes them.

Layers of state-space models and of linear attention have it: four taps with silu in Mamba (Gu and
Dao, 2023) and its successors, three without in LFM2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from portkern.ops._sizes import workloads
from portkern.spec.op import Op, ScalarSpec, Signature, TensorSpec

if TYPE_CHECKING:
    import torch

SEQUENCE = ("batch", "length", "channels")


def run(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, silu: bool) -> torch.Tensor:
    import torch

    wide = torch.promote_types(x.dtype, torch.float32)
    (_, length, _), (_, taps) = x.shape, weight.shape
    padded = torch.nn.functional.pad(x.to(wide), (0, 0, max(taps - 1, 0), 0))
    total = bias.to(wide).expand(x.shape)
    for tap in range(taps):
        total = total + padded[:, tap : tap + length] * weight[:, tap].to(wide)
    return (torch.nn.functional.silu(total) if silu else total).to(x.dtype)


def framework(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, silu: bool
) -> torch.Tensor:
    import torch

    taps = weight.shape[1]
    padded = torch.nn.functional.pad(x.mT, (taps - 1, 0))
    y = torch.nn.functional.conv1d(padded, weight.unsqueeze(1), bias, groups=x.shape[2]).mT
    return torch.nn.functional.silu(y) if silu else y


def steep(
    kind: torch.dtype,
    generator: torch.Generator,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Sums of hundreds on both sides of 0, of which one side's exponentials overflow."""
    return x * 300, weight, bias


def cancelling(
    kind: torch.dtype,
    generator: torch.Generator,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Each tap takes away nearly what the one before it adds, of positions that are alike."""
    import torch

    sign = 1 - 2 * (torch.arange(weight.shape[1]) % 2)
    return x[:, :1] + x / 64, weight[:, :1] * sign + weight / 64, bias / 64


SIGNATURE = Signature(
    "causal_conv1d",
    axes=("batch", "length", "channels", "taps"),
    inputs=(
        TensorSpec("x", SEQUENCE),
        TensorSpec("weight", ("channels", "taps")),
        TensorSpec("bias", ("channels",)),
    ),
    outputs=(TensorSpec("y", SEQUENCE),),
    scalars=(ScalarSpec("silu", "bool", True),),
)

OP = Op(
    SIGNATURE,
    reference=run,
    flops=lambda d: d["batch"] * d["length"] * d["channels"] * (2.0 * d["taps"] + 4),
    description=__doc__,
    terms=lambda d: d["taps"] + 1,
    cancels=True,
    baseline=framework,
    adversaries={"steep": steep, "cancelling": cancelling},
    workloads=workloads(
        SIGNATURE.axes,
        ci=[(2, 33, 37, 4, 1), (1, 64, 64, 3, 0)],
        typical=[(1, 2048, 5120, 4, 1), (4, 2048, 4352, 4, 1), (1, 4096, 2048, 3, 0)],
        edge=[
            (0, 4, 4, 4, 1),
            (1, 1, 1, 1, 1),
            (2, 3, 5, 4, 1),
            (1, 2, 16, 7, 0),
            (3, 517, 3, 2, 1),
            (1, 70, 40, 11, 1),
        ],
        heldout=[(2, 191, 77, 4, 1), (1, 513, 264, 3, 0)],
        scalars=("silu",),
    ),
)
