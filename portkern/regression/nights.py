"""Runs in the order of time: what of each cell is known from before."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from portkern.errors import ConfigError, RecordError
from portkern.records.columns import Columns
from portkern.records.record import Record, RecordFile
from portkern.regression import standing
from portkern.regression.outcome import Outcome
from portkern.regression.reading import outcomes
from portkern.regression.runs import RECORDS
from portkern.regression.runs import newest_first as runs_newest_first
from portkern.regression.series import Series

#: Suspects that were timed again in the same night.
AGAIN = "again.jsonl"
#: Cells of runs that references are learnt from unless more are asked for: a year of a few hundred
#: a night, some seconds of work.
MOST_CELLS = 120_000
#: Runs that are read together, a few more than are compared with.
AT_ONCE = 12


@dataclass(frozen=True)
class Night:
    """A run's newest record of each cell, and those of :data:`AGAIN`. ``time`` is that of the
    newest, as in records; ``problem``: what could not be read."""

    name: str
    time: str
    cells: Mapping[Series, Outcome]
    again: Mapping[Series, Sequence[Outcome]] = field(default_factory=dict)
    problem: str = ""

    @classmethod
    def of(cls, name: str, records: Sequence[Record], again: Sequence[Record] = ()) -> Night:
        cells: dict[Series, Outcome] = {Series.of(record): record for record in records}
        several: dict[Series, list[Outcome]] = {}
        for record in again:
            several.setdefault(Series.of(record), []).append(record)
        return cls(name, max((r.time for r in records), default=""), cells, several)

    @classmethod
    def read(cls, folder: Path) -> Night:
        """Raises ConfigError where there are no records, and RecordError for those that cannot be
        read."""
        path = folder / RECORDS
        [night] = _nights([path]) if path.exists() else [cls(folder.name, "", {})]
        if isinstance(night, RecordError):
            raise night
        if not night.cells:
            raise ConfigError(f"No records in {path}; 'portkern matrix' writes them")
        return night

    def within(self, other: Night, fields: Collection[str]) -> Night:
        """Without cells that ``other`` was not asked for: of those ``fields`` of a series it has
        other values in all its cells."""
        asked = {name: {getattr(series, name) for series in other.cells} for name in fields}
        kept = {
            series: record
            for series, record in self.cells.items()
            if all(getattr(series, name) in values for name, values in asked.items())
        }
        return replace(self, cells=kept)

    @property
    def day(self) -> str:
        """In ISO form."""
        return self.time[: len("2026-12-24")]

    @property
    def green(self) -> bool:
        """Whether something passed and nothing is bad."""
        verdicts = [record.verdict for record in self.cells.values()]
        return not any(v.bad for v in verdicts) and any(r.evidence for r in self.cells.values())


def newest_first(night: Night, reports: Path, problems: list[str]) -> Iterator[Night]:
    """The other runs that ended earlier and whose cells are mostly the same, but for those that
    people demoted. They are read some at a time, as one asks; what cannot be read is added to
    ``problems``."""
    without = standing.demoted(reports) | {night.name}
    all_runs = runs_newest_first(reports)
    number = {run.name: run.number for run in all_runs}
    times = {run.name: run.time for run in all_runs}
    runs = [run for run in all_runs if run.name not in without]

    def at(one: Night) -> str:
        return max(one.time, times.get(one.name, ""))

    def earlier(other: Night) -> bool:
        began = 0 < number.get(other.name, 0) < number.get(night.name, 0)
        return began or at(other) < at(night)

    for start in range(0, len(runs), AT_ONCE):
        batch = runs[start : start + AT_ONCE]
        read: list[Night] = []
        for run, other in zip(batch, _nights([run.records for run in batch]), strict=True):
            if isinstance(other, RecordError):
                problems.append(f"{run.name} is left out: {other}")
            elif earlier(other) and _of_one_series(other, night):
                read.append(other)
        yield from sorted(read, key=lambda one: (at(one), number[one.name]), reverse=True)


def _of_one_series(one: Night, two: Night) -> bool:
    """Whether they have at least half of the smaller one's cells in common."""
    both = len(one.cells.keys() & two.cells)
    return both > 0 and 2 * both >= min(len(one.cells), len(two.cells))


def before(night: Night, reports: Path, most: int = 0) -> tuple[list[Night], list[str]]:
    """Of those the newest, or as many as have :data:`MOST_CELLS`, oldest first, and what could not
    be read."""
    problems: list[str] = []
    found: list[Night] = []
    cells = 0
    for one in itertools.islice(newest_first(night, reports, problems), most or None):
        cells += len(one.cells)
        if not most and cells > MOST_CELLS and len(found) >= AT_ONCE:
            problems.append(
                f"references are learnt from the newest {len(found)} runs, which have "
                f"{cells - len(one.cells)} cells; window=N looks farther back"
            )
            break
        found.append(one)
    return found[::-1], problems


def _again(folder: Path) -> Mapping[Series, Sequence[Outcome]]:
    """Of suspects the further times; without those that a torn or foreign file would have had."""
    path = folder / AGAIN
    try:
        return Night.of(folder.name, (), RecordFile(path).read()[0]).again if path.exists() else {}
    except (RecordError, OSError):
        return {}


def _nights(files: Sequence[Path]) -> list[Night | RecordError]:
    """Of ``records.jsonl`` in runs' folders."""
    with Columns(files) as columns:
        cells: list[dict[Series, Outcome]] = [{} for _ in files]
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
                _again(path.parent),
                str(columns.torn.get(number, "")),
            )
            for number, path in enumerate(files)
        ]
