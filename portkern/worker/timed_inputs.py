"""The inputs of timed calls: a base's values at other places and of other sizes.

The evaluator makes them to know the answers, each worker makes them on its own device, which costs
no transfer; a worker that made others would answer for others.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def inputs(
    base: Sequence[torch.Tensor],
    seeds: Sequence[int],
    call: int,
    *,
    rolled: bool = True,
    structured: bool = False,
    into: Sequence[torch.Tensor] = (),
) -> list[torch.Tensor]:
    """The inputs of one call in a round, torch tensors like those of ``base`` and on their device;
    in the memory of ``into`` if there are such.

    One seed: every tensor rolled, unless what stands where is to stay, and scaled by numbers that
    the seed tells. A second one: what the first tells but for a few elements, which is what a look
    at some of them overlooks.

    ``structured``: what values are to one another stays, as do signs and bounds: they only get
    smaller, all of a tensor alike.

    Not ``rolled``: by a power of two, which keeps the bits. Sums of one value over and over, which
    round the same way each time, were exact before, and are then.
    """
    import torch

    # By way of .data: the version, which a cache may go by, stays.
    made = [tensor.data for tensor in into] or [
        torch.empty_like(tensor, memory_format=torch.contiguous_format) for tensor in base
    ]
    drawn = random.Random(f"{seeds[0]} {call}")
    for tensor, varied in zip(base, made, strict=True):
        shift = drawn.randrange(max(tensor.numel(), 1))
        factor = _factor(drawn, exact=not rolled, structured=structured)
        shift = shift if rolled and not structured else 0
        _vary(tensor.reshape(-1), varied.reshape(-1), shift, factor)
    for seed in () if structured else seeds[1:]:
        drawn = random.Random(f"{seed} {call}")
        for tensor in made:
            _nudge(tensor.reshape(-1), drawn)
    return [*into] or made


def _factor(drawn: random.Random, *, exact: bool, structured: bool) -> float:
    if exact:
        return drawn.choice((1.0, 0.5, 0.25)) * (1 if structured else drawn.choice((1, -1)))
    return drawn.uniform(0.75, 1.0 if structured else 1.25)


def _vary(base: torch.Tensor, made: torch.Tensor, shift: int, factor: float) -> None:
    import torch

    parts = ((base[len(base) - shift :], made[:shift]), (base[: len(base) - shift], made[shift:]))
    for source, target in parts:
        if base.is_floating_point():
            torch.mul(source, factor, out=target)
        else:
            target.copy_(source)


def _nudge(made: torch.Tensor, drawn: random.Random) -> None:
    """One element in 64, at least one and not too many, with the other sign, or, where they are
    integers, in each other's place."""
    count = min(len(made), min(len(made) // 64, 15) + 1)
    start = drawn.randrange(len(made) - count + 1)
    few = made[start : start + count]
    few.copy_(-few if made.is_floating_point() else few.roll(1))
