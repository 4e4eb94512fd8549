"""Inputs that more than one op is tried with."""

from __future__ import annotations

from typing import Any


def infinite(kind: Any, generator: Any, *inputs: Any) -> tuple[Any, ...]:
    """Both infinities among normal values."""
    import torch

    return _among(inputs, torch.tensor([torch.inf, -torch.inf]), generator)


def special(kind: Any, generator: Any, *inputs: Any) -> tuple[Any, ...]:
    """NaN and both infinities among normal values: an op without sums says where each goes."""
    import torch

    return _among(inputs, torch.tensor([torch.nan, torch.inf, -torch.inf]), generator)


def _among(inputs: tuple[Any, ...], odd: Any, generator: Any) -> tuple[Any, ...]:
    import torch

    made = []
    for tensor in inputs:
        place = torch.rand(tensor.shape, generator=generator) < 0.05
        which = torch.randint(0, len(odd), tensor.shape, generator=generator)
        made.append(torch.where(place, odd[which], tensor))
    return tuple(made)
