"""Runs in the order of time: what of each cell is known from before."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from portkern.errors import ConfigError, RecordError
from portkern.records.columns import Columns
from portkern.records.record import Record, RecordFile
from portkern.regression import standing
from portkern.regression.outcome import CellOutcome
from portkern.regression.reading import outcomes
from portkern.regression.runs import UNKNOWN, RecordedRun, records_of
from portkern.regression.runs import newest_first as runs_newest_first
from portkern.regression.series import Series

#: Suspects that were timed again in the same night, and the calibration kernels of its devices.
AGAIN, CALIBRATION = "again.jsonl", "calibration.jsonl"
#: Cells of runs that references are learnt from where there is no file of them and no more are
#: asked for: two months of a thousand a night, some seconds of work.
MOST_CELLS = 60_000
#: Runs that are read together, a few more than are compared with.
AT_ONCE = 12


@dataclass(frozen=True)
class Night:
    """A run's newest record of each cell, those of :data:`AGAIN` and of :data:`CALIBRATION`.
    ``time`` is that of the newest, as in records; ``problem``: what could not be read."""

    name: str
    time: str
    cells: Mapping[Series, CellOutcome]
    again: Mapping[Series, Sequence[CellOutcome]] = field(default_factory=dict)
    problem: str = ""
    calibrations: Mapping[Series, Sequence[CellOutcome]] = field(default_factory=dict)

    def calibrated(self) -> Iterator[tuple[Series, Sequence[CellOutcome]]]:
        """The races of the calibration kernels, those of each device of each machine together: a
        merged run has several."""
        for series, races in self.calibrations.items():
            apart: dict[tuple[str, str], list[CellOutcome]] = {}
            for race in races:
                where = race.environment.machine, race.environment.device
                apart.setdefault(where, []).append(race)
            for own in apart.values():
                yield series, own

    @classmethod
    def of(
        cls,
        name: str,
        records: Sequence[Record],
        again: Sequence[Record] = (),
        calibrations: Sequence[Record] = (),
    ) -> Night:
        cells: dict[Series, CellOutcome] = {Series.of(record): record for record in records}
        time = max((r.time for r in records), default="")
        beside = _by_series(calibrations)
        return cls(name, time, cells, _by_series(again), calibrations=beside)

    @classmethod
    def read(cls, folder: Path) -> Night:
        """Raises ConfigError where there are no records, and RecordError for those that cannot be
        read."""
        path = records_of(folder)
        [night] = _nights([path]) if path.exists() else [cls(folder.name, "", {})]
        if isinstance(night, RecordError):
            raise night
        if not night.cells:
            raise ConfigError(f"No records in {path}; 'portkern matrix' writes them")
        return night

    def within(self, other: Night, fields: Collection[str]) -> Night:
        """This night without cells that ``other`` was not asked for: those in whose ``fields`` no
        cell of ``other`` has the same value."""
        asked = {name: {getattr(series, name) for series in other.cells} for name in fields}
        kept = {
            series: record
            for series, record in self.cells.items()
            if all(getattr(series, name) in values for name, values in asked.items())
        }
        return replace(self, cells=kept)

    @property
    def day(self) -> str:
        """The night's day in ISO form."""
        return self.time[: len("2026-12-24")]

    @property
    def green(self) -> bool:
        """Whether something passed and nothing is bad."""
        verdicts = [record.verdict for record in self.cells.values()]
        return not any(v.bad for v in verdicts) and any(r.evidence for r in self.cells.values())


def earlier(night: Night, reports: Path) -> list[RecordedRun]:
    """The other runs that ended or began earlier, or of which that cannot be read, but for those
    that people demoted; the newest first."""
    without = standing.demoted(reports) | {night.name}
    all_runs = runs_newest_first(reports)
    known = {run.name: run for run in all_runs}
    own = known.get(night.name)
    number, time = (own.number, max(own.time, night.time)) if own else (0, night.time)
    return [
        run
        for run in all_runs
        if run.name not in without
        and (0 < run.number < number or run.time < time or run.time == UNKNOWN)
    ]


def of_one_series(one: Night, two: Night) -> bool:
    """Whether they have at least half of the smaller one's cells in common."""
    both = len(one.cells.keys() & two.cells)
    return both > 0 and 2 * both >= min(len(one.cells), len(two.cells))


def as_many_as_can_be(
    runs: Iterable[RecordedRun], night: Night, most: int = 0
) -> tuple[list[Night], dict[str, Night | RecordError], str]:
    """The runs that share cells with ``night``, the newest first: ``most`` of them, or as many
    as have :data:`MOST_CELLS`; those that share none, by name; and the reason where the search
    stopped."""
    found: list[Night] = []
    others: dict[str, Night | RecordError] = {}
    chosen, cells = list(runs), 0
    for run, one in zip(chosen, read(chosen), strict=True):
        if isinstance(one, RecordError) or not of_one_series(one, night):
            others[run.name] = one
            continue
        found.append(one)
        cells += len(one.cells)
        if len(found) == most or run is chosen[-1]:
            break
        if not most and cells >= MOST_CELLS and len(found) >= AT_ONCE:
            return (
                found,
                others,
                f"references are learnt from the newest {len(found)} runs, which have {cells} "
                "cells; window=N looks farther back",
            )
    return found, others, ""


def before(night: Night, reports: Path, most: int = 0) -> tuple[list[Night], list[str]]:
    """Earlier runs that share cells with it, oldest first, and what could not be read."""
    found, others, cut = as_many_as_can_be(earlier(night, reports), night, most)
    problems = [f"{n} is left out: {e}" for n, e in others.items() if isinstance(e, RecordError)]
    return found[::-1], problems + [cut] * bool(cut)


def read(runs: Sequence[RecordedRun]) -> Iterator[Night | RecordError]:
    """Reads the nights of runs, some at a time, as one asks."""
    for start in range(0, len(runs), AT_ONCE):
        yield from _nights([run.records for run in runs[start : start + AT_ONCE]])


def _by_series(records: Sequence[Record]) -> Mapping[Series, Sequence[CellOutcome]]:
    several: dict[Series, list[CellOutcome]] = {}
    for record in records:
        several.setdefault(Series.of(record), []).append(record)
    return several


def _beside(path: Path) -> Mapping[Series, Sequence[CellOutcome]]:
    """The races in a file beside the records; none where it is torn or foreign."""
    try:
        return _by_series(RecordFile(path, samples=False).read()[0])
    except RecordError:
        return {}


def _nights(files: Sequence[Path]) -> list[Night | RecordError]:
    """The nights that the ``records.jsonl`` in runs' folders hold, with the error of each that
    cannot be read."""
    with Columns(files) as columns:
        cells: list[dict[Series, CellOutcome]] = [{} for _ in files]
        times = [""] * len(files)
        for number, series, outcome in outcomes(columns):
            cells[number][series] = outcome
            times[number] = max(times[number], outcome.time)
        return [
            RecordError(columns.problems[number])
            if number in columns.problems
            else Night(
                path.parent.name,
                times[number],
                cells[number],
                _beside(path.parent / AGAIN),
                str(columns.torn.get(number, "")),
                _beside(path.parent / CALIBRATION),
            )
            for number, path in enumerate(files)
        ]
