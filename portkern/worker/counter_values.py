"""Random values by their number: of any part of a long sequence without the rest of it, alike on
every device that torch opens."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

#: Values that are made together: what is made of them meanwhile stays in a processor's cache, and
#: torch shares out more among threads, which wait for each other where processors are busy.
CHUNK = 1 << 15
#: Odd constants with as many ones as zeros; int32 wraps around.
_FIRST, _SECOND, _THIRD = 0x7FEB352D, -0x7B935975, 0x3C6EF35F
#: Makes of a sum of two uniform values in (-1, 1) one of variance 1 and with tails: x (a + b x²).
_LINEAR, _CUBIC = 0.9767, 0.15


def normal(out: torch.Tensor, seed: str, start: int = 0) -> None:
    """Fill a flat tensor of floats with the values of this seed from ``start`` on: nearly normal,
    between -3.2 and 3.2."""
    import torch

    for begin, part in _chunks(out, start):
        words = _words(seed, start + begin, len(part), out.device)
        values = words.float()
        values += words.mul_(_THIRD)
        values *= 2.0**-31
        torch.mul(values.square().mul_(_CUBIC).add_(_LINEAR), values, out=part)


def integers(out: torch.Tensor, low: int, high: int, seed: str, start: int = 0) -> None:
    """Likewise with integers from ``low`` to ``high`` - 1."""
    for begin, part in _chunks(out, start):
        words = _words(seed, start + begin, len(part), out.device).long()
        part.copy_((words & 0x7FFFFFFF) % max(high - low, 1) + low)


def _chunks(out: torch.Tensor, start: int) -> Iterator[tuple[int, torch.Tensor]]:
    """The parts of a tensor and where they begin; none lies on both sides of a change of keys."""
    begin = 0
    while begin < len(out):
        part = out[begin : begin + CHUNK - (start + begin) % CHUNK]
        yield begin, part
        begin += len(part)


def _words(seed: str, start: int, count: int, device: torch.device) -> torch.Tensor:
    """32 random bits each. The second key comes between two rounds of mixing: with the first alone,
    sequences of two seeds would be parts of one."""
    import torch

    first, second = _keys(seed, start >> 31)
    words = _counted(device)[:count] + _wrapped(first + (start & 0x7FFFFFFF))
    moved = torch.empty_like(words)
    words ^= torch.bitwise_right_shift(words, 16, out=moved)
    words *= _FIRST
    words ^= torch.bitwise_right_shift(words, 15, out=moved)
    words += second
    words *= _SECOND
    words ^= torch.bitwise_right_shift(words, 16, out=moved)
    return words.mul_(_FIRST)


@cache
def _counted(device: torch.device) -> torch.Tensor:
    import torch

    return torch.arange(CHUNK, dtype=torch.int32, device=device)


@lru_cache(maxsize=64)
def _keys(seed: str, part: int) -> tuple[int, int]:
    drawn = random.Random(f"{seed} {part}")
    return _wrapped(drawn.getrandbits(32)), _wrapped(drawn.getrandbits(32))


def _wrapped(number: int) -> int:
    """The number as an int32."""
    return (number + (1 << 31)) % (1 << 32) - (1 << 31)
