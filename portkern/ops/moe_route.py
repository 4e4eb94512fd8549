"""The k experts of each token with the largest logits, in falling order, of equal ones the first;
and their gates, the softmax over these k, which is that over all experts divided by what the k have
of it. So route Mixtral, Qwen3 and others that normalise the gates of the experts chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from portkern.ops import topk
from portkern.ops._sizes import workloads
from portkern.spec.op import Op, ScalarSpec, Signature, TensorSpec

if TYPE_CHECKING:
    import torch


def run(logits: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    import torch

    values, experts = logits.sort(dim=-1, descending=True, stable=True)
    wide = torch.promote_types(logits.dtype, torch.float32)
    gates = torch.softmax(values[:, :k].to(wide), dim=-1).to(logits.dtype)
    return gates, experts[:, :k].contiguous()


def framework(logits: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    import torch

    values, experts = logits.topk(k, dim=-1)
    return torch.softmax(values, dim=-1), experts


def peaks(
    kind: torch.dtype, generator: torch.Generator, logits: torch.Tensor
) -> tuple[torch.Tensor]:
    """Rows around 1e4 and -1e4, whose powers overflow or vanish unless the maximum is taken out."""
    import torch

    side = torch.randint(0, 2, (logits.shape[0], 1), generator=generator) * 2 - 1
    return (logits * 4 + side * 1e4,)


def level(
    kind: torch.dtype, generator: torch.Generator, logits: torch.Tensor
) -> tuple[torch.Tensor]:
    """Rows of few values, and rows most of whose experts are not to be chosen, which are -inf."""
    import torch

    logits[0::2] = logits[0::2].sign()
    closed = torch.rand(logits[1::2].shape, generator=generator) < 0.75
    closed[:, :1] = False
    logits[1::2] = logits[1::2].masked_fill(closed, -torch.inf)
    return (logits,)


SIGNATURE = Signature(
    "moe_route",
    axes=("tokens", "experts", "kept"),
    inputs=(TensorSpec("logits", ("tokens", "experts")),),
    outputs=(
        TensorSpec("gates", ("tokens", "kept")),
        TensorSpec("chosen", ("tokens", "kept"), "int64"),
    ),
    scalars=(ScalarSpec("k", "int64", 1),),
)

OP = Op(
    SIGNATURE,
    reference=run,
    flops=lambda d: d["tokens"] * (d["experts"] + 4.0 * d["kept"]),
    terms=lambda d: d["kept"],
    description=__doc__,
    derived=topk.derived,
    baseline=framework,
    adversaries={"peaks": peaks, "level": level},
    workloads=workloads(
        SIGNATURE.axes,
        ci=[(33, 60, 4), (64, 128, 8)],
        typical=[(256, 128, 8), (8192, 128, 8), (16384, 8, 2)],
        edge=[(0, 8, 2), (1, 1, 1), (3, 257, 40), (5, 16, 16), (517, 3, 2)],
        heldout=[(613, 160, 6), (37, 512, 10), (1031, 5, 3)],
        scalars=("k",),
        derived=topk.derived,
    ),
)
