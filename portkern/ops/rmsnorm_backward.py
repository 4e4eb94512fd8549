"""Gradients of a root-mean-square normalisation over the last axis by its input and its weight.

With s = 1 / sqrt(mean(x^2) + eps) and z = x s they are s (w g - z mean(w g z)) and the sum of g z
over the rows (Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019, section 4).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from portkern.ops._sizes import workloads
from portkern.spec.op import Op, ScalarSpec, Signature, TensorSpec

if TYPE_CHECKING:
    import torch

ROWS = ("rows", "cols")


def run(
    grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    import torch

    kind, wide = x.dtype, torch.promote_types(x.dtype, torch.float32)
    g, x = grad.to(wide), x.to(wide)
    scale = torch.rsqrt((x * x).mean(-1, keepdim=True) + eps)
    z, own = x * scale, g * weight.to(wide)
    of_x = scale * (own - z * (own * z).mean(-1, keepdim=True))
    return of_x.to(kind), (g * z).sum(0).to(kind)


def along(
    kind: torch.dtype,
    generator: torch.Generator,
    grad: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Half of the gradients are nearly those that a longer row makes, of which nothing is left."""
    weight = weight.abs() + 0.5
    grad[::2] = x[::2] / weight + grad[::2] / 64
    return grad, x, weight


def uneven(
    kind: torch.dtype,
    generator: torch.Generator,
    grad: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Rows from 1e-2 to 1e3, whose squares a half cannot hold."""
    import torch

    return grad, x * 10.0 ** torch.randint(-2, 4, (x.shape[0], 1), generator=generator), weight


SIGNATURE = Signature(
    "rmsnorm_backward",
    axes=ROWS,
    inputs=(TensorSpec("grad", ROWS), TensorSpec("x", ROWS), TensorSpec("weight", ("cols",))),
    outputs=(TensorSpec("grad_x", ROWS), TensorSpec("grad_weight", ("cols",))),
    scalars=(ScalarSpec("eps", "float32", 1e-06),),
)

OP = Op(
    SIGNATURE,
    reference=run,
    flops=lambda d: 12.0 * d["rows"] * d["cols"],
    description=__doc__,
    adversaries={"along": along, "uneven": uneven},
    workloads=workloads(
        SIGNATURE.axes,
        ci=[(32, 129), (64, 1024)],
        typical=[(4096, 1024), (4096, 4096), (8192, 8192)],
        edge=[(0, 8), (1, 1), (3, 7919), (1021, 3), (2, 12288)],
        heldout=[(613, 769), (259, 5003), (3301, 64)],
    ),
)
