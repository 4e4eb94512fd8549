"""y = x W' with a weight of four bits: each group of a row's elements has a scale and a lowest
value, w = q * scale + low. Two elements lie in a byte, the first in its lower half, which is eight
in a word of 32 bits from its lowest bits on. A zero point z is the lowest value -z * scale.

So linear layers are stored whose activations stay as they are: in groups of 128 by AWQ and GPTQ
(Lin et al., 2023; Frantar et al., 2022), of 32 by llama.cpp's Q4_1. A row is ``groups`` of
``bytes``, and k is twice as many.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from portkern.ops._sizes import workloads
from portkern.spec.op import Op, Scalar, Signature, TensorSpec

if TYPE_CHECKING:
    import torch


def run(
    x: torch.Tensor, packed: torch.Tensor, scale: torch.Tensor, low: torch.Tensor
) -> torch.Tensor:
    import torch

    q = torch.stack([packed & 15, packed >> 4], -1).flatten(2).to(x.dtype)
    weight = q * scale.unsqueeze(-1) + low.unsqueeze(-1)
    return torch.nn.functional.linear(x, weight.flatten(1))


def cancelling(
    kind: torch.dtype,
    generator: torch.Generator,
    x: torch.Tensor,
    packed: torch.Tensor,
    scale: torch.Tensor,
    low: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """The second element of each pair takes away the first, but for one step of each weight."""
    x = x.to(kind).float()
    x[:, 1::2] = -x[:, 0::2]
    first = (packed & 15).clamp(max=14)
    return x, first | (first + 1) << 4, scale, low


def far(
    kind: torch.dtype,
    generator: torch.Generator,
    x: torch.Tensor,
    packed: torch.Tensor,
    scale: torch.Tensor,
    low: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Groups whose scales and lowest values differ by powers of two, in no order."""
    import torch

    power = 2.0 ** torch.randint(-6, 7, scale.shape, generator=generator)
    return x, packed, scale * power, low * power


def derived(dims: Mapping[str, int], scalars: Mapping[str, Scalar]) -> dict[str, int]:
    return {"k": 2 * dims["groups"] * dims["bytes"]}


SIGNATURE = Signature(
    "int4_linear",
    axes=("m", "n", "groups", "bytes", "k"),
    inputs=(
        TensorSpec("x", ("m", "k")),
        TensorSpec("packed", ("n", "groups", "bytes"), "uint8"),
        TensorSpec("scale", ("n", "groups")),
        TensorSpec("low", ("n", "groups")),
    ),
    outputs=(TensorSpec("y", ("m", "n")),),
)

OP = Op(
    SIGNATURE,
    reference=run,
    flops=lambda d: 2.0 * d["m"] * d["n"] * d["k"],
    description=__doc__,
    terms=lambda d: d["k"],
    cancels=True,
    derived=derived,
    adversaries={"cancelling": cancelling, "far": far},
    workloads=workloads(
        SIGNATURE.axes,
        ci=[(3, 33, 3, 8), (40, 64, 2, 16)],
        typical=[(1, 4096, 32, 64), (16, 4096, 32, 64), (2048, 4096, 32, 64)],
        edge=[
            (0, 4, 2, 4),
            (1, 1, 1, 1),
            (2, 7, 5, 3),
            (5, 3, 0, 4),
            (1, 65, 9, 16),
            (70, 33, 2, 24),
            (3, 37, 3, 16),
            (19, 21, 4, 3),
        ],
        heldout=[(1, 257, 11, 16), (129, 95, 3, 20)],
        derived=derived,
    ),
)
