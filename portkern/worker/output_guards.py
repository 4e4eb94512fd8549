"""Buffers for outputs, as a kernel finds them: random bytes with margins that are not its own."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from portkern.spec.op import ITEMSIZE

if TYPE_CHECKING:
    import torch

#: Poison repeats after this many bytes: a prime, so that no row or tile of a kernel meets it twice.
POISON_PERIOD = 65_537
#: Bytes before and behind an output that a kernel must leave alone; a multiple of a page, so that
#: the output begins at one.
MARGIN = 4096


def guarded(shape: tuple[int, ...], dtype: str) -> torch.Tensor:
    """Random bytes for an output buffer and its margins on both sides."""
    return poison((math.prod(shape) * ITEMSIZE[dtype] + 2 * MARGIN,), "uint8")


def margins(block: torch.Tensor, size: int = MARGIN) -> torch.Tensor:
    """The first and the last ``size`` bytes."""
    import torch

    return torch.cat([block[:size], block[block.numel() - size :]])


def poison(shape: tuple[int, ...], dtype: str) -> torch.Tensor:
    """An output buffer of random bytes: what a kernel leaves unwritten differs in every call."""
    import torch

    count = ITEMSIZE[dtype]
    for size in shape:
        count *= size
    block = torch.randint(0, 256, (min(count, POISON_PERIOD),), dtype=torch.uint8)
    raw = block.repeat(-(-count // max(len(block), 1)))[:count]
    return raw.view(getattr(torch, dtype)).reshape(shape)
