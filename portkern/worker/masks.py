"""Inputs of timed calls that make no sense until their call: nobody works on those of later ones.

A round's calls have their buffers side by side. On a GPU one launch could answer them all in less
time than launches take, while the call that warms up is not counted. So the evaluator hands over
inputs behind a mask, and each is taken off just before its call, outside of what is timed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def mask(tensors: Sequence[torch.Tensor], key: int) -> None:
    """Puts the masks of this key over the elements of a call's dense tensors, or takes them off,
    without a trace in the framework's versions of the tensors. Each has a mask of its own: under
    one, two of them tell what they differ in."""
    for number, tensor in enumerate(tensors):
        if tensor.numel():
            _flip(tensor, key ^ number)


def _flip(tensor: torch.Tensor, seed: int) -> None:
    """Flips every bit or leaves it, both as often."""
    import torch

    plain = tensor.data.view(-1).view(torch.uint8)
    least = torch.iinfo(torch.int64).min  # without it no number is negative
    noise = torch.empty(-(-len(plain) // 8), dtype=torch.int64, device=tensor.device)
    noise.random_(least, None, generator=torch.Generator(tensor.device).manual_seed(seed))
    if len(plain) % 8 or plain.storage_offset() % 8:
        plain.bitwise_xor_(noise.view(torch.uint8)[: len(plain)])
    else:
        plain.view(torch.int64).bitwise_xor_(noise)
