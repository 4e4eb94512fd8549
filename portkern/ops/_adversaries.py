"""Inputs that more than one op is tried with."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def infinite(
    kind: torch.dtype, generator: torch.Generator, *inputs: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """The inputs with both infinities among normal values."""
    import torch

    return _among(inputs, torch.tensor([torch.inf, -torch.inf]), generator)


def special(
    kind: torch.dtype, generator: torch.Generator, *inputs: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """NaN and both infinities among normal values: an op without sums says where each goes."""
    import torch

    return _among(inputs, torch.tensor([torch.nan, torch.inf, -torch.inf]), generator)


def cancelling_product(
    kind: torch.dtype, generator: torch.Generator, a: torch.Tensor, b: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The second half of the products takes away the first, but for a few per cent."""
    half = a.shape[-1] // 2
    a = a.to(kind).float()
    b = b.to(kind).float()
    a[..., half : 2 * half] = -a[..., :half]
    b[..., half : 2 * half, :] = b[..., :half, :] + b[..., half : 2 * half, :] / 64
    return a, b


def whole_product(
    kind: torch.dtype, generator: torch.Generator, a: torch.Tensor, b: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Any order of adding is exact in float32; the reduced precisions cannot hold ``a``."""
    import torch

    most = 4095 if kind is torch.float32 else 127
    wide = torch.randint(-most, most + 1, a.shape, generator=generator)
    return wide.float(), torch.randint(-1, 2, b.shape, generator=generator).float()


def _among(
    inputs: tuple[torch.Tensor, ...], odd: torch.Tensor, generator: torch.Generator
) -> tuple[torch.Tensor, ...]:
    import torch

    made = []
    for tensor in inputs:
        if not tensor.is_floating_point():
            made.append(tensor)
            continue
        place = torch.rand(tensor.shape, generator=generator) < 0.05
        which = torch.randint(0, len(odd), tensor.shape, generator=generator)
        made.append(torch.where(place, odd[which], tensor))
    return tuple(made)
