"""The gradient of each row's cross-entropy loss by its logits: softmax(logits) less one at the
target's class, times the gradient of the row's loss (Bridle, "Probabilistic Interpretation of
Feedforward Classification Network Outputs", 1990)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from portkern.ops import cross_entropy
from portkern.ops._sizes import workloads
from portkern.spec.op import Op, Signature, TensorSpec

if TYPE_CHECKING:
    import torch

LOGITS = ("rows", "classes")


def run(grad: torch.Tensor, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    import torch

    wide = torch.promote_types(logits.dtype, torch.float32)
    share = torch.softmax(logits.to(wide), dim=-1)
    own = torch.arange(logits.shape[1], device=logits.device) == target[:, None]
    return ((share - own.to(wide)) * grad.to(wide)[:, None]).to(logits.dtype)


def peaks(
    kind: torch.dtype,
    generator: torch.Generator,
    grad: torch.Tensor,
    logits: torch.Tensor,
    target: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Rows around 1e4 and -1e4, whose powers overflow or vanish unless the maximum is taken out."""
    return (grad, *cross_entropy.peaks(kind, generator, logits, target))


def masked(
    kind: torch.dtype,
    generator: torch.Generator,
    grad: torch.Tensor,
    logits: torch.Tensor,
    target: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Half of each row is -inf, from its beginning or anywhere, but for the target."""
    return (grad, *cross_entropy.masked(kind, generator, logits, target))


SIGNATURE = Signature(
    "cross_entropy_backward",
    axes=LOGITS,
    inputs=(
        TensorSpec("grad", ("rows",)),
        TensorSpec("logits", LOGITS),
        TensorSpec("target", ("rows",), "int64", within=(0, "classes")),
    ),
    outputs=(TensorSpec("grad_logits", LOGITS),),
)

OP = Op(
    SIGNATURE,
    reference=run,
    flops=lambda d: 6.0 * d["rows"] * d["classes"],
    description=__doc__,
    terms=lambda d: d["classes"],
    adversaries={"peaks": peaks, "masked": masked},
    workloads=workloads(
        SIGNATURE.axes,
        ci=[(32, 129), (64, 1024)],
        typical=[(4096, 1024), (2048, 32000), (512, 128256)],
        edge=[(0, 8), (1, 1), (3, 7919), (1021, 2), (2, 65537)],
        heldout=[(613, 769), (259, 5003), (3301, 5)],
    ),
)
