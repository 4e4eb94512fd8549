"""The inputs of timed calls: a base's values at other places and of other sizes.

The judge makes them to know the answers, each worker makes them on its own device, which costs no
transfer; a worker that made others would answer for others.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any


def inputs(base: Sequence[Any], seeds: Sequence[int], call: int) -> list[Any]:
    """Those of one call in a round, torch tensors like those of ``base`` and on their device.

    One seed: every tensor rolled and scaled by numbers that the seed tells. A second one: what the
    first tells but for a few elements, which is what a look at some of them overlooks.
    """
    drawn = random.Random(f"{seeds[0]} {call}")
    made = [_varied(tensor, drawn) for tensor in base]
    for seed in seeds[1:]:
        drawn = random.Random(f"{seed} {call}")
        made = [_nudged(tensor, drawn) for tensor in made]
    return made


def _varied(tensor: Any, drawn: random.Random) -> Any:
    rolled = tensor.reshape(-1).roll(drawn.randrange(max(tensor.numel(), 1)))
    if tensor.is_floating_point():
        rolled = (rolled * drawn.uniform(0.75, 1.25)).to(tensor.dtype)
    return rolled.reshape(tensor.shape)


def _nudged(tensor: Any, drawn: random.Random) -> Any:
    """One element in 64, at least one and not too many: with the other sign, or, where they are
    integers, in each other's place. Changes ``tensor``, which nobody else has."""
    import torch

    flat = tensor.reshape(-1)
    count = min(len(flat), min(len(flat) // 64, 64) + 1)
    places = torch.tensor(drawn.sample(range(len(flat)), count), dtype=torch.int64)
    places = places.to(flat.device)
    flat[places] = -flat[places] if flat.is_floating_point() else flat[places.roll(1)]
    return flat.reshape(tensor.shape)
