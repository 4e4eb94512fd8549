"""Times of a cell as they are compared: logarithms, in a place, by themselves or against eager."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import NamedTuple, Self

from portkern.regression.outcome import CellOutcome


class Statistic(StrEnum):
    """The statistic of times: against eager's of the same rounds, or by themselves."""

    AGAINST_EAGER = "against eager"
    TIME = "time"


class TimedPlace(NamedTuple):
    """Where and how a time was taken, on one machine; times of two places are not compared."""

    device: str
    venue: str
    method: str

    @classmethod
    def of(cls, outcome: CellOutcome) -> Self:
        method = outcome.timing.method if outcome.timing else ""
        return cls(outcome.environment.device, outcome.venue, method)


class TimedPoint(NamedTuple):
    """Logarithms, of low quantiles: medians flip between two modes where a processor is shared.
    ``eager`` is None where it was not timed beside the kernel."""

    time: float
    eager: float | None

    def shifted(self, time: float, eager: float) -> Self:
        return type(self)(self.time + time, None if self.eager is None else self.eager + eager)


def point(outcome: CellOutcome) -> TimedPoint | None:
    """The time of an outcome as logarithms; None where it was not timed."""
    if outcome.timing is None or not 0 < outcome.timing.p20_us < math.inf:
        return None
    eager = outcome.baselines.get("eager")
    known = eager is not None and 0 < eager.p20_us < math.inf
    return TimedPoint(
        math.log(outcome.timing.p20_us), math.log(eager.p20_us) if eager and known else None
    )


def of(one: TimedPoint, statistic: Statistic) -> float | None:
    if statistic is Statistic.TIME:
        return one.time
    return None if one.eager is None else one.time - one.eager
