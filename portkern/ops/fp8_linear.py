"""y = x W' with a weight of floats of eight bits (e4m3: a sign, four bits of exponent, three of
mantissa, as bytes), of which each group of a row's elements has a scale; activations stay as they
are. Bytes of 127 and 255 are NaN.

So linear layers are stored whose weights alone are small: with a scale for each block of 128 × 128
by DeepSeek-V3 (2024), whose rows of a block repeat it, or for each row, of one group. A row is
``groups`` of ``bytes``, and k is as many.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from portkern.ops._sizes import workloads
from portkern.spec.op import Op, Scalar, Signature, TensorSpec

if TYPE_CHECKING:
    import torch


def run(x: torch.Tensor, packed: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    import torch

    weight = packed.view(torch.float8_e4m3fn).to(x.dtype) * scale.unsqueeze(-1)
    return torch.nn.functional.linear(x, weight.flatten(1))


def cancelling(
    kind: torch.dtype,
    generator: torch.Generator,
    x: torch.Tensor,
    packed: torch.Tensor,
    scale: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The second half of a group takes away what the first half adds, but for the lowest bits."""
    half = packed.shape[2] // 2
    x = x.to(kind).float()
    by_group = x.view(-1, *packed.shape[1:])
    by_group[..., half : 2 * half] = -by_group[..., :half]
    packed[..., half : 2 * half] = packed[..., :half] ^ 1
    return x, packed - (packed & 127 == 127).to(packed.dtype), scale


def far(
    kind: torch.dtype,
    generator: torch.Generator,
    x: torch.Tensor,
    packed: torch.Tensor,
    scale: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Groups whose scales differ by powers of two, in no order."""
    import torch

    return x, packed, scale * 2.0 ** torch.randint(-6, 7, scale.shape, generator=generator)


def small(
    kind: torch.dtype,
    generator: torch.Generator,
    x: torch.Tensor,
    packed: torch.Tensor,
    scale: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Weights below the least normal one of eight bits, which have bits of mantissa alone."""
    return x, packed & 0x87, scale


def derived(dims: Mapping[str, int], scalars: Mapping[str, Scalar]) -> dict[str, int]:
    return {"k": dims["groups"] * dims["bytes"]}


SIGNATURE = Signature(
    "fp8_linear",
    axes=("m", "n", "groups", "bytes", "k"),
    inputs=(
        TensorSpec("x", ("m", "k")),
        TensorSpec("packed", ("n", "groups", "bytes"), "uint8"),
        TensorSpec("scale", ("n", "groups")),
    ),
    outputs=(TensorSpec("y", ("m", "n")),),
)

OP = Op(
    SIGNATURE,
    reference=run,
    draws={"packed": "float8"},
    flops=lambda d: 2.0 * d["m"] * d["n"] * d["k"],
    description=__doc__,
    terms=lambda d: d["k"],
    cancels=True,
    derived=derived,
    adversaries={"cancelling": cancelling, "far": far, "small": small},
    workloads=workloads(
        SIGNATURE.axes,
        ci=[(3, 33, 3, 16), (40, 64, 2, 32)],
        typical=[(1, 4096, 32, 128), (16, 4096, 32, 128), (2048, 4096, 32, 128)],
        edge=[
            (0, 4, 2, 4),
            (1, 1, 1, 1),
            (2, 7, 5, 3),
            (5, 3, 0, 4),
            (1, 65, 9, 16),
            (70, 33, 2, 24),
            (19, 21, 4, 3),
        ],
        heldout=[(1, 257, 11, 16), (129, 95, 3, 40)],
        derived=derived,
    ),
)
