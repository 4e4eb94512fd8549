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


def guarded_bytes(shape: tuple[int, ...], dtype: str) -> int:
    """The bytes of an output buffer and its margins on both sides."""
    return math.prod(shape) * ITEMSIZE[dtype] + 2 * MARGIN


def guard(block: torch.Tensor) -> torch.Tensor:
    """Fill a block of bytes with random ones; its margins, as :func:`margins` gives them."""
    import torch

    fill(block)
    edges = torch.randint(0, 256, (2 * MARGIN,), dtype=torch.uint8)
    block[:MARGIN], block[block.numel() - MARGIN :] = edges.chunk(2)
    return edges


def margins(block: torch.Tensor, size: int = MARGIN) -> torch.Tensor:
    """The first and the last ``size`` bytes."""
    import torch

    return torch.cat([block[:size], block[block.numel() - size :]])


def poison(shape: tuple[int, ...], dtype: str, device: torch.device | str = "cpu") -> torch.Tensor:
    """An output buffer of random bytes: what a kernel leaves unwritten differs in every call."""
    import torch

    return fill(torch.empty(shape, dtype=getattr(torch, dtype), device=device))


def fill(buffer: torch.Tensor) -> torch.Tensor:
    """Poison a buffer where it lies, which is twice as fast as copying it there."""
    import torch

    raw = buffer.view(-1).view(torch.uint8)
    block = torch.randint(0, 256, (POISON_PERIOD,), dtype=torch.uint8, device=raw.device)
    whole = len(raw) // POISON_PERIOD * POISON_PERIOD
    raw[:whole].view(-1, POISON_PERIOD).copy_(block)
    raw[whole:].copy_(block[: len(raw) - whole])
    return buffer
