"""One night by the references: what became of each cell, of which cause, and since when."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from portkern.records.record import Evidence
from portkern.regression import counts, rule
from portkern.regression.cell_change import Cause, CellChange, counted
from portkern.regression.controls import CALIBRATION, Controls, MachinePace, tool_of
from portkern.regression.nights import Night
from portkern.regression.outcome import CellOutcome
from portkern.regression.reference import (
    IN_A_ROW,
    Key,
    Learning,
    Learnt,
    References,
    TimeLevel,
    TimeReference,
    Trouble,
    spreads,
    torch_of,
)
from portkern.regression.rule import ChangeKind, TimeMeasure
from portkern.regression.series import CODE, Series, incomparable
from portkern.regression.timed import Statistic, TimedPlace, TimedPoint, of, point

#: The share of a change by which the kernel's own time must have moved with it.
OWN_SHARE = 0.5
#: The share of a slowdown that may be left in the median of a night's races, and in each, if it is
#: mended.
LEFT, LEFT_IN_EACH = 1 / 3, 1 / 2
_SOURCE = "the kernel's source"
_EVALUATOR = "the operator, its options or portkern's evaluator"


@dataclass(frozen=True)
class _Time:
    """The judgement of a time."""

    change: ChangeKind
    detail: str
    moved: float | None = None
    visible: float | None = None
    recent: tuple[float, ...] = ()
    learnt: Learning = ""
    cause: Cause | None = None
    eager_by: float = 0.0


class Judgement:
    """``before``: cells of the run that it is compared with are missed whatever the references
    know. ``today``: the day by which changes are accepted, where it is a later one."""

    def __init__(
        self,
        references: References,
        night: Night,
        before: Collection[Series] = (),
        today: str = "",
    ) -> None:
        self.references, self.night, self._before = references, night, before
        self.today = today or night.day
        self.controls = Controls(references, night)
        self._statistics: dict[tuple[str, str], tuple[Statistic, float]] = {}

    @cached_property
    def learnt(self) -> Mapping[Key, Learnt]:
        """The judgement of each cell that the night or a reference could show something of."""
        found: dict[Key, Learnt] = {}
        for series, new in self.night.cells.items():
            key = series, new.environment.machine
            one = self._of_cell(key, new)
            if one is not None:
                found[key] = one
        for key in self.references.missing(self.night, self._before):
            found[key] = Learnt(self._absent(key))
        return self._by_peers(found)

    @property
    def cells(self) -> list[CellChange]:
        return [one.said for one in self.learnt.values()]

    @cached_property
    def machine(self) -> list[str]:
        """A line for each machine and device whose controls were not as ever, for each calibration
        kernel, and for each toolchain that makes other machine code of the same sources."""
        busy = [
            f"{place}: the machine was busy or is another: {pace}"
            for place, pace in self.controls.places()
            if pace.busy
        ]
        return [*busy, *self.controls.calibrations, *self._recompiled()]

    def _recompiled(self) -> Iterator[str]:
        found: dict[tuple[str, str], int] = {}
        for (series, _), one in self.learnt.items():
            if CODE in one.said.because:
                why = ", ".join(what for what in one.said.because if what != CODE)
                key = tool_of(series), why or "nothing else that is recorded changed"
                found[key] = found.get(key, 0) + 1
        for (tool, why), cells in sorted(found.items()):
            told = f"other machine code of the same source in {cells} cells"
            yield f"{tool}: toolchain: {told}: {why}"

    # ---- a cell

    def _of_cell(self, key: Key, new: CellOutcome) -> Learnt | None:
        series, machine = key
        known = self.references.cells.get(key)
        one = known or TimeReference()
        if not (new.evidence or new.verdict.bad or one.evidence or one.trouble):
            return self._gone_elsewhere(series, machine, new)
        because = tuple(one.changed(new))
        told = _of_verdicts(one, new) or self._first_here(series, machine, known, new)
        told = told or _of_counts(one, new)
        time = None
        if new.timing is not None and not new.verdict.bad:
            time = self._of_time(series, machine, one, new, explained=bool(because))
        if told is None or (time is not None and _matters(told[0], time)):
            if time is None:
                told = ChangeKind.UNCHANGED, f"{new.verdict}, {new.evidence}"
                return Learnt(self._named(one, CellChange(series, *told, because=because), new))
            said = CellChange(
                series,
                time.change,
                time.detail,
                None if time.moved is None else math.expm1(time.moved),
                None if time.visible is None else math.expm1(time.visible),
                because,
                recent=time.recent,
                cause=time.cause,
            )
        else:
            said = CellChange(series, *told, because=because)
        said = self._named(one, said, new)
        return Learnt(said, time.learnt if time else "", time.eager_by if time else 0.0)

    def _first_here(
        self, series: Series, machine: str, known: TimeReference | None, new: CellOutcome
    ) -> tuple[ChangeKind, str] | None:
        """The change that a cell's first run on a machine shows, with its words; None for any
        other run."""
        if known is not None:
            return None
        others = list(self.references.elsewhere(series, machine))
        best = max((one.evidence for one in others), default=Evidence.NONE)
        if not others and new.evidence:
            return ChangeKind.GAINED, f"none → {new.evidence}"
        if new.evidence < min(best, Evidence.EMULATED):
            return ChangeKind.LOST, f"{best} → {new.evidence}: {new.missing or new.detail}"
        return None

    def _gone_elsewhere(self, series: Series, machine: str, new: CellOutcome) -> Learnt | None:
        """The judgement of a cell that this machine never showed and another did; None for other
        cells."""
        others = list(self.references.elsewhere(series, machine))
        best = max((one.evidence for one in others), default=Evidence.NONE)
        if not best or (series, machine) in self.references.cells:
            return None
        if best <= Evidence.EMULATED:  # which needs no hardware
            told = f"{best} → {new.evidence}: {new.missing or new.detail}"
            change, cause = ChangeKind.LOST, Cause.TOOLCHAIN
        else:
            good = next((one.good for one in others if one.good), None)
            told = incomparable(good, new) if good else "another machine"
            change, cause = ChangeKind.NOT_COMPARABLE, Cause.MACHINE
        return Learnt(
            self._named(TimeReference(), CellChange(series, change, told, cause=cause), new)
        )

    def _absent(self, key: Key) -> CellChange:
        series, _ = key
        one = self.references.cells[key]
        told = f"{one.evidence} → none: it is not in the run"
        said = CellChange(series, ChangeKind.LOST, told, cause=Cause.UNEXPLAINED)
        said = replace(said, since=one.absent or self.night.name, nights=one.absences + 1)
        if one.trouble and one.trouble.change is ChangeKind.LOST:
            nights = one.trouble.nights + said.nights
            said = replace(said, since=one.trouble.since, nights=nights)
        return self._excused(replace(said, last_good=one.last_good))

    def _named(self, one: TimeReference, said: CellChange, new: CellOutcome) -> CellChange:
        """The change with its cause, since when it is so, and what people decided."""
        wrong = said.change.regressed or said.change is ChangeKind.STILL_FAILING
        trouble = one.trouble
        if wrong and trouble and trouble.goes_on(said):
            said = replace(
                said,
                since=trouble.since,
                nights=trouble.nights + 1,
                last_good=trouble.last_good,
                cause=trouble.cause or said.cause,
                because=trouble.because or said.because,
            )
        elif wrong:
            first, nights = self.night.name, 1
            if said.change is ChangeKind.SLOWER and one.suspected > 0 and not trouble:
                first, nights = one.suspected_since, one.suspected + 1
            said = replace(said, since=first, nights=nights, last_good=one.last_good)
        if (wrong or said.change.timed) and said.cause is None:
            pace = self.controls.beside(
                said.series, new.environment.machine, new.environment.device
            )
            said = _caused(said, new, pace)
        return self._excused(said)

    def _excused(self, said: CellChange) -> CellChange:
        if not (said.change.regressed or said.change is ChangeKind.STILL_FAILING):
            return said
        why = self.references.decisions.accepts(said.series, self.night.name, self.today)
        if why:
            kept = ChangeKind.STILL_FAILING if said.change in _FAILING else ChangeKind.UNCHANGED
            told = f"{said.detail}; accepted: {why}"
            return replace(said, change=kept, detail=told, since="", nights=0, last_good="")
        quarantined = self.references.decisions.quarantined(said.series, self.night.day)
        return replace(said, quarantined=quarantined)

    # ---- times

    def _of_time(
        self, series: Series, machine: str, one: TimeReference, new: CellOutcome, *, explained: bool
    ) -> _Time:
        if new.carried:
            told = f"carried over from {new.carried}, as nothing that decides it changed"
            time = _Time(ChangeKind.UNCHANGED, told)
        else:
            time = self._judged(series, machine, one, new, explained=explained)
        trouble = one.slower
        if trouble is None or time.change.timed:
            return time
        if time.learnt == "calm":
            told = f"{time.detail}; slower since {trouble.since}, {counted(trouble.nights)}"
            return replace(time, change=ChangeKind.FIXED, detail=told)
        told = f"{math.expm1(trouble.moved):+.0%}, and not seen to be mended: {time.detail}"
        return replace(time, change=ChangeKind.SLOWER, detail=told, moved=trouble.moved, learnt="")

    def _judged(
        self, series: Series, machine: str, one: TimeReference, new: CellOutcome, *, explained: bool
    ) -> _Time:
        """``explained``: something changed that may be the reason for another time."""
        assert new.timing is not None
        now, level = point(new), one.levels.get(TimedPlace.of(new))
        if now is None:
            return _Time(ChangeKind.NOT_COMPARABLE, "its time is not a number above 0")
        if level is None or not level.first:
            return self._elsewhere(series, machine, one, new, now)
        pace = self.controls.beside(series, machine, new.environment.device)
        statistic, common = self.statistic(new)
        narrow, value = level.measure(statistic, common), of(now, statistic)
        if narrow is None or value is None:
            return _Time(ChangeKind.NOT_COMPARABLE, "eager was not timed beside it")
        if not explained:
            narrow = replace(narrow, alpha=rule.UNEXPLAINED)
        wide = replace(narrow, wider=pace.wider) if pace.wider else narrow
        # A ratio to eager has the machine's pace in both; a driver's doing is not the machine's
        shared = 0.0
        if statistic is Statistic.TIME and not _driver_changed(one, new):
            shared = pace.moved
        moved = value - shared - wide.middle
        recent = _as_multiples(level.values("recent", statistic), value, wide.middle)
        if not new.comparable and abs(moved) <= max(rule.BLATANT, wide.visible):
            return _Time(ChangeKind.NOT_COMPARABLE, new.timing.noisy, recent=recent)
        again = self._again(series, one, level, statistic, now)
        change, moved = rule.judge(
            wide, value - shared, lambda: again if len(again) >= rule.AGAIN else None
        )
        told = _told(change, moved, wide, statistic, level)
        if change is ChangeKind.INSUFFICIENT:
            told += one.unusable(len(wide.calm))
        time = _Time(change, told, moved, wide.visible, recent)
        if pace.wider and not change.timed and abs(moved) > narrow.visible:
            busy = f"{moved_by(moved)} {statistic}, and the machine was busy: {pace}"
            return replace(time, change=ChangeKind.NOT_COMPARABLE, detail=busy, cause=Cause.MACHINE)
        if not new.comparable:
            told = f"{told}; {new.timing.noisy}"
            change = change if len(again) >= rule.AGAIN or not change.timed else ChangeKind.SUSPECT
            return replace(time, change=change, detail=told)
        races = [value - shared - wide.middle, *(each - wide.middle for each in again)]
        if one.slower and not _mended(one.slower, races):
            moved = statistics.median(races)
            told = _told(ChangeKind.SLOWER, moved, wide, statistic, level)
            return replace(time, change=ChangeKind.SLOWER, detail=told, moved=moved, learnt="worse")
        return self._believed(one, level, now, pace, statistic, time)

    def _believed(
        self,
        one: TimeReference,
        level: TimeLevel,
        now: TimedPoint,
        pace: MachinePace,
        statistic: Statistic,
        time: _Time,
    ) -> _Time:
        """The time's change as it is said in the end, and as it is learnt."""
        moved = time.moved or 0.0
        if statistic is Statistic.AGAINST_EAGER and time.change.timed:
            own = now.time - pace.middle - statistics.median(level.values("first", Statistic.TIME))
            if own * moved <= 0 or abs(own) < OWN_SHARE * abs(moved):
                told = f"{time.detail}; eager moved, the kernel's own time by {moved_by(own)}"
                changed = replace(time, change=ChangeKind.SUSPECT, detail=told, cause=Cause.METHOD)
                return replace(changed, eager_by=own - moved)
        if time.change is ChangeKind.SUSPECT and abs(one.suspected) >= IN_A_ROW - 1:
            if one.suspected * moved > 0:
                nights = f"{abs(one.suspected) + 1} nights in a row"
                told = time.detail.removesuffix("; not timed again") + f", {nights}"
                change = ChangeKind.SLOWER if moved > 0 else ChangeKind.FASTER
                time = replace(time, change=change, detail=told)
        if time.change.timed:
            return replace(time, learnt="worse" if moved > 0 else "better")
        return replace(time, learnt="calm")

    def _elsewhere(
        self, series: Series, machine: str, one: TimeReference, new: CellOutcome, now: TimedPoint
    ) -> _Time:
        """The judgement of a time in a place where the cell has none yet."""
        assert new.timing is not None
        learnt: Learning = "calm" if new.comparable else ""
        good = one.good
        if good is None or good.timing is None:
            elsewhere = self.references.elsewhere(series, machine)
            good = next((other.good for other in elsewhere if other.good), None)
        if good is not None and good.timing is not None:
            why = incomparable(good, new)
            method = good.environment == new.environment or good.venue == new.venue
            cause = Cause.METHOD if method and "machine" not in why else Cause.MACHINE
            time = _Time(ChangeKind.NOT_COMPARABLE, why or "no time", learnt=learnt, cause=cause)
            before = point(good)
            moved = now.time - before.time if before else 0.0
            if cause is Cause.METHOD and abs(moved) > rule.ALWAYS:
                told = f"{moved_by(moved)} time; {why}"
                return replace(time, change=ChangeKind.SUSPECT, detail=told, moved=moved)
            return time
        if not new.comparable:
            return _Time(ChangeKind.NOT_COMPARABLE, new.timing.noisy)
        told = f"0 earlier times of this machine to compare with, expected {rule.LEAST}"
        return _Time(ChangeKind.INSUFFICIENT, told, learnt=learnt)

    def _again(
        self,
        series: Series,
        known: TimeReference,
        level: TimeLevel,
        statistic: Statistic,
        now: TimedPoint,
    ) -> list[float]:
        """The values of further races. Where eager took another time than usual, the machine's
        share is left out: a ratio becomes the kernel's own change against the usual ratio, and a
        time loses what eager moved by, unless that is another torch's eager."""
        races = [one for one in self.night.again.get(series, ()) if one.comparable]
        points = [one for race in races if (one := point(race)) is not None]
        if not points:
            return []
        eager = [one.eager for one in level.first if one.eager is not None]
        other_torch = known.torch not in ("", torch_of(self.night.cells[series]))
        if not eager or now.eager is None or (other_torch and statistic is Statistic.TIME):
            return [value for one in points if (value := of(one, statistic)) is not None]
        usual = statistics.median(eager)
        calm = [one.eager for one in level.calm if one.eager is not None]
        width = rule.FLOOR
        if len(calm) > 1:
            width = max(width, rule.limit(calm, math.sqrt(rule.variance(calm)), rule.CERTAIN))
        tonight = statistics.median(one.eager for one in (now, *points) if one.eager is not None)
        middle = statistics.median(level.values("first", Statistic.AGAINST_EAGER))
        kernel = statistics.median(one.time for one in level.first if one.eager is not None)
        values = []
        for one in points:
            if one.eager is None:
                continue
            if statistic is Statistic.AGAINST_EAGER:
                odd = abs(one.eager - tonight) > width
                values.append(middle + one.time - kernel if odd else one.time - one.eager)
            else:
                off = one.eager - usual
                values.append(one.time - (off if abs(off) > width else 0.0))
        return values

    def statistic(self, like: CellOutcome) -> tuple[Statistic, float]:
        """The one of the two statistics that differed less from run to run, over the cells of
        the same venue on the same device, and its deviation: on a busy CPU eager's time moves
        with the kernel's, on a GPU it only adds noise of its own."""
        place = like.venue, like.environment.device
        if place not in self._statistics:
            levels = [
                level
                for (series, machine), one in self.references.cells.items()
                # calibration kernels, of which the least counts, are steadier than any cell
                if machine == like.environment.machine and series.variant != CALIBRATION
                for at, level in one.levels.items()
                if (at.venue, at.device) == place
            ]
            found = [(spreads(levels, statistic), statistic) for statistic in Statistic]
            known = [one for one in found if one[0] > 0]
            beside = any(level.values("first", Statistic.AGAINST_EAGER) for level in levels)
            fallback = 0.0, Statistic.AGAINST_EAGER if beside or not levels else Statistic.TIME
            common, statistic = min(known, default=fallback, key=lambda one: one[0])
            self._statistics[place] = statistic, common
        return self._statistics[place]

    # ---- causes

    def _by_peers(self, found: dict[Key, Learnt]) -> dict[Key, Learnt]:
        """The change with its cause: where both a kernel and its toolchain changed, kernels of the
        toolchain that are as they were say which of them it was."""
        moved: Counter[str] = Counter()
        same: Counter[str] = Counter()
        for key, one in found.items():
            said = one.said
            if said.moved is None or not _tools(said) or _SOURCE in said.because:
                continue
            same[tool_of(key[0])] += 1
            moved[tool_of(key[0])] += said.change is ChangeKind.SLOWER
        for key, one in found.items():
            tool = tool_of(key[0])
            both = one.said.cause is Cause.REGRESSION and _tools(one.said)
            if both and not one.said.stays and moved[tool] > same[tool] / 2:
                found[key] = one._replace(said=replace(one.said, cause=Cause.TOOLCHAIN))
        return found


def _mended(trouble: Trouble, races: Sequence[float]) -> bool:
    return (
        statistics.median(races) <= LEFT * trouble.moved
        and max(races) <= LEFT_IN_EACH * trouble.moved
    )


_FAILING = (ChangeKind.NEW_FAILURE, ChangeKind.STILL_FAILING)


def _matters(change: ChangeKind, time: _Time) -> bool:
    """Whether the time is worse news than what became of the verdict."""
    return time.change in (ChangeKind.SLOWER, ChangeKind.SUSPECT) and change in (
        ChangeKind.FIXED,
        ChangeKind.GAINED,
    )


def _of_verdicts(one: TimeReference, new: CellOutcome) -> tuple[ChangeKind, str] | None:
    """The change that verdicts and evidence alone decide, with its words; None where all is as
    it should be."""
    trouble = one.trouble
    if new.verdict.bad:
        told = f"{new.verdict}: {new.detail.partition(chr(10))[0]}"
        never = one.by != "rule" and not one.evidence
        failed = trouble is not None and trouble.change in _FAILING
        return (ChangeKind.STILL_FAILING if failed or never else ChangeKind.NEW_FAILURE), told
    if new.evidence < one.evidence:
        return ChangeKind.LOST, f"{one.evidence} → {new.evidence}: {new.missing or new.detail}"
    if trouble is not None and trouble.change in _FAILING:
        told = f"{new.verdict}, {new.evidence}; it failed since {trouble.since}"
        return ChangeKind.FIXED, f"{told}, {counted(trouble.nights)}"
    if trouble is not None and trouble.change is ChangeKind.LOST:
        told = f"{new.evidence} again; lost since {trouble.since}, {counted(trouble.nights)}"
        return ChangeKind.GAINED, told
    if new.evidence > one.evidence and one.seen:
        return ChangeKind.GAINED, f"{one.evidence} → {new.evidence}"
    return None


def _of_counts(one: TimeReference, new: CellOutcome) -> tuple[ChangeKind, str] | None:
    """The change that the counts of its build decide for a kernel without a time, with its
    words."""
    if new.timing is not None:
        return None
    more = counts.more(one.counts, new.counts)
    if more:
        return ChangeKind.HEAVIER, ", ".join(more)
    trouble = one.trouble
    if trouble is not None and trouble.change is ChangeKind.HEAVIER:
        return ChangeKind.FIXED, f"heavier since {trouble.since}, {counted(trouble.nights)}"
    return None


def _caused(said: CellChange, new: CellOutcome, pace: MachinePace) -> CellChange:
    if _SOURCE in said.because:
        cause = Cause.REGRESSION
    elif _tools(said):
        cause = Cause.TOOLCHAIN
    elif said.because:
        cause = Cause.METHOD
    elif said.change is ChangeKind.LOST and new.verdict.value == "unavailable":
        cause = Cause.TOOLCHAIN
    else:
        cause = Cause.UNEXPLAINED
        if said.change.timed:
            known = f"the controls did not: {pace}" if pace.known else "there are too few controls"
            told = f"{said.detail}; nothing that is recorded changed, and {known}"
            said = replace(said, detail=told)
    return replace(said, cause=cause)


def _tools(said: CellChange) -> bool:
    """Whether a toolchain or driver changed."""
    method = (_SOURCE, _EVALUATOR)
    return any(one not in method and not one.startswith("portkern ") for one in said.because)


def _driver_changed(one: TimeReference, new: CellOutcome) -> bool:
    return bool(one.goods) and one.goods[0].environment.driver != new.environment.driver


def _as_multiples(recent: Sequence[float], value: float, middle: float) -> tuple[float, ...]:
    return tuple(math.exp(one - middle) for one in (*recent, value))


def moved_by(moved: float) -> str:
    """``+20%`` of a logarithm."""
    return f"{math.expm1(moved):+.0%}"


def _told(
    change: ChangeKind, moved: float, measure: TimeMeasure, statistic: Statistic, level: TimeLevel
) -> str:
    if change is ChangeKind.INSUFFICIENT:
        runs = len(measure.calm)
        return f"{runs} earlier times of this machine to compare with, expected {rule.LEAST}"
    seen = f"would have seen {math.expm1(measure.visible):.0%}"
    if change is ChangeKind.UNCHANGED:
        return f"{moved_by(moved)} {statistic}; {seen}"
    if change is ChangeKind.TOO_NOISY:
        return f"only {math.expm1(measure.visible):.0%} would have been seen"
    by = "" if level.by == "rule" else f", {level.by}"
    against = f"the median of {measure.runs} runs since {level.since}{by}"
    told = f"{moved_by(moved)} {statistic}, against {against}; {seen}"
    return told if change is not ChangeKind.SUSPECT else f"{told}; not timed again"
