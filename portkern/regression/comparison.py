"""A run against an earlier one: what became of each cell, and why it is said."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from portkern.regression import rule
from portkern.regression.cell_change import Cause, CellChange
from portkern.regression.decisions import NightDecisions
from portkern.regression.judgement import Judgement, moved_by
from portkern.regression.nights import Night
from portkern.regression.outcome import CellOutcome
from portkern.regression.past import KnownPast
from portkern.regression.reference import References, TimeReference
from portkern.regression.rule import ChangeKind, TimeMeasure
from portkern.regression.series import Series, incomparable
from portkern.regression.timed import Statistic, TimedPlace, of, point

__all__ = ["CellChange", "RunComparison"]


@dataclass(frozen=True)
class RunComparison:
    """``past`` is what was known before ``after``. ``own``: whether the times of ``before`` are a
    measure by themselves too, as of a run that was named. What the fields ``given`` of a series
    leave out of ``after`` is not missed."""

    before: Night
    after: Night
    past: KnownPast
    decisions: NightDecisions = field(default_factory=NightDecisions)
    own: bool = False
    given: Collection[str] = ()

    @classmethod
    def of(
        cls,
        before: Night,
        after: Night,
        history: Sequence[Night],
        decisions: NightDecisions | None = None,
        *,
        own: bool = False,
        promoted: Sequence[str] = (),
    ) -> RunComparison:
        """A comparison by what is learnt from ``history``, the oldest first."""
        decisions = decisions or NightDecisions()
        known = any(night.name == before.name for night in history)
        several = [*history] if known else [before, *history]
        return cls(
            before, after, KnownPast.of(several, decisions, promoted, after.day), decisions, own
        )

    @property
    def references(self) -> References:
        """The references as they are before the run."""
        return self.past.references

    @cached_property
    def _judgement(self) -> Judgement:
        return Judgement(self.references, self.after, self.before.cells.keys())

    @cached_property
    def cells(self) -> list[CellChange]:
        """The changes of all cells that either run could show something of, the worst first."""
        found = [self._own(one) if self.own else one for one in self._judgement.cells]
        asked = {name: {getattr(one, name) for one in self.after.cells} for name in self.given}
        found = [
            one
            for one in found
            if all(getattr(one.series, name) in values for name, values in asked.items())
        ]
        order = list(ChangeKind)
        return sorted(found, key=lambda one: (order.index(one.change), one.stays, one.series))

    @property
    def machine(self) -> Sequence[str]:
        """A line for each machine whose controls were not as ever."""
        return self._judgement.machine

    @property
    def counts(self) -> Mapping[str, int]:
        counted = Counter(str(one.change) for one in self.cells)
        return {str(change): counted[change] for change in ChangeKind if counted[change]}

    @property
    def regressed(self) -> bool:
        return any(one.regressed for one in self.cells)

    @property
    def unconfirmed(self) -> list[Series]:
        """The cells whose time has changed with this run, or is mended, and that have too few
        further times."""
        suspects = [one.series for one in self.cells if one.doubtful]
        return [one for one in suspects if len(self._races(self.after, one)) < rule.AGAIN]

    def _races(self, night: Night, series: Series) -> list[CellOutcome]:
        return [one for one in night.again.get(series, ()) if one.comparable]

    def _own(self, said: CellChange) -> CellChange:
        """The change of a cell, with what the times of the two runs themselves say where that is
        more."""
        old, new = self.before.cells.get(said.series), self.after.cells.get(said.series)
        if old is None or new is None or said.regressed or said.change is ChangeKind.NEW_FAILURE:
            return said
        if new.carried or not (old.comparable and new.comparable) or incomparable(old, new):
            return said
        if self._accepted_between(said.series):
            return said
        one = self.references.cells.get((said.series, new.environment.machine), TimeReference())
        level = one.levels.get(TimedPlace.of(new))
        statistic, common = self._judgement.statistic(new)
        first, *again = self._values(self.after, said.series, new, statistic)
        measure = TimeMeasure(
            statistics.median(self._values(self.before, said.series, old, statistic)),
            1,
            level.values("calm", statistic) if level else [],
            common,
        )
        change, moved = rule.judge(
            measure, first, lambda: again if len(again) >= rule.AGAIN else None
        )
        worse = list(ChangeKind).index(change) < list(ChangeKind).index(said.change)
        if not change.timed or not worse:
            return said
        told = f"{moved_by(moved)} {statistic} since {self.before.name}"
        told += f"; would have seen {math.expm1(measure.visible):.0%}"
        if change is ChangeKind.SUSPECT:
            told += "; not timed again"
        return replace(
            said,
            change=change,
            detail=told,
            moved=math.expm1(moved),
            cause=said.cause or Cause.UNEXPLAINED,
        )

    def _values(
        self, night: Night, series: Series, one: CellOutcome, statistic: Statistic
    ) -> list[float]:
        points = [point(each) for each in (one, *self._races(night, series))]
        return [v for each in points if each and (v := of(each, statistic)) is not None]

    def _accepted_between(self, series: Series) -> bool:
        """Whether a change since ``before`` is accepted."""
        names = [*self.past.names, self.after.name]
        late = names[names.index(self.before.name) + 1 :] if self.before.name in names else names
        return any(self.decisions.accepts(series, name, self.after.day) for name in late)
