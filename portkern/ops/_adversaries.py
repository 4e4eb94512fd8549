"""Inputs that more than one op is tried with."""

from __future__ import annotations

from typing import Any


def special(kind: Any, generator: Any, *inputs: Any) -> tuple[Any, ...]:
    """NaN and both infinities among normal values: an op without sums says where each goes."""
    import torch

    odd = torch.tensor([torch.nan, torch.inf, -torch.inf])
    made = []
    for tensor in inputs:
        place = torch.rand(tensor.shape, generator=generator) < 0.05
        which = torch.randint(0, 3, tensor.shape, generator=generator)
        made.append(torch.where(place, odd[which], tensor))
    return tuple(made)
