"""Gradients of a layer normalisation over the last axis by its input, its weight and its bias.

With m = mean(x), s = 1 / sqrt(mean((x - m)^2) + eps) and z = (x - m) s they are
s (w g - mean(w g) - z mean(w g z)) and the sums of g z and of g over the rows (Ba, Kiros and
Hinton, "Layer Normalization", 2016, by the chain rule).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from portkern.ops import rmsnorm_backward
from portkern.ops._sizes import workloads
from portkern.spec.op import Op, ScalarSpec, Signature, TensorSpec

if TYPE_CHECKING:
    import torch

ROWS = ("rows", "cols")


def run(
    grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    import torch

    kind, wide = x.dtype, torch.promote_types(x.dtype, torch.float32)
    g, x = grad.to(wide), x.to(wide)
    x = x - x.mean(-1, keepdim=True)
    scale = torch.rsqrt((x * x).mean(-1, keepdim=True) + eps)
    z, own = x * scale, g * weight.to(wide)
    inner = own - own.mean(-1, keepdim=True) - z * (own * z).mean(-1, keepdim=True)
    return (scale * inner).to(kind), (g * z).sum(0).to(kind), g.sum(0).to(kind)


def far(
    kind: torch.dtype,
    generator: torch.Generator,
    grad: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Means of many standard deviations: the difference of E[x^2] and E[x]^2 loses all digits."""
    import torch

    mean = 300.0 if kind is torch.float32 else 20.0
    side = torch.randint(0, 2, (x.shape[0], 1), generator=generator) * 2 - 1
    return grad, x + side * mean, weight


SIGNATURE = Signature(
    "layernorm_backward",
    axes=ROWS,
    inputs=(TensorSpec("grad", ROWS), TensorSpec("x", ROWS), TensorSpec("weight", ("cols",))),
    outputs=(
        TensorSpec("grad_x", ROWS),
        TensorSpec("grad_weight", ("cols",)),
        TensorSpec("grad_bias", ("cols",)),
    ),
    scalars=(ScalarSpec("eps", "float32", 1e-05),),
)

OP = Op(
    SIGNATURE,
    reference=run,
    flops=lambda d: 16.0 * d["rows"] * d["cols"],
    description=__doc__,
    adversaries={"far": far, "along": rmsnorm_backward.along},
    workloads=workloads(
        SIGNATURE.axes,
        ci=[(32, 129), (64, 1024)],
        typical=[(4096, 1024), (4096, 4096), (8192, 8192)],
        edge=[(0, 8), (5, 2), (3, 7919), (1021, 3), (2, 12288)],
        heldout=[(613, 769), (259, 5003), (3301, 64)],
    ),
)
