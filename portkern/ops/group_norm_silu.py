"""Group normalisation with weight and bias of each channel, then silu: mean and variance are those
of a group's channels over all of their pixels.

Residual blocks of diffusion models' UNets and of their autoencoders begin so, with 32 groups (Wu
and He, "Group Normalization", 2018; Rombach et al., "Latent Diffusion Models", 2022). A channel is
named by its group and its place in it, as (batch, channels, height, width) lies in memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from portkern.ops._sizes import workloads
from portkern.spec.op import Op, ScalarSpec, Signature, TensorSpec

if TYPE_CHECKING:
    import torch

IMAGES = ("batch", "groups", "channels", "pixels")
CHANNELS = ("groups", "channels")


def run(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    import torch

    _, _, channels, pixels = x.shape
    wide = torch.promote_types(x.dtype, torch.float32)
    normal = torch.nn.functional.layer_norm(x.to(wide), (channels, pixels), eps=eps)
    scaled = normal * weight.to(wide)[..., None] + bias.to(wide)[..., None]
    return torch.nn.functional.silu(scaled).to(x.dtype)


def framework(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float
) -> torch.Tensor:
    import torch

    every = x.flatten(1, 2), x.shape[1], weight.flatten(), bias.flatten(), eps
    return torch.nn.functional.silu(torch.group_norm(*every)).view(x.shape)


def far(
    kind: torch.dtype,
    generator: torch.Generator,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Means of many standard deviations: the difference of E[x^2] and E[x]^2 loses all digits."""
    import torch

    mean = 3000.0 if kind is torch.float32 else 60.0
    side = torch.randint(0, 2, (*x.shape[:2], 1, 1), generator=generator) * 2 - 1
    return x + side * mean, weight, bias


def unlike(
    kind: torch.dtype,
    generator: torch.Generator,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Channels of a group with means and deviations of their own: those of one, or of all groups,
    are far from the group's."""
    import torch

    power = 2.0 ** torch.randint(-4, 5, (*x.shape[:3], 1), generator=generator)
    mean = torch.randint(-3, 4, power.shape, generator=generator)
    return (x + mean) * power, weight, bias


def steep(
    kind: torch.dtype,
    generator: torch.Generator,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Results of hundreds on both sides of 0, of which one side's exponentials overflow."""
    return x, weight * 300, bias


SIGNATURE = Signature(
    "group_norm_silu",
    axes=IMAGES,
    inputs=(
        TensorSpec("x", IMAGES),
        TensorSpec("weight", CHANNELS),
        TensorSpec("bias", CHANNELS),
    ),
    outputs=(TensorSpec("y", IMAGES),),
    scalars=(ScalarSpec("eps", "float32", 1e-05),),
)

OP = Op(
    SIGNATURE,
    reference=run,
    flops=lambda d: 12.0 * d["batch"] * d["groups"] * d["channels"] * d["pixels"],
    description=__doc__,
    terms=lambda d: d["channels"] * d["pixels"],
    shifts=True,
    baseline=framework,
    adversaries={"far": far, "unlike": unlike, "steep": steep},
    workloads=workloads(
        SIGNATURE.axes,
        ci=[(2, 4, 3, 37), (1, 8, 4, 64)],
        typical=[(2, 32, 10, 4096), (2, 32, 40, 1024), (1, 32, 8, 262144)],
        edge=[
            (0, 2, 2, 4),
            (1, 1, 1, 1),
            (2, 3, 1, 7),
            (1, 2, 5, 1),
            (2, 1, 7, 1021),
            (1, 1, 3, 8208),
            (1, 1, 2, 9001),
        ],
        heldout=[(3, 5, 6, 49), (1, 4, 9, 1024), (1, 2, 3, 6007)],
    ),
)
