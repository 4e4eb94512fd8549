"""Products of experts: rows that follow one another are an expert's, whose weight they meet,
y = x W'. ``ends`` says where each expert's rows end; an expert whose end is not beyond all earlier
ends has no rows, and rows that are nobody's give zeros.

Layers of experts sort their tokens by expert and multiply so, decoding as training (Gale et al.,
"MegaBlocks", 2022); the framework's grouped products take the same numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from portkern.ops._sizes import workloads
from portkern.spec.op import ITEMSIZE, Op, Signature, TensorSpec

if TYPE_CHECKING:
    import torch


def run(x: torch.Tensor, weight: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    import torch

    [experts] = ends.shape
    if experts != weight.shape[0]:
        raise ValueError(f"Got {experts} ends, expected one for each of {weight.shape[0]} weights")
    row = torch.arange(x.shape[0], device=x.device)
    y = x.new_zeros((x.shape[0], weight.shape[1]))
    until = torch.cummax(ends, 0).values
    for expert in range(experts - 1, -1, -1):
        own = torch.nn.functional.linear(x, weight[expert])
        y = torch.where((row < until[expert])[:, None], own, y)
    return y


def framework(x: torch.Tensor, weight: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """The framework's grouped product, where it has one.

    It leaves rows that are nobody's as they are; that it does less is not made up for."""
    import torch

    if x.is_cuda and x.dtype == torch.bfloat16 and hasattr(torch, "_grouped_mm"):
        ends = ends.cummax(0).values.to(torch.int32)
        return torch._grouped_mm(x, weight.mT, offs=ends)
    parts, start = [], 0
    for expert, end in enumerate(ends.tolist()):
        if end > start:
            parts.append(torch.nn.functional.linear(x[start:end], weight[expert]))
            start = end
    return torch.cat([*parts, x.new_zeros((x.shape[0] - start, weight.shape[1]))])


def cancelling(
    kind: torch.dtype,
    generator: torch.Generator,
    x: torch.Tensor,
    weight: torch.Tensor,
    ends: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The second half of the products takes away the first, but for a few per cent."""
    half = x.shape[1] // 2
    x, weight = x.to(kind).float(), weight.to(kind).float()
    x[:, half : 2 * half] = -x[:, :half]
    weight[..., half : 2 * half] = weight[..., :half] + weight[..., half : 2 * half] / 64
    return x, weight, ends


def idle(
    kind: torch.dtype,
    generator: torch.Generator,
    x: torch.Tensor,
    weight: torch.Tensor,
    ends: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Most experts have no row, by ends that are equal, that are 0 or that fall; the last row is
    somebody's."""
    import torch

    chosen = torch.randint(0, 4, ends.shape, generator=generator)
    ends = torch.where(chosen == 0, ends, torch.where(chosen == 1, 0, ends.roll(1)))
    ends[-1:] = x.shape[0]
    return x, weight, ends


def reads(dims: Mapping[str, int], dtype: str) -> int:
    """Rows, ends, and the weights of experts that have a row: as many as ends differ, when drawn,
    from each other and from 0."""
    experts = dims["rows"] * (1 - (1 - 1 / (dims["rows"] + 1)) ** dims["experts"])
    elements = dims["rows"] * dims["k"] + int(experts * dims["n"]) * dims["k"]
    return elements * ITEMSIZE[dtype] + dims["experts"] * ITEMSIZE["int32"]


SIGNATURE = Signature(
    "grouped_linear",
    axes=("rows", "n", "k", "experts"),
    inputs=(
        TensorSpec("x", ("rows", "k")),
        TensorSpec("weight", ("experts", "n", "k")),
        TensorSpec("ends", ("experts",), "int32", within=(0, "rows + 1")),
    ),
    outputs=(TensorSpec("y", ("rows", "n")),),
)

OP = Op(
    SIGNATURE,
    reference=run,
    flops=lambda d: 2.0 * d["rows"] * d["n"] * d["k"],
    description=__doc__,
    terms=lambda d: d["k"],
    cancels=True,
    reads=reads,
    baseline=framework,
    draws={"ends": "rising"},
    adversaries={"cancelling": cancelling, "idle": idle},
    workloads=workloads(
        SIGNATURE.axes,
        ci=[(45, 33, 40, 4), (96, 64, 64, 3)],
        typical=[(128, 2048, 768, 128), (8192, 1024, 512, 32), (4096, 2048, 1024, 64)],
        edge=[
            (0, 4, 4, 2),
            (1, 1, 1, 1),
            (3, 5, 7, 70),
            (131, 67, 3, 2),
            (200, 8, 48, 1),
            (331, 131, 72, 2),
            (5, 3, 0, 2),
        ],
        heldout=[(257, 95, 72, 9), (77, 130, 33, 40)],
    ),
)
