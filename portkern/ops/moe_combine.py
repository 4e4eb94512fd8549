"""The sum of what the experts of each token gave: of the rows that its indices name, each times its
gate. The last step of a layer of experts, whose rows lie as they were multiplied, an expert's one
after another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from portkern.ops._sizes import workloads
from portkern.spec.op import Op, Signature, TensorSpec

if TYPE_CHECKING:
    import torch


def run(x: torch.Tensor, index: torch.Tensor, gates: torch.Tensor) -> torch.Tensor:
    import torch

    wide = torch.promote_types(x.dtype, torch.float32)  # halves would round every partial sum
    return (gates.to(wide)[:, :, None] * x[index].to(wide)).sum(1).to(x.dtype)


def framework(x: torch.Tensor, index: torch.Tensor, gates: torch.Tensor) -> torch.Tensor:
    import torch

    return torch.bmm(gates[:, None], x[index])[:, 0]


def cancelling(
    kind: torch.dtype,
    generator: torch.Generator,
    x: torch.Tensor,
    index: torch.Tensor,
    gates: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Every second expert takes away nearly what the one before it gives, of rows alike."""
    import torch

    sign = 1 - 2 * (torch.arange(index.shape[1]) % 2)
    return x[:1] + x / 64, index, gates[:, :1] * sign + gates / 64


SIGNATURE = Signature(
    "moe_combine",
    axes=("rows", "dim", "tokens", "k"),
    inputs=(
        TensorSpec("x", ("rows", "dim")),
        TensorSpec("index", ("tokens", "k"), "int64", within=(0, "rows")),
        TensorSpec("gates", ("tokens", "k")),
    ),
    outputs=(TensorSpec("y", ("tokens", "dim")),),
)

OP = Op(
    SIGNATURE,
    reference=run,
    flops=lambda d: 2.0 * d["tokens"] * d["k"] * d["dim"],
    description=__doc__,
    terms=lambda d: d["k"],
    cancels=True,
    baseline=framework,
    adversaries={"cancelling": cancelling},
    workloads=workloads(
        SIGNATURE.axes,
        ci=[(40, 65, 17, 3), (64, 128, 32, 2)],
        typical=[(512, 2048, 64, 8), (65536, 2048, 8192, 8), (8192, 4096, 4096, 2)],
        edge=[
            (4, 8, 0, 2),
            (1, 1, 1, 1),
            (3, 5, 7, 0),
            (9, 3, 515, 2),
            (70, 40, 5, 11),
            (7, 7919, 2, 3),
        ],
        heldout=[(257, 383, 61, 6), (19, 1030, 33, 4)],
    ),
)
