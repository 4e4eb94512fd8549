"""The scan of state-space models whose inputs choose what is kept: each channel has ``states``
numbers, which a step makes exp(-step * rate) of and adds step * x * b to; what they are is seen
through c, and x beside it through the skip.

Layers of Mamba have it (Gu and Dao, 2023), with 16 states in each channel. Steps are positive, as
softplus leaves them, and rates are what the layer keeps the logarithms of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from portkern.ops._sizes import workloads
from portkern.spec.op import Op, Signature, TensorSpec

if TYPE_CHECKING:
    import torch

SEQUENCE = ("batch", "length", "channels")
STATES = ("batch", "length", "states")


def run(
    x: torch.Tensor,
    step: torch.Tensor,
    rate: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    skip: torch.Tensor,
) -> torch.Tensor:
    import torch

    wide = torch.promote_types(x.dtype, torch.float32)
    step, seen = step.to(wide).unsqueeze(-1), [x.new_empty((x.shape[0], 0, x.shape[2]), dtype=wide)]
    given = step * x.to(wide).unsqueeze(-1)
    state = x.new_zeros((x.shape[0], *rate.shape), dtype=wide)
    for t in range(x.shape[1]):
        kept = torch.exp(-step[:, t] * rate.to(wide)) * state
        state = kept + given[:, t] * b[:, t, None].to(wide)
        seen.append((state * c[:, t, None].to(wide)).sum(-1).unsqueeze(1))
    return (torch.cat(seen, 1) + skip.to(wide) * x.to(wide)).to(x.dtype)


def slow(
    kind: torch.dtype,
    generator: torch.Generator,
    x: torch.Tensor,
    step: torch.Tensor,
    rate: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    skip: torch.Tensor,
) -> tuple[torch.Tensor, ...]:
    """States that keep what was long ago."""
    return x, step, rate / 256, b, c, skip


def steep(
    kind: torch.dtype,
    generator: torch.Generator,
    x: torch.Tensor,
    step: torch.Tensor,
    rate: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    skip: torch.Tensor,
) -> tuple[torch.Tensor, ...]:
    """Rates of hundreds, whose powers are 0 after a few positions: a quotient of two of them is
    NaN."""
    return x, step, rate * 300, b, c, skip


def resting(
    kind: torch.dtype,
    generator: torch.Generator,
    x: torch.Tensor,
    step: torch.Tensor,
    rate: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    skip: torch.Tensor,
) -> tuple[torch.Tensor, ...]:
    """Steps of zero at most positions, at which states stay as they are."""
    import torch

    awake = torch.rand(step.shape, generator=generator) < 0.1
    return x, step * awake, rate, b, c, skip


SIGNATURE = Signature(
    "selective_scan",
    axes=("batch", "length", "channels", "states"),
    inputs=(
        TensorSpec("x", SEQUENCE),
        TensorSpec("step", SEQUENCE),
        TensorSpec("rate", ("channels", "states")),
        TensorSpec("b", STATES),
        TensorSpec("c", STATES),
        TensorSpec("skip", ("channels",)),
    ),
    outputs=(TensorSpec("y", SEQUENCE),),
)

OP = Op(
    SIGNATURE,
    reference=run,
    flops=lambda d: d["batch"] * d["length"] * d["channels"] * (7.0 * d["states"] + 3),
    description=__doc__,
    terms=lambda d: d["length"] * d["states"] + 1,
    cancels=True,
    draws={"step": "unit", "rate": "positive"},
    adversaries={"slow": slow, "steep": steep, "resting": resting},
    workloads=workloads(
        SIGNATURE.axes,
        ci=[(2, 33, 37, 16), (1, 70, 24, 5)],
        typical=[(1, 1024, 5120, 16), (4, 512, 1536, 16)],
        edge=[
            (0, 4, 4, 4),
            (1, 1, 1, 1),
            (2, 3, 5, 0),
            (3, 0, 7, 2),
            (1, 129, 3, 33),
            (2, 65, 16, 16),
        ],
        heldout=[(2, 91, 77, 16), (1, 133, 40, 24)],
    ),
)
