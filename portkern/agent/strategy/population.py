"""Decides which attempts stay in a population when a child is born."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean
from typing import Literal

from portkern.agent.attempt import Attempt
from portkern.agent.strategy.search import metric, ranked

Mode = Literal["single", "elite", "diverse", "map_elites"]
Cell = tuple[int, ...]


@dataclass(frozen=True)
class PopulationPolicy:
    """``features`` (of ``map_elites``) are ``complexity``: the length of the source, ``diversity``:
    how much of it the others lack, and metrics by their names."""

    mode: Mode
    size: int
    features: tuple[str, ...] = ()
    bins: int = 10

    def survivors(self, attempts: Sequence[Attempt]) -> list[Attempt]:
        """The fastest first, which always stays; of those that fail none does."""
        left = ranked(attempts)
        if self.mode == "map_elites":
            left = self._elites(left)
        while self.mode == "diverse" and len(left) > self.size:
            left.remove(_redundant(left))
        return left[: 1 if self.mode == "single" else self.size]

    def _elites(self, attempts: Sequence[Attempt]) -> list[Attempt]:
        """The fastest of each cell of the grid that these attempts span."""
        columns = [self._bins(_values(feature, attempts)) for feature in self.features]
        first: dict[Cell, Attempt] = {}
        for attempt, cell in zip(attempts, zip(*columns, strict=True), strict=True):
            first.setdefault(cell, attempt)
        return list(first.values())

    def _bins(self, values: Sequence[float]) -> list[int]:
        low, high = min(values, default=0.0), max(values, default=0.0)
        width = (high - low) / self.bins or 1.0
        return [min(int((value - low) / width), self.bins - 1) for value in values]


def _values(feature: str, attempts: Sequence[Attempt]) -> list[float]:
    if feature == "complexity":
        return [float(len(attempt.source)) for attempt in attempts]
    if feature == "diversity":
        return [
            fmean([distance(attempt, other) for other in attempts if other is not attempt] or [0.0])
            for attempt in attempts
        ]
    return [metric(attempt, feature) or 0.0 for attempt in attempts]


def _redundant(ranked: Sequence[Attempt]) -> Attempt:
    """The slower of the two that are most alike."""
    pairs = itertools.combinations(ranked, 2)
    return min(pairs, key=lambda pair: distance(*pair))[1]


def distance(a: Attempt, b: Attempt) -> float:
    """The share of their lines that only one of them has: 0 for those that are equal."""
    mine, other = _lines(a.source), _lines(b.source)
    union = len(mine | other)
    return 1 - len(mine & other) / union if union else 0.0


@lru_cache(maxsize=1024)
def _lines(source: str) -> frozenset[str]:
    return frozenset(line.strip() for line in source.splitlines())


def power_law(count: int, exponent: float) -> list[float]:
    """Weights by rank."""
    return [math.pow(rank, -exponent) for rank in range(1, count + 1)]
