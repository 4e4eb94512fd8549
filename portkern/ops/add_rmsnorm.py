"""x + residual, and its root-mean-square normalisation over the last axis, with weight: what stands
between blocks of a transformer, of which the sum goes on as the next residual."""

from __future__ import annotations

from typing import TYPE_CHECKING

from portkern.ops._sizes import workloads
from portkern.spec.op import Op, ScalarSpec, Signature, TensorSpec

if TYPE_CHECKING:
    import torch

ROWS = ("rows", "cols")


def run(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    import torch

    total = x + residual
    return torch.nn.functional.rms_norm(total, total.shape[-1:], weight, eps), total


def uneven(
    kind: torch.dtype,
    generator: torch.Generator,
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Rows from 1e-5, where eps is what counts, to 1e3, whose squares a half cannot hold."""
    import torch

    power = 10.0 ** torch.randint(-5, 4, (x.shape[0], 1), generator=generator)
    return x * power, residual * power, weight


def opposite(
    kind: torch.dtype,
    generator: torch.Generator,
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The residual takes away nearly all of x in every other row."""
    residual[::2] = residual[::2] / 64 - x[::2]
    return x, residual, weight


SIGNATURE = Signature(
    "add_rmsnorm",
    axes=ROWS,
    inputs=(
        TensorSpec("x", ROWS),
        TensorSpec("residual", ROWS),
        TensorSpec("weight", ("cols",)),
    ),
    outputs=(TensorSpec("y", ROWS), TensorSpec("total", ROWS)),
    scalars=(ScalarSpec("eps", "float32", 1e-06),),
)

OP = Op(
    SIGNATURE,
    reference=run,
    flops=lambda d: 5.0 * d["rows"] * d["cols"],
    description=__doc__,
    terms=lambda d: d["cols"],
    adversaries={"uneven": uneven, "opposite": opposite},
    workloads=workloads(
        SIGNATURE.axes,
        ci=[(32, 129), (64, 1024)],
        typical=[(1, 4096), (4096, 4096), (8192, 8192)],
        edge=[(0, 8), (1, 1), (3, 7919), (1021, 3), (2, 65537)],
        heldout=[(613, 769), (259, 5003), (3301, 64)],
    ),
)
