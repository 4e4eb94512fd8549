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
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, cached_property

#: Runs before anything is said of times, and those that are looked back on.
LEAST, LONGEST = 5, 10
#: Nothing smaller is called a change: where runs differ little, as on a GPU, what is less than the
#: first and than so many common deviations; elsewhere what is less than the last.
STEADY_FLOOR, DEVIATIONS, FLOOR = math.log(1.02), 5, math.log(1.05)
#: The common deviation counts as so many runs of the cell's own.
PRIOR = 4
#: The quantiles of a suspect, by one run, and of a verdict, by three, where something changed that
#: may be the reason, and where nothing did.
SUSPECT, CERTAIN, UNEXPLAINED = 0.10, 0.02, 0.005
#: Variance of the median of three, in that of one: 1.35 times the mean's.
OF_THREE = 1.35 / 3
#: How often a suspect is timed again, and how many times that is tried: on a busy machine a time
#: may be no evidence.
AGAIN, TRIES = 2, 3
#: A cell that would not show this is called too noisy; with fewer than :data:`LEAST` runs nothing
#: less is told.
BLIND = math.log(1.5)
#: More than noise makes of a low quantile, by one race that was not repeated and with one earlier
#: run (times of runs beside busy processes differ by less); and what is told whatever the history.
BLATANT, ALWAYS = math.log(4), math.log(10)


class ChangeKind(StrEnum):
    """The change of a cell from one run to another, the worst first."""

    NEW_FAILURE = "new failure"
    LOST = "lost coverage"
    SLOWER = "slower"
    HEAVIER = "heavier"
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
        return self in (
            ChangeKind.NEW_FAILURE,
            ChangeKind.LOST,
            ChangeKind.SLOWER,
            ChangeKind.HEAVIER,
        )

    @property
    def timed(self) -> bool:
        """Whether it says that a time is another."""
        return self in (ChangeKind.SLOWER, ChangeKind.FASTER, ChangeKind.SUSPECT)


@dataclass(frozen=True)
class TimeMeasure:
    """The measure that a time is judged by, in logarithms: ``middle`` is what it should be,
    known from so many ``runs``; ``calm`` are values of runs that were as they should be, which
    say how far runs differ; ``common`` is the deviation of all cells, and ``wider`` that of this
    night beyond it. ``alpha``: how seldom noise alone is a verdict."""

    middle: float
    runs: int
    calm: Sequence[float]
    common: float
    wider: float = 0.0
    alpha: float = CERTAIN

    @classmethod
    def of(cls, history: Sequence[float], common: float) -> TimeMeasure:
        """Raises StatisticsError for an empty history."""
        recent = list(history[-LONGEST:])
        return cls(statistics.median(recent), len(recent), recent, common)

    @property
    def few(self) -> bool:
        return len(self.calm) < LEAST

    @cached_property
    def visible(self) -> float:
        """The least change that one run can show."""
        if self.few and (len(self.calm) < 2 or not self.common):
            return BLATANT
        least = BLIND if self.few else floor(self.common)
        # what three races would not confirm is not raced again
        return min(max(least, self.limit(SUSPECT), self.limit(self.alpha, OF_THREE)), ALWAYS)

    @property
    def certain(self) -> float:
        """The least change that the median of three races can show."""
        if self.few:
            return self.visible
        return min(max(floor(self.common), self.limit(self.alpha, OF_THREE)), ALWAYS)

    def limit(self, alpha: float, share: float = 1.0) -> float:
        """The limit as :func:`limit` has it, for a middle that is known from another number of
        runs."""
        n = len(self.calm)
        if not n:
            return 0.0
        known = _quantile(alpha / 2, PRIOR + n - 1) * math.sqrt(
            self._shrunk * (share + 1 / self.runs)
        )
        if not self.wider:
            return known
        return math.hypot(known, _quantile(alpha / 2, PRIOR + n) * self.wider * math.sqrt(share))

    @cached_property
    def _shrunk(self) -> float:
        return shrunk(self.calm, self.common)


def spread(histories: Sequence[Sequence[float]]) -> float:
    """The median of the cells' deviations from run to run; 0 where no cell has enough runs."""
    known = [math.sqrt(variance(one[-LONGEST:])) for one in histories if len(one) >= LEAST]
    return statistics.median(known) if known else 0.0


def floor(common: float) -> float:
    """The least that is called a change where runs differ by ``common``, 0 where it is unknown."""
    return min(FLOOR, max(STEADY_FLOOR, DEVIATIONS * common)) if common else FLOOR


def limit(history: Sequence[float], common: float, alpha: float, share: float = 1.0) -> float:
    """How far a value of ``share`` of one run's variance may be from the history's median."""
    n = len(history)
    width = math.sqrt(shrunk(history, common) * (share + 1 / n))
    return _quantile(alpha / 2, PRIOR + n - 1) * width


def shrunk(history: Sequence[float], common: float) -> float:
    """The variance of a cell, as far as its runs and those of all cells say."""
    n = len(history)
    own = (n - 1) * variance(history) if n > 1 else 0.0
    return (PRIOR * common**2 + own) / (PRIOR + n - 1)


def variance(values: Sequence[float]) -> float:
    """The variance of at least two values. The one of ``statistics`` computes in fractions,
    which would take most of a comparison's time."""
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)


@cache
def _quantile(tail: float, freedom: int) -> float:
    """The quantile of Student's t above which ``tail`` lies."""
    # scipy.stats takes a second to import, and every verb that runs cells comes by here
    from scipy import special

    return -float(special.stdtrit(freedom, tail))


def judge(
    measure: TimeMeasure, value: float, again: Callable[[], Sequence[float] | None]
) -> tuple[ChangeKind, float]:
    """The change, and by how much. ``again`` gives :data:`AGAIN` further values of the same run
    where they can be had; it is asked of suspects only. Where it gives None these stay such, but
    for what no noise makes."""
    moved, first = value - measure.middle, measure.visible
    if abs(moved) <= first:
        if measure.few:
            return ChangeKind.INSUFFICIENT, moved
        return (ChangeKind.TOO_NOISY if first > BLIND else ChangeKind.UNCHANGED), moved
    more = again()
    if more is None:
        told = not measure.few and abs(moved) > max(BLATANT, 3 * first)
        return (_towards(moved) if told else ChangeKind.SUSPECT), moved
    every = [moved, *(other - measure.middle for other in more)]
    typical = statistics.median(every)
    agree = min(every) > 0 or max(every) < 0
    if not agree or abs(typical) <= measure.certain:
        return (ChangeKind.INSUFFICIENT if measure.few else ChangeKind.UNCHANGED), typical
    return _towards(typical), typical


def decide(
    history: Sequence[float],
    value: float,
    common: float,
    again: Callable[[], Sequence[float] | None],
) -> tuple[ChangeKind, float]:
    """Decides as :func:`judge` does, by the newest of a cell's earlier values."""
    if not history:
        return ChangeKind.INSUFFICIENT, 0.0
    return judge(TimeMeasure.of(history, common), value, again)


def log_of(moved: float | None) -> float:
    """The logarithm of a relative change."""
    return math.log1p(moved) if moved is not None and moved > -1 else 0.0


def _towards(moved: float) -> ChangeKind:
    return ChangeKind.SLOWER if moved > 0 else ChangeKind.FASTER
