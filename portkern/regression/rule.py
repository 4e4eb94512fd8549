"""Whether a time is slower or only different: a cell's own earlier runs say how far runs differ.

All values are natural logarithms of times or of ratios of times, so that 0.05 is about 5 %. The
width is that of the cell's last runs, shrunk to what all cells have, since ten runs know little of
a deviation. Intervals within a run do not enter: what varies between processes and minutes cannot
be seen from inside one.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import cache

#: Runs before anything is said of times, and those that are looked back on.
LEAST, LONGEST = 5, 10
#: Nothing smaller is called a change: where runs differ little, as on a GPU, what is less than the
#: first and than so many common deviations; elsewhere what is less than the last.
STEADY_FLOOR, DEVIATIONS, FLOOR = math.log(1.02), 5, math.log(1.05)
#: The common deviation counts as so many runs of the cell's own.
PRIOR = 4
#: Of a suspect, by one run, and of a verdict, by three.
SUSPECT, CERTAIN = 0.10, 0.02
#: Variance of the median of three, in that of one: 1.35 times the mean's.
OF_THREE = 1.35 / 3
#: How often a suspect is timed again, and how many times that is tried: on a busy machine a time
#: may be no evidence.
AGAIN, TRIES = 2, 3
#: A cell that would not show this is called too noisy.
BLIND = math.log(1.5)


class Change(StrEnum):
    """Of a cell from one run to another, the worst first."""

    NEW_FAILURE = "new failure"
    LOST = "lost coverage"
    SLOWER = "slower"
    SUSPECT = "suspicious"
    STILL_FAILING = "still failing"
    FIXED = "fixed"
    GAINED = "gained"
    FASTER = "faster"
    TOO_NOISY = "too noisy"
    NOT_COMPARABLE = "not comparable"
    INSUFFICIENT = "insufficient data"
    UNCHANGED = "unchanged"

    @property
    def regressed(self) -> bool:
        return self in (Change.NEW_FAILURE, Change.LOST, Change.SLOWER)


def spread(histories: Sequence[Sequence[float]]) -> float:
    """Of the cells' deviations from run to run, the median; 0 where no cell has enough runs."""
    known = [math.sqrt(variance(one[-LONGEST:])) for one in histories if len(one) >= LEAST]
    return statistics.median(known) if known else 0.0


def floor(common: float) -> float:
    """The least that is called a change where runs differ by ``common``, 0 where it is unknown."""
    return min(FLOOR, max(STEADY_FLOOR, DEVIATIONS * common)) if common else FLOOR


def limit(history: Sequence[float], common: float, alpha: float, share: float = 1.0) -> float:
    """How far a value of ``share`` of one run's variance may be from the history's median."""
    n = len(history)
    freedom = PRIOR + n - 1
    shrunk = (PRIOR * common**2 + (n - 1) * variance(history)) / freedom
    return _quantile(alpha / 2, freedom) * math.sqrt(shrunk * (share + 1 / n))


def variance(values: Sequence[float]) -> float:
    """Of at least two. That of ``statistics`` takes fractions, which is most of a comparison."""
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)


@cache
def _quantile(tail: float, freedom: int) -> float:
    """Of Student's t, above which ``tail`` lies."""
    # scipy.stats takes a second to import, and every verb that runs cells comes by here
    from scipy import special

    return -float(special.stdtrit(freedom, tail))


def visible(history: Sequence[float], common: float) -> float:
    """The least change that one run can show."""
    return max(floor(common), limit(history[-LONGEST:], common, SUSPECT))


def decide(
    history: Sequence[float],
    value: float,
    common: float,
    again: Callable[[], Sequence[float] | None],
) -> tuple[Change, float]:
    """The change, and by how much. ``again`` gives :data:`AGAIN` further values of the same run
    where they can be had; it is asked of suspects only, which stay such where it gives None."""
    recent = list(history[-LONGEST:])
    if len(recent) < LEAST:
        middle = statistics.median(recent) if recent else value
        return Change.INSUFFICIENT, value - middle
    middle = statistics.median(recent)
    first = limit(recent, common, SUSPECT)
    moved = value - middle
    if abs(moved) <= max(floor(common), first):
        return (Change.TOO_NOISY if first > BLIND else Change.UNCHANGED), moved
    more = again()
    if more is None:
        return Change.SUSPECT, moved
    every = [moved, *(other - middle for other in more)]
    typical = statistics.median(every)
    agree = min(every) > 0 or max(every) < 0
    least = max(floor(common), limit(recent, common, CERTAIN, OF_THREE))
    if not agree or abs(typical) <= least:
        return Change.UNCHANGED, typical
    return (Change.SLOWER if typical > 0 else Change.FASTER), typical
