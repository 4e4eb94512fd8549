"""``portkern history``: cells over many runs, from their records alone."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from portkern.cli import json_output
from portkern.cli.config import resolve
from portkern.errors import ConfigError, RecordError
from portkern.printable import printable
from portkern.records.columns import Columns
from portkern.regression import runs, standing
from portkern.regression.history import CellHistory, deviation, histories
from portkern.regression.runs import RecordedRun, RunFacts
from portkern.regression.series import Series
from portkern.spec.backend import Missing

_BARS = "▁▂▃▄▅▆▇█"


@dataclass
class HistoryChoice:
    """A choice of runs, and of cells by the fields of a series; '' is any."""

    op: str = ""
    workload_set: str = ""
    workload: str = ""
    dtype: str = ""
    backend: str = ""
    language: str = ""
    variant: str = ""
    target: str = ""
    runs: int = 20
    since: str = ""
    tag: str = ""
    reports: str = "reports"
    json: bool = False


@dataclass
class HistoryOptions(HistoryChoice):
    pass


def main(overrides: Sequence[str]) -> int:
    """0: there is something to show; 3: no run has such a cell."""
    options = resolve("history", HistoryOptions, overrides)
    cells = 0
    documents: list[object] = []
    chosen = choose(options)
    with read(chosen, options) as columns:
        for cell in histories(columns, [run.name for run in chosen]):
            cells += 1
            if options.json:
                documents.append(_document(cell))
                continue
            for line in _lines(cell):
                print(printable(line))
    code = 0 if cells else 3
    if options.json:
        said = facts(chosen)
        about = [_run(run.name, said.get(run.name, RunFacts())) for run in chosen]
        json_output.show({"runs": about, "cells": documents, "exit_code": code})
    elif not cells:
        print(f"No cell of that kind in {len(chosen)} runs of {printable(options.reports)}")
    return code


def choose(options: HistoryChoice) -> list[RecordedRun]:
    """The newest runs that nobody demoted, the oldest first. Raises ConfigError."""
    reports, since = Path(options.reports), options.since
    try:
        day = date.fromisoformat(since).isoformat() if since else ""
    except ValueError:
        raise ConfigError(f"Got since={since}, expected a day such as 2026-11-20") from None
    known = runs.newest_first(reports)
    if not known:
        raise ConfigError(f"No records in {reports}/*; 'portkern matrix' writes them")
    without = standing.demoted(reports)
    known = [run for run in known if run.name not in without and run.time >= day]
    if options.tag:
        known, problems = runs.tagged(options.tag, known)
        _note(problems)
    return known[: options.runs][::-1]


@contextmanager
def read(chosen: Sequence[RecordedRun], options: HistoryChoice) -> Iterator[Columns]:
    """Reads the cells that are asked for; runs that cannot be read are left out and named."""
    said = {name: str(getattr(options, name)) for name in Series._fields}
    only = {name: value for name, value in said.items() if value}
    with Columns([run.records for run in chosen], only=only) as columns:
        names = [run.name for run in chosen]
        _note([f"{names[n]} is left out: {why}" for n, why in sorted(columns.problems.items())])
        _note([f"{names[n]}: {torn}" for n, torn in sorted(columns.torn.items())])
        yield columns


def _note(problems: Sequence[str]) -> None:
    for problem in problems:
        print(f"portkern: note: {printable(problem)}", file=sys.stderr)


def _lines(cell: CellHistory) -> Iterator[str]:
    newest = cell.points[-1]
    told = f"{len(cell.points)} runs, {newest.verdict} ({newest.evidence})"
    if cell.times:
        told += f"; {_figure(cell, 'p20')} us"
    if cell.ratios:
        told += f"; of eager's {_figure(cell, 'ratio')}"
    yield f"{cell.series}: {told}"
    steps = cell.steps()
    events = [*cell.events]
    if not isinstance(steps, Missing):
        events += [(step.run, str(step)) for step in steps]
    order = {point.run: place for place, point in enumerate(cell.points)}
    for run, what in sorted(events, key=lambda event: order[event[0]]):
        yield f"    {run}: {what}"


def _figure(cell: CellHistory, what: str) -> str:
    """A sparkline of all runs, the median of those that may be compared, and their deviation."""
    alike = {point.run for point in cell.alike}
    every = [
        (point.p20_us if what == "p20" else point.ratio) if point.run in alike else None
        for point in cell.points
    ]
    values = [value for value in every if value]
    spread = deviation(values)
    said = f" ± {spread:.1%}" if spread is not None else ""
    return f"{sparkline(every)} {sorted(values)[len(values) // 2]:.3g}{said}"


def sparkline(values: Sequence[float | None]) -> str:
    """A bar each, from the least to the largest by their logarithms; a dot where there is none."""
    logs = [math.log(value) if value else None for value in values]
    known = [log for log in logs if log is not None]
    least, most = min(known, default=0.0), max(known, default=0.0)
    # 5 % fill half of the height at least, or noise would look like steps
    height = max(most - least, 0.1)
    top = len(_BARS) - 1
    return "".join(
        "·" if log is None else _BARS[min(top, round((log - least) / height * top))] for log in logs
    )


def _document(cell: CellHistory) -> dict[str, object]:
    steps = cell.steps()
    known = () if isinstance(steps, Missing) else steps
    return {
        **cell.series._asdict(),
        "points": [
            {
                "run": point.run,
                "time": point.time,
                "verdict": str(point.verdict),
                "evidence": str(point.evidence),
                "time_us": point.time_us,
                "p20_us": point.p20_us,
                "ratio": point.ratio,
                "noisy": point.noisy,
            }
            for point in cell.points
        ],
        "deviation": deviation(cell.times),
        "deviation_of_ratio": deviation(cell.ratios),
        "events": [{"run": run, "what": what} for run, what in cell.events],
        "steps": [{"run": step.run, "moved": round(step.moved, 4)} for step in known],
        **({"no_steps": str(steps)} if isinstance(steps, Missing) else {}),
    }


def facts(chosen: Sequence[RecordedRun]) -> dict[str, RunFacts]:
    """The facts of the runs, by their names; a run whose facts cannot be read has none."""
    known: dict[str, RunFacts] = {}
    for run in chosen:
        try:
            known[run.name] = RunFacts.read(run.folder)
        except RecordError as error:
            _note([f"{run.name} has no tags: {error}"])
    return known


def _run(name: str, facts: RunFacts) -> dict[str, object]:
    git = facts.git.model_dump() if facts.git else None
    return {"name": name, "tags": dict(facts.tags), "git": git}
