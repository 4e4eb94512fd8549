"""A run against an earlier one: what became of each cell, and why it is said."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from portkern.records.record import Evidence
from portkern.regression import rule
from portkern.regression.decisions import Decisions
from portkern.regression.nights import Night
from portkern.regression.outcome import Outcome
from portkern.regression.rule import Change
from portkern.regression.series import Series, changes, incomparable

#: Of times: against eager's of the same rounds, or by themselves.
Statistic = Literal["against eager", "time"]
STATISTICS: tuple[Statistic, ...] = ("against eager", "time")
#: Where more of the unchanged cells are suspects, the machine was not what it was.
MOST_SUSPECTS = 0.25
#: Fewer suspects are none.
FEW_SUSPECTS = 4
#: Of a change, how much the kernel's own time must have moved with it.
OWN_SHARE = 0.5
#: Of so many unchanged cells of other operators a night's own pace is taken.
FEWEST_OTHERS = 4


@dataclass(frozen=True)
class CellChange:
    """``detail`` is one line. ``moved``: the relative change of the time that was compared, +0.2 is
    20 % more; ``visible``: the least that could have been seen. ``because``: what else changed.
    ``recent``: the figure that was compared, of earlier runs and this one, oldest first, as
    multiples of the earlier ones' median."""

    series: Series
    change: Change
    detail: str
    moved: float | None = None
    visible: float | None = None
    because: tuple[str, ...] = ()
    quarantined: str = ""
    recent: tuple[float, ...] = ()

    @property
    def regressed(self) -> bool:
        return self.change.regressed and not self.quarantined

    def __str__(self) -> str:
        why = f" ({', '.join(self.because)} changed)" if self.because else ""
        kept = f" ({self.quarantined})" if self.quarantined else ""
        return f"{self.series}: {self.change}: {self.detail}{why}{kept}"


@dataclass(frozen=True)
class Comparison:
    """``before`` is what coverage and verdicts are compared with; ``history``, oldest first, what
    tells changed times from noise; ``problems``: what of it could not be read."""

    before: Night
    after: Night
    history: Sequence[Night]
    problems: Sequence[str] = ()
    decisions: Decisions = field(default_factory=Decisions)
    _statistics: dict[tuple[str, str], tuple[Statistic, float]] = field(default_factory=dict)

    @cached_property
    def cells(self) -> list[CellChange]:
        """Of all cells that either run could show something of, the worst first."""
        found = list(filter(None, map(self._change, {**self.before.cells, **self.after.cells})))
        found = list(map(self._decided, self._calm(found)))
        order = list(Change)
        return sorted(found, key=lambda one: (order.index(one.change), one.series))

    @property
    def counts(self) -> Mapping[str, int]:
        counted = Counter(str(one.change) for one in self.cells)
        return {str(change): counted[change] for change in Change if counted[change]}

    @property
    def regressed(self) -> bool:
        return any(one.regressed for one in self.cells)

    @property
    def unconfirmed(self) -> list[Series]:
        """The suspects of which there are too few further times."""
        suspects = [one.series for one in self.cells if one.change is Change.SUSPECT]
        return [one for one in suspects if len(self._races(one)) < rule.AGAIN]

    def _races(self, series: Series) -> list[Outcome]:
        return [one for one in self.after.again.get(series, ()) if one.comparable]

    def _change(self, series: Series) -> CellChange | None:
        old, new = self.before.cells.get(series), self.after.cells.get(series)
        shown = [one for one in (old, new) if one is not None and (one.evidence or one.verdict.bad)]
        if not shown:
            return None
        because = tuple(changes(old, new)) if old and new else ()
        verdicts = _of_verdicts(old, new)
        if verdicts is not None:
            return CellChange(series, *verdicts, because=because)
        assert new is not None
        if new.timing is None:
            return CellChange(series, Change.UNCHANGED, f"{new.verdict}, {new.evidence}")
        return self._of_times(series, new, because)

    def _of_times(self, series: Series, new: Outcome, because: tuple[str, ...]) -> CellChange:
        earlier = {n.name: n.cells[series] for n in self.history if series in n.cells}
        timed = {name: one for name, one in earlier.items() if one.comparable}
        alike = {name: one for name, one in timed.items() if not incomparable(one, new)}
        if not new.comparable:
            assert new.timing is not None
            return CellChange(series, Change.NOT_COMPARABLE, new.timing.noisy, because=because)
        if timed and not alike:
            why = incomparable(list(timed.values())[-1], new)
            return CellChange(series, Change.NOT_COMPARABLE, why, because=because)
        statistic, common = self._statistic(new)
        value = log_time(new, statistic)
        if value is None:
            why = "eager was not timed beside it"
            return CellChange(series, Change.NOT_COMPARABLE, why, because=because)
        history = self._restarted(series, _by_name(alike, statistic), value)
        races = self._races(series)
        again = list(_values(races, statistic))
        if statistic == "against eager" and len(history) >= rule.LEAST:
            again = self._beside_usual_eager(series, alike, races, history)
        change, moved = rule.decide(
            history, value, common, lambda: again if len(again) >= rule.AGAIN else None
        )
        least = rule.visible(history, common) if len(history) >= rule.LEAST else None
        told = _told(change, moved, least, len(history), statistic)
        if least is None and len(earlier) > len(history):
            told = f"{told}; {len(earlier)} are there, {_unusable(earlier, timed)}"
        if change in (Change.SLOWER, Change.FASTER) and statistic == "against eager":
            own = self._own_move(series, alike, [new, *races])
            if own * moved <= 0 or abs(own) < OWN_SHARE * abs(moved):
                change = Change.SUSPECT
                told = f"{told}; eager moved, the kernel's own time by {math.expm1(own):+.0%}"
        if change in (Change.SLOWER, Change.FASTER) and not because:
            told += "; nothing that decides the result changed, so the machine did"
        relative = None if least is None else math.expm1(least)
        recent = _as_multiples(history[-rule.LONGEST :], value)
        return CellChange(series, change, told, math.expm1(moved), relative, because, recent=recent)

    def _beside_usual_eager(
        self,
        series: Series,
        alike: Mapping[str, Outcome],
        races: Sequence[Outcome],
        history: Sequence[float],
    ) -> list[float]:
        """Of ``races`` against eager the values, but of one in which eager took another time than
        in the night's others the kernel's own: a ratio to half of eager's speed says nothing."""
        own, against = _by_name(alike, "time"), _by_name(alike, "against eager")
        earlier = [own[name] - against[name] for name in against][-rule.LONGEST :]
        _, common = self._statistic(self.after.cells[series])
        width = max(rule.limit(earlier, common, rule.CERTAIN), rule.FLOOR)
        middle = statistics.median(history[-rule.LONGEST :])
        kernel = statistics.median([own[name] for name in against][-rule.LONGEST :])
        every = [self.after.cells[series], *races]
        times, ratios = list(_values(every, "time")), list(_values(every, "against eager"))
        eager = [time - ratio for time, ratio in zip(times, ratios, strict=True)]
        usual = statistics.median(eager)
        return [
            ratio if abs(beside - usual) <= width else middle + time - kernel
            for time, ratio, beside in zip(times[1:], ratios[1:], eager[1:], strict=True)
        ]

    def _own_move(
        self, series: Series, alike: Mapping[str, Outcome], races: Sequence[Outcome]
    ) -> float:
        """The logarithm of how much the kernel's own time moved, beside what those of other
        operators did that night."""
        pace = self._pace(series)
        before = {name: v - pace[name] for name, v in _by_name(alike, "time").items()}
        after = statistics.median(_values(races, "time")) - pace[self.after.name]
        return after - statistics.median(self._restarted(series, before, after)[-rule.LONGEST :])

    def _pace(self, like: Series) -> Mapping[str, float]:
        """By night, how far the times of other operators' unchanged kernels are from their median,
        on the same device; 0 where there are few."""
        new = self.after.cells[like]
        nights = (*self.history, self.after)
        found: dict[str, list[float]] = {night.name: [] for night in nights}
        for series, one in self.after.cells.items():
            old = self.before.cells.get(series)
            if series.op == like.op or old is None or old.source_hash != one.source_hash:
                continue
            if (one.venue, one.environment.device) != (new.venue, new.environment.device):
                continue
            known = {night.name: night.cells[series] for night in nights if series in night.cells}
            values = _by_name({n: o for n, o in known.items() if o.comparable}, "time")
            if len(values) == len(nights):
                usual = statistics.median(values.values())
                for name, value in values.items():
                    found[name].append(value - usual)
        few = len(found[self.after.name]) < FEWEST_OTHERS
        return {name: 0.0 if few else statistics.median(moved) for name, moved in found.items()}

    def _decided(self, one: CellChange) -> CellChange:
        if not one.change.regressed:
            return one
        why = self.decisions.quarantined(one.series, self.after.time[: len("2026-12-24")])
        return replace(one, quarantined=why)

    def _restarted(
        self, series: Series, values: Mapping[str, float], now: float
    ) -> Sequence[float]:
        """The values of earlier runs, by their names; those before an accepted change are moved to
        the median of those after it, so that they still tell how far runs differ."""
        runs = [night.name for night in (*self.history, self.after)]
        since = self.decisions.accepted_in(series, runs)
        if not since:
            return list(values.values())
        late = {*runs[runs.index(since) :]}
        old = [value for name, value in values.items() if name not in late]
        new = [value for name, value in values.items() if name in late]
        if not old:
            return new
        moved = statistics.median(new or [now]) - statistics.median(old)
        return [*(value + moved for value in old), *new]

    def _statistic(self, like: Outcome) -> tuple[Statistic, float]:
        """Of the two that which differed less from run to run, over the cells of the same venue on
        the same device: on a busy CPU eager's time moves with the kernel's, on a GPU it only adds
        noise of its own."""
        key = like.venue, like.environment.device
        if key not in self._statistics:
            found = [(self._spread(key, statistic), statistic) for statistic in STATISTICS]
            known = [one for one in found if one[0] > 0]
            common, statistic = min(known, default=(0.0, STATISTICS[0]), key=lambda one: one[0])
            self._statistics[key] = statistic, common
        return self._statistics[key]

    def _spread(self, key: tuple[str, str], statistic: Statistic) -> float:
        histories: dict[Series, list[float]] = {}
        for night in self.history:
            for series, record in night.cells.items():
                if (record.venue, record.environment.device) == key and record.comparable:
                    histories.setdefault(series, []).extend(_values([record], statistic))
        return rule.spread(list(histories.values()))

    def _calm(self, found: Sequence[CellChange]) -> Iterator[CellChange]:
        """Where too many cells that nobody changed are suspects, nothing is said of times."""
        moving = {Change.SUSPECT, Change.SLOWER, Change.FASTER}
        same = [one for one in found if one.moved is not None and _unchanged(one)]
        suspects = [one for one in same if one.change in moving]
        busy = len(suspects) >= max(FEW_SUSPECTS, MOST_SUSPECTS * len(same))
        for one in found:
            if busy and one.change in moving:
                why = (
                    f"{len(suspects)} of {len(same)} unchanged kernels moved: the machine was busy"
                )
                yield replace(one, change=Change.NOT_COMPARABLE, detail=why, because=())
            else:
                yield one


def _unchanged(one: CellChange) -> bool:
    return "the kernel's source" not in one.because


def _of_verdicts(old: Outcome | None, new: Outcome | None) -> tuple[Change, str] | None:
    """What verdicts and evidence alone decide; None where both passed alike."""
    if new is not None and new.verdict.bad:
        told = f"{new.verdict}: {new.detail.partition(chr(10))[0]}"
        failed = old is not None and old.verdict.bad
        return (Change.STILL_FAILING if failed else Change.NEW_FAILURE), told
    had = old.evidence if old is not None and not old.verdict.bad else Evidence.NONE
    has = new.evidence if new is not None else Evidence.NONE
    if has < had:
        why = (new.missing or new.detail) if new is not None else "it is not in the run"
        return Change.LOST, f"{had} → {has}: {why}"
    if old is not None and old.verdict.bad:
        return Change.FIXED, f"{old.verdict} → {has}"
    if has > had:
        return Change.GAINED, f"{had} → {has}"
    return None


def log_time(record: Outcome, statistic: Statistic) -> float | None:
    """Its logarithm, None where it was not taken. Of a low quantile: medians flip between two modes
    where a processor is shared."""
    if record.timing is None or record.timing.p20_us <= 0:
        return None
    if statistic == "time":
        return math.log(record.timing.p20_us)
    eager = record.baselines.get("eager")
    if eager is None or eager.p20_us <= 0:
        return None
    return math.log(record.timing.p20_us / eager.p20_us)


def _by_name(outcomes: Mapping[str, Outcome], statistic: Statistic) -> Mapping[str, float]:
    found = ((name, log_time(one, statistic)) for name, one in outcomes.items())
    return {name: value for name, value in found if value is not None}


def _as_multiples(history: Sequence[float], value: float) -> tuple[float, ...]:
    usual = statistics.median(history) if history else value
    return tuple(math.exp(one - usual) for one in (*history, value))


def _unusable(earlier: Mapping[str, Outcome], timed: Mapping[str, Outcome]) -> str:
    """Of some of the times, why they are no measure."""
    noisy = Counter(one.timing.noisy for one in earlier.values() if one.timing and one.timing.noisy)
    for why, count in noisy.most_common(1):
        return f"{count} of them noisy: {why}"
    untimed = len(earlier) - len(timed)
    return f"{untimed} of them without a time" if untimed else "the others are of other machines"


def _values(records: Iterable[Outcome], statistic: Statistic) -> Iterator[float]:
    for record in records:
        value = log_time(record, statistic)
        if value is not None:
            yield value


def _told(
    change: Change, moved: float, least: float | None, runs: int, statistic: Statistic
) -> str:
    if least is None:
        return f"{runs} earlier times of this machine to compare with, expected {rule.LEAST}"
    seen = f"would have seen {math.expm1(least):.0%}"
    if change is Change.UNCHANGED:
        return f"{math.expm1(moved):+.0%} {statistic}; {seen}"
    if change is Change.TOO_NOISY:
        return f"only {math.expm1(least):.0%} would have been seen"
    told = f"{math.expm1(moved):+.0%} {statistic}, against the median of {runs} runs; {seen}"
    return told if change is not Change.SUSPECT else f"{told}; not timed again"
