"""The cross-entropy loss of each row of logits against the index of its class."""

from __future__ import annotations

from typing import TYPE_CHECKING

from portkern.ops._sizes import workloads
from portkern.spec.op import Op, Signature, TensorSpec

if TYPE_CHECKING:
    import torch


def run(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    import torch

    return torch.nn.functional.cross_entropy(logits, target, reduction="none")


def peaks(
    kind: torch.dtype, generator: torch.Generator, logits: torch.Tensor, target: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows around 1e4 and -1e4, whose powers overflow or vanish unless the maximum is taken out."""
    import torch

    sign = torch.randint(0, 2, (logits.shape[0], 1), generator=generator) * 2 - 1
    return logits + sign * 1e4, target


def masked(
    kind: torch.dtype, generator: torch.Generator, logits: torch.Tensor, target: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Half of each row is -inf, from its beginning or anywhere, but for the target."""
    import torch

    hidden = torch.rand(logits.shape, generator=generator) < 0.5
    hidden[::2] = torch.arange(logits.shape[1]) < logits.shape[1] // 2
    return logits.masked_fill(hidden.scatter(1, target[:, None], False), -torch.inf), target


SIGNATURE = Signature(
    "cross_entropy",
    axes=("rows", "classes"),
    inputs=(
        TensorSpec("logits", ("rows", "classes")),
        TensorSpec("target", ("rows",), "int64", within=(0, "classes")),
    ),
    outputs=(TensorSpec("loss", ("rows",)),),
)

OP = Op(
    SIGNATURE,
    reference=run,
    flops=lambda d: 4.0 * d["rows"] * d["classes"],
    description=__doc__,
    terms=lambda d: d["classes"],
    adversaries={"peaks": peaks, "masked": masked},
    workloads=workloads(
        SIGNATURE.axes,
        ci=[(32, 129), (64, 1024)],
        typical=[(4096, 1024), (2048, 32000), (512, 128256)],
        edge=[(0, 8), (1, 1), (3, 7919), (1021, 2), (2, 65537)],
        heldout=[(613, 769), (259, 5003), (33013, 5)],
    ),
)
