"""Times two ways of one thing in turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ._sites import Site

#: What a replacement gains at least, by the medians; less is noise.
LEAST_GAIN = 1.03
ROUNDS, _BUDGET_S = 31, 0.25
#: A round's calls: on a GPU as many as make it longer than the wait for their end.
_PART_S = {"cpu": 50e-6, "cuda": 300e-6}


def _clock(devices: set[str]) -> Callable[[], float]:
    def now() -> float:
        if "cuda" in devices:
            torch.cuda.synchronize()
        return time.perf_counter()

    return now


def race(
    ways: Sequence[Callable[[], Any]], devices: set[str], *, rounds: int, budget_s: float
) -> list[list[float]]:
    """The seconds that a call of each takes, in turns, after one that is not counted; short ones
    are called several times a round."""
    now = _clock(devices)
    for way in ways:
        way()
    start = now()
    ways[0]()
    first = max(now() - start, 1e-7)
    part = max((_PART_S.get(one, 50e-6) for one in devices), default=50e-6)
    times = max(1, min(100, int(part / first)))
    found: list[list[float]] = [[] for _ in ways]
    end = time.perf_counter() + budget_s
    for number in range(rounds):
        # Who comes first is never the same: what one leaves in a cache the other finds.
        for place in range(len(ways)):
            place = (place + number) % len(ways)
            start = now()
            for _ in range(times):
                ways[place]()
            found[place].append((now() - start) / times)
        if time.perf_counter() > end and number >= 5:
            break
    return found


def race_site(site: Site, called: Any, rounds: int, *, training: bool) -> tuple[float, float, bool]:
    """The microseconds of the module's own code and of the operator, and whether that pays."""
    tensors = site.tensors
    if training:
        tensors = [t.detach().requires_grad_(t.is_floating_point()) for t in tensors]
    wanted = [t for t in tensors if t.requires_grad]

    def of(function: Any, check: Callable[[], object]) -> Callable[[], Any]:
        def run() -> None:
            check()
            made = pytree.tree_leaves(function(*tensors))[0]
            if training and made.requires_grad:
                torch.autograd.grad(made, wanted, torch.ones_like(made), allow_unused=True)

        return run

    with torch.set_grad_enabled(training):
        devices = {t.device.type for t in tensors}
        ways = [of(site.theirs, bool), of(site.ours(called), site.check)]
        theirs, ours = race(ways, devices, rounds=rounds, budget_s=_BUDGET_S)
    own, operator = statistics.median(theirs), statistics.median(ours)
    won = sum(a > b for a, b in zip(theirs, ours, strict=True)) / len(ours)
    return own * 1e6, operator * 1e6, own >= LEAST_GAIN * operator and won >= 2 / 3
