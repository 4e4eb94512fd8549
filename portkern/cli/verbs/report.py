"""``portkern report``: write a run's report again from its records, a sweep's from its samples."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from omegaconf import MISSING

from portkern.cli import exit_code, json_output
from portkern.cli.config import resolve
from portkern.cli.verbs import run_folder
from portkern.experiment.compare.sample import FILE as SAMPLES
from portkern.printable import printable
from portkern.records import kernel_age, source_store
from portkern.records.source_store import SourceStore


@dataclass
class ReportOptions:
    run: str = MISSING
    reports: str = "reports"
    json: bool = False


def main(overrides: Sequence[str]) -> int:
    named = [f"run={o}" if "=" not in o else o for o in overrides]  # portkern report RUN
    options = resolve("report", ReportOptions, named)
    folder = run_folder.run_folder(options.reports, options.run)
    if (folder / SAMPLES).is_file():
        return _sweep(folder, as_json=options.json)
    latest = run_folder.latest(folder)
    table = run_folder.report(latest, folder)
    code = exit_code.of_records(latest, table.quarantine)
    store = SourceStore(folder / source_store.FOLDER)
    if said := kernel_age.note(kernel_age.counted(latest, store)):
        print(f"portkern: note: {said}", file=sys.stderr)
    run_folder.show(table, folder, exit_code=code, as_json=options.json)
    return code


def _sweep(folder: Path, *, as_json: bool) -> int:
    """Writes the report of a ``portkern compare``, with its exit codes."""
    from portkern.experiment.compare import page

    comparison = page.again(folder)
    evaluated = comparison.samples - comparison.unevaluated
    code = 3 if not evaluated else 1 if comparison.unevaluated else 0
    if as_json:
        json_output.show({**comparison.document(), "folder": str(folder), "exit_code": code})
    else:
        print(printable(page.summary(comparison)))
        print(f"report: {folder / 'compare.html'}")
    return code
