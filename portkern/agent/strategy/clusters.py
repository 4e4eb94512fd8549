"""K-means++ on a few points of a few features, equal for equal seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from statistics import fmean, pstdev
from typing import Self

from pydantic import BaseModel, ConfigDict

Point = tuple[float, ...]
#: A few dozen points settle in fewer passes; the bound is for those that would go round for ever.
PASSES = 50


class Clusters(BaseModel):
    """``centres`` are in units of each feature's spread, so that none outweighs the others."""

    model_config = ConfigDict(frozen=True)

    middle: Point
    spread: Point
    centres: tuple[Point, ...]

    @classmethod
    def of(cls, points: Sequence[Point], count: int, drawn: Random) -> Self:
        """``count`` clusters, or as many as there are different points."""
        features = list(zip(*points, strict=True))
        middle = tuple(map(fmean, features))
        spread = tuple(pstdev(values) or 1.0 for values in features)
        scaled = [_scale(point, middle, spread) for point in points]
        return cls(middle=middle, spread=spread, centres=_settle(scaled, count, drawn))

    def distances(self, point: Point) -> list[float]:
        """Squared, to each centre."""
        scaled = _scale(point, self.middle, self.spread)
        return [_distance(scaled, centre) for centre in self.centres]

    def nearest(self, point: Point) -> int:
        distances = self.distances(point)
        return distances.index(min(distances))


def _settle(points: Sequence[Point], count: int, drawn: Random) -> tuple[Point, ...]:
    centres = _spread_out(points, count, drawn)
    for _ in range(PASSES):
        groups: list[list[Point]] = [[] for _ in centres]
        for point in points:
            distances = [_distance(point, centre) for centre in centres]
            groups[distances.index(min(distances))].append(point)
        moved = [
            tuple(map(fmean, zip(*group, strict=True))) if group else centre
            for group, centre in zip(groups, centres, strict=True)
        ]
        if moved == centres:
            break
        centres = moved
    return tuple(centres)


def _spread_out(points: Sequence[Point], count: int, drawn: Random) -> list[Point]:
    """The first centres: each is the likelier the farther it is from those before it."""
    centres = [drawn.choice(points)]
    while len(centres) < count:
        far = [min(_distance(point, centre) for centre in centres) for point in points]
        if not any(far):
            break
        centres += drawn.choices(points, weights=far)
    return centres


def _scale(point: Point, middle: Point, spread: Point) -> Point:
    return tuple((x - m) / s for x, m, s in zip(point, middle, spread, strict=True))


def _distance(a: Point, b: Point) -> float:
    return math.fsum((x - y) ** 2 for x, y in zip(a, b, strict=True))
