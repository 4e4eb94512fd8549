"""References: the coverage that each cell should have and its times in each place, learnt from run
to run.

A reference is made by the rule below or by people, never by what a night happens to show:

- Its times are the first :data:`MOST` that were as they should be, and stay; later ones say only
  how far runs differ. So neither a slower kernel nor a slow drift becomes the measure.
- It is made anew where times are better for good (confirmed, with a cause that is known, or on
  :data:`IN_A_ROW` nights), from a run that people promoted, and from one whose
  change they accepted.
- What is wrong (:class:`Trouble`) stays until a night shows that it is mended.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from portkern.records.record import Counts, Evidence
from portkern.regression import counts, rule
from portkern.regression.cell_change import Cause, CellChange
from portkern.regression.decisions import NightDecisions
from portkern.regression.nights import Night
from portkern.regression.outcome import CellOutcome
from portkern.regression.rule import ChangeKind, TimeMeasure
from portkern.regression.series import Series, changes, moved_on, same_code
from portkern.regression.timed import Statistic, TimedPlace, TimedPoint, point

#: Times that a reference is the median of; with fewer its own error is an alarm now and then, which
#: stays.
MOST = 20
#: Nights on which a cell was seen before a run without it is short of it, and on which a cell is
#: faster, or a suspect, before that is believed without further races.
IN_A_ROW = 3


@dataclass
class TimeLevel:
    """The level of a cell's times in one place: ``first`` are the times that the reference is
    made of, ``calm`` the newest that were as they should be, and ``recent`` the newest whatever
    they were. ``by`` is the rule or the person that set it, and ``since`` the run from which it
    holds."""

    since: str
    by: str = "rule"
    first: list[TimedPoint] = field(default_factory=list)
    calm: list[TimedPoint] = field(default_factory=list)
    recent: list[TimedPoint] = field(default_factory=list)

    def values(self, kind: Literal["first", "calm", "recent"], statistic: Statistic) -> list[float]:
        points: list[TimedPoint] = getattr(self, kind)
        if statistic is Statistic.TIME:
            return [one.time for one in points]
        return [one.time - one.eager for one in points if one.eager is not None]

    def measure(self, statistic: Statistic, common: float) -> TimeMeasure | None:
        """The measure of a time against its reference; None where there is no such time."""
        first = self.values("first", statistic)
        if not first:
            return None
        calm = self.values("calm", statistic)
        return TimeMeasure(statistics.median(first), len(first), calm, common)

    def keep(self, one: TimedPoint) -> None:
        """Adds the time of a night which was as it should be."""
        if len(self.first) < MOST:
            self.first.append(one)
        self.calm = [*self.calm, one][-rule.LONGEST :]

    def restart(self, points: Collection[TimedPoint], since: str, by: str) -> None:
        """Begins anew from these times; how far runs differ stays known."""
        fresh = TimeLevel(since, by, first=list(points))
        moved = {}
        for statistic in Statistic:
            old, new = self.values("first", statistic), fresh.values("first", statistic)
            moved[statistic] = statistics.median(new) - statistics.median(old) if old and new else 0
        eager = moved[Statistic.TIME] - moved[Statistic.AGAINST_EAGER]
        self.calm = [one.shifted(moved[Statistic.TIME], eager) for one in self.calm]
        self.calm = [*self.calm, *points][-rule.LONGEST :]
        self.since, self.by, self.first = since, by, list(points)

    def eager_moved(self, by: float) -> None:
        """Moves eager's times by ``by``: what kernels are compared with is another from now on."""
        self.first = [one.shifted(0.0, by) for one in self.first]
        self.calm = [one.shifted(0.0, by) for one in self.calm]


@dataclass(frozen=True)
class Trouble:
    """``moved`` is a logarithm, of a time; ``last_good`` is '' where no run ever was."""

    change: ChangeKind
    since: str
    nights: int
    last_good: str
    cause: Cause | None = None
    because: tuple[str, ...] = ()
    moved: float = 0.0

    def goes_on(self, said: CellChange) -> bool:
        """Whether it is what is said now: of one kind, and no further slowdown on top of it."""
        if said.change is ChangeKind.SLOWER and self.change is ChangeKind.SLOWER:
            further = rule.log_of(said.moved) - self.moved
            return further <= max(rule.log_of(said.visible), rule.FLOOR)
        failing = (ChangeKind.NEW_FAILURE, ChangeKind.STILL_FAILING)
        return said.change is self.change or (said.change in failing and self.change in failing)


@dataclass
class TimeReference:
    """The reference of a cell on one class of machine. ``since`` and ``by`` are of its coverage;
    ``goods`` are the newest outcomes that were as it should be, the last of the run
    ``last_good``; ``absent`` is the first of the newest runs, ``absences`` in number, that did
    not have it. ``torch`` is the version that eager's times are of, and
    ``eager_moves`` by how much they were more with another one on nights in a row, as logarithms.
    ``suspected`` and ``better`` are of nights in a row: how many, below 0 where the
    time was less, and the times."""

    evidence: Evidence = Evidence.NONE
    since: str = ""
    by: str = "rule"
    levels: dict[TimedPlace, TimeLevel] = field(default_factory=dict)
    goods: list[CellOutcome] = field(default_factory=list)
    last_good: str = ""
    trouble: Trouble | None = None
    seen: int = 0
    absent: str = ""
    absences: int = 0
    suspected: int = 0
    better: list[TimedPoint] = field(default_factory=list)
    eager_elsewhere: int = 0
    suspected_since: str = ""
    timed: int = 0
    noisy: Counter[str] = field(default_factory=Counter)
    counts: Counts = field(default_factory=Counts)
    torch: str = ""
    eager_moves: list[float] = field(default_factory=list)

    @property
    def slower(self) -> Trouble | None:
        """The trouble of the cell, if that is its time."""
        slow = self.trouble is not None and self.trouble.change is ChangeKind.SLOWER
        return self.trouble if slow else None

    @property
    def good(self) -> CellOutcome | None:
        return self.goods[-1] if self.goods else None

    def changed(self, new: CellOutcome) -> list[str]:
        """The differences from the last good run; if there are none, from the first of the
        :data:`IN_A_ROW` last: not every night shows what a change did."""
        for one in (self.goods[-1:], self.goods[:1]):
            if one and (found := changes(one[0], new)):
                return found
        return []

    def unusable(self, usable: int) -> str:
        """How many earlier times there are, and how many of them are not a measure for the most
        frequent reason."""
        if self.timed <= usable:
            return ""
        for why, count in self.noisy.most_common(1):
            return f"; {self.timed} are there, {count} of them noisy: {why}"
        return f"; {self.timed} are there, the others are of other places"

    def accept(self, new: CellOutcome, now: TimedPoint | None, run: str, by: str) -> None:
        """Accepts a cell as it is in ``run``; after a slowdown, as it was since that began."""
        level = self.levels.setdefault(TimedPlace.of(new), TimeLevel(run)) if now else None
        if level and now and new.comparable:
            trouble = self.trouble
            slow = trouble.nights if trouble and trouble.change is ChangeKind.SLOWER else 0
            since = level.recent[len(level.recent) - slow :]
            if torch_of(new) not in ("", self.torch):
                since = [one._replace(eager=None) for one in since]
            level.restart([*since, now][-rule.LONGEST :], run, by)
        self.evidence = Evidence.NONE if new.verdict.bad else new.evidence
        self.since, self.by, self.trouble, self.suspected, self.better = run, by, None, 0, []
        self.goods, self.last_good = ([], "") if new.verdict.bad else ([new], run)
        self.counts = counts.least(new.counts, new.counts)
        self.torch, self.eager_moves = torch_of(new), []


#: What a night's time is to a reference: as it should be, or not; '' where it shows nothing.
Learning = Literal["calm", "better", "worse", ""]
#: A cell on a class of machine.
Key = tuple[Series, str]


class Learnt(NamedTuple):
    """The judgement of a night's cell: what is said of it and learnt of its time; ``eager_by``
    is how far eager alone moved, as a logarithm."""

    said: CellChange
    time: Learning = ""
    eager_by: float = 0.0


class References:
    """References by cell and class of machine. ``promoted``: runs whose cells are as they are to
    be."""

    def __init__(self, decisions: NightDecisions, promoted: Collection[str] = ()) -> None:
        self.cells: dict[Key, TimeReference] = {}
        self.decisions, self.promoted = decisions, set(promoted)
        self._machines: dict[str, None] = {}

    def elsewhere(self, series: Series, machine: str) -> Iterator[TimeReference]:
        """The same cell on other machines."""
        for other in self._machines:
            if other != machine and (series, other) in self.cells:
                yield self.cells[series, other]

    def add(self, key: Key, one: TimeReference) -> TimeReference:
        """The one that is known of the cell already, else this one from now on."""
        self._machines[key[1]] = None
        return self.cells.setdefault(key, one)

    def missing(self, night: Night, before: Collection[Series] = ()) -> Iterator[Key]:
        """Cells that should be in the run and are not: seen on :data:`IN_A_ROW` nights on one of
        its machines, or in the run ``before`` that it is compared with."""
        here = {one.environment.machine for one in night.cells.values()}
        for (series, machine), one in self.cells.items():
            known = one.seen >= IN_A_ROW or series in before
            if series not in night.cells and known and (machine in here or not here):
                if one.evidence or one.trouble:
                    yield series, machine

    def learn(self, night: Night, found: Mapping[Key, Learnt], day: str) -> None:
        """``found`` is what was said of all cells of the night."""
        for series, new in night.cells.items():
            key = series, new.environment.machine
            one = self.add(key, TimeReference())
            one.absent, one.absences, one.seen = "", 0, one.seen + 1
            accepted = self.decisions.accepts(series, night.name, day)
            if accepted or (night.name in self.promoted and not new.verdict.bad):
                by = f"accepted: {accepted}" if accepted else "promoted"
                one.accept(new, _middle(night, series), night.name, by)
            else:
                _learn(one, night.name, new, _middle(night, series), found.get(key))
        for series, races in night.calibrated():
            self._calibrate(night.name, series, races)
        for key in list(self.missing(night, self._all())):
            one = self.cells[key]
            one.absent, one.absences = one.absent or night.name, one.absences + 1
            if self.decisions.accepts(key[0], night.name, day):
                del self.cells[key]

    def _calibrate(self, run: str, series: Series, races: Sequence[CellOutcome]) -> None:
        """Learns the time of a calibration kernel, of which no evidence is expected; it begins anew
        where other machine code of it is run."""
        now, new = calibrated([one for one in races if one.comparable]), races[-1]
        if now is None:
            return
        one = self.add((series, new.environment.machine), TimeReference())
        level = one.levels.setdefault(TimedPlace.of(new), TimeLevel(run))
        if one.good is not None and set_apart(one.good, new):
            level.restart([now], run, "rule: its machine code or driver changed")
        else:
            level.keep(now)
        one.goods = [new]

    def _all(self) -> set[Series]:
        return {series for series, _ in self.cells}


def calibrated(races: Sequence[CellOutcome]) -> TimedPoint | None:
    """The least of a night's races of a calibration kernel, which no odd minute makes; None where
    none has a time."""
    times = [each.time for one in races if (each := point(one))]
    return TimedPoint(min(times), None) if times else None


def set_apart(before: CellOutcome, after: CellOutcome) -> list[str]:
    """The changes by which two times of a calibration kernel are not of one thing. Torch, which it
    does not use, is none, nor are compilers that made the same machine code."""
    said = before.source_hash, before.environment, after.source_hash, after.environment
    found = moved_on(*said, compilers=not same_code(before, after))
    return [what for what in found if not what.startswith("torch ")]


def _middle(night: Night, series: Series) -> TimedPoint | None:
    """The median of the cell's races that night, None where it was not timed."""
    new = night.cells[series]
    races = [new, *(race for race in night.again.get(series, ()) if race.comparable)]
    points = [one for race in races if (one := point(race)) is not None]
    if new.timing is None or not points:
        return None
    eager = [one.eager for one in points if one.eager is not None]
    beside = statistics.median(eager) if eager else None
    return TimedPoint(statistics.median(one.time for one in points), beside)


def _learn(
    one: TimeReference, run: str, new: CellOutcome, now: TimedPoint | None, learnt: Learnt | None
) -> None:
    said = learnt.said if learnt else None
    if said is not None and (said.change.regressed or said.change is ChangeKind.STILL_FAILING):
        _trouble(one, said)
    elif said is not None and said.change in (ChangeKind.FIXED, ChangeKind.GAINED):
        one.trouble = None
    if not new.verdict.bad and new.evidence > one.evidence:
        one.evidence, one.since, one.by = new.evidence, run, "rule"
    wrong = said is not None and (said.change.regressed or said.change.timed)
    if not new.verdict.bad:
        one.counts = counts.least(one.counts, new.counts)
    if not new.verdict.bad and new.evidence >= one.evidence and not wrong:
        one.goods, one.last_good = [*one.goods, new][-IN_A_ROW:], run
    if new.timing is not None and not new.carried:
        one.timed += 1
        one.noisy.update(filter(None, [new.timing.noisy]))
    if now is not None and new.comparable and learnt is not None and not new.carried:
        level = one.levels.setdefault(TimedPlace.of(new), TimeLevel(run))
        now = _learn_eager(one, level, new, now, learnt)
        _learn_time(one, level, now, run, learnt)
        level.recent = [*level.recent, now][-rule.LONGEST :]


def _trouble(one: TimeReference, said: CellChange) -> None:
    moved = rule.log_of(said.moved) if said.change is ChangeKind.SLOWER else 0.0
    if one.trouble and said.stays and one.trouble.moved:  # not what one odd night makes of it
        moved = one.trouble.moved
    one.trouble = Trouble(
        said.change, said.since, said.nights, said.last_good, said.cause, said.because, moved
    )


def torch_of(outcome: CellOutcome) -> str:
    return outcome.environment.toolchain.get("torch", "")


def _learn_eager(
    one: TimeReference, level: TimeLevel, new: CellOutcome, now: TimedPoint, learnt: Learnt
) -> TimedPoint:
    """Learns what eager takes where it alone is another: moved, or of another torch, on
    :data:`IN_A_ROW` nights. Returns the night's time, until then without that of another torch's
    eager."""
    one.torch = one.torch or torch_of(new)
    known = [each.eager for each in level.first if each.eager is not None]
    if now.eager is None or not known or torch_of(new) in ("", one.torch):
        one.eager_moves = []
        one.eager_elsewhere = one.eager_elsewhere + 1 if learnt.eager_by else 0
        if one.eager_elsewhere >= IN_A_ROW:
            level.eager_moved(learnt.eager_by)
            one.eager_elsewhere = 0
        return now
    one.eager_moves.append(now.eager - statistics.median(known))
    if len(one.eager_moves) < IN_A_ROW:
        return now._replace(eager=None)
    level.eager_moved(statistics.median(one.eager_moves))
    one.torch, one.eager_moves, one.eager_elsewhere = torch_of(new), [], 0
    return now


def _learn_time(
    one: TimeReference, level: TimeLevel, now: TimedPoint, run: str, learnt: Learnt
) -> None:
    suspect = learnt.said.change is ChangeKind.SUSPECT and not learnt.eager_by
    if learnt.time == "calm":
        level.keep(now)
        one.suspected, one.better = 0, []
    elif learnt.time == "better":
        one.better.append(now)
        one.suspected = min(one.suspected, 0) - 1
        known = learnt.said.change is ChangeKind.FASTER and learnt.said.because
        if known or len(one.better) >= IN_A_ROW:
            level.restart(one.better, run, "rule: it is faster")
            one.suspected, one.better = 0, []
    elif suspect or learnt.time == "worse":
        one.suspected_since = one.suspected_since if one.suspected > 0 else run
        one.suspected, one.better = max(one.suspected, 0) + 1, []


def spreads(levels: Iterable[TimeLevel], statistic: Statistic) -> float:
    """How far runs of a cell differ, over all cells."""
    return rule.spread([level.values("calm", statistic) for level in levels])
