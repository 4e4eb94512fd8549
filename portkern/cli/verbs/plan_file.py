"""Plans as ``portkern matrix`` writes them and ``portkern import`` knows them again."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from portkern.cells import unavailable
from portkern.cells.selection import SelectedCell
from portkern.cli import exit_code, json_output
from portkern.cli.verbs import run_folder
from portkern.errors import ConfigError
from portkern.evaluator.trial import TrialOptions
from portkern.execution.plan import ExecutionPlan
from portkern.execution.returned import Returned, kept, unanswered
from portkern.printable import printable
from portkern.records import source_store
from portkern.records.record import RecordFile
from portkern.records.source_store import SourceStore
from portkern.regression import runs
from portkern.regression.runs import RECORDS


def write(
    path: Path,
    cells: Sequence[SelectedCell],
    chosen: TrialOptions,
    folder: Path,
    *,
    suite: str,
    as_json: bool,
) -> int:
    """The plan of what would be run into ``folder``, which keeps a copy. Raises ConfigError where
    there is a file already, and StorageError."""
    if path.exists():
        raise ConfigError(
            f"{path} exists already; 'portkern execute {path}' runs a plan, another plan=FILE "
            "writes one"
        )
    plan = ExecutionPlan.of(cells, chosen, folder.name, suite)
    plan.write(kept(folder, plan.id))
    plan.write(path)
    if as_json:
        said = {"plan": str(path), "id": plan.id, "run": plan.run, "cells": len(plan.cells)}
        json_output.show({**said, "folder": str(folder), "exit_code": 0})
        return 0
    shown = printable(str(path))
    print(
        f"{shown}: {len(plan.cells)} cells of {len(plan.ops)} operators for {len(plan.targets)} "
        f"targets, by {plan.portkern}\nthere: portkern execute {shown}\n"
        "here again: portkern import records FILE"
    )
    return 0


def take(path: Path, *, plan: str, run: str, reports: str, track: bool, as_json: bool) -> int:
    """The records of a file into the run that its plan was written for, or into another, which is
    tracked as if it had been run here. Raises ConfigError and RecordError for what is not of the
    plan, and StorageError."""
    returned = Returned.read(path)
    for note in filter(None, [returned.torn]):
        print(f"portkern: note: {note}", file=sys.stderr)
    source = Path(plan) if plan else _kept(returned, reports, run)
    known = ExecutionPlan.read(source)
    returned.check(known)
    folder = run_folder.run_folder(reports, run or returned.run)
    file = RecordFile(folder / RECORDS)
    with run_folder.writing(folder):
        SourceStore(folder / source_store.FOLDER).keep(known.kernels.values())
        there, _ = file.read()
        new = returned.new(there, folder.name)
        if new:
            file.append(new)
    left = unanswered(known, returned.records)
    same = len({record.id for record in returned.records}) - len(new)
    print(
        f"portkern: note: {len(new)} records are new to {printable(str(folder))}, {same} were "
        f"there; {left} of the plan's {len(known.cells)} cells have none yet",
        file=sys.stderr,
    )
    records = run_folder.latest(folder)
    lacking = unavailable.lines(records)
    for line in lacking:
        print(f"portkern: warning: {printable(line)}", file=sys.stderr)
    runs.remark(folder, (runs.WARNING + line for line in lacking))
    suite = known.suite or "-".join(known.ops)
    sink = partial(run_folder.tracked, records, folder, suite) if track else tuple
    table = run_folder.report(records, folder, sink=sink)
    code = exit_code.of_records(records, table.quarantine)
    run_folder.show(
        table, folder, exit_code=code, as_json=as_json, more={"new": len(new), "left": left}
    )
    return code


def _kept(returned: Returned, reports: str, run: str) -> Path:
    """The plan in the folder of the run that it was written for, or of the one it goes into."""
    names = dict.fromkeys(filter(None, [returned.run, run]))
    places = [kept(run_folder.run_folder(reports, name), returned.plan_id) for name in names]
    for place in places:
        if place.is_file():
            return place
    raise ConfigError(
        f"No plan {returned.plan_id} in {places[0].parent}; name its file with plan=FILE"
    )
