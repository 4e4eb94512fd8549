"""``portkern report``: write a run's report again from its records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from omegaconf import MISSING

from portkern.cli import exit_code
from portkern.cli.config import resolve
from portkern.cli.verbs import run_folder


@dataclass
class ReportOptions:
    run: str = MISSING
    reports: str = "reports"
    json: bool = False


def main(overrides: Sequence[str]) -> int:
    named = [f"run={o}" if "=" not in o else o for o in overrides]  # portkern report RUN
    options = resolve("report", ReportOptions, named)
    folder = run_folder.run_folder(options.reports, options.run)
    latest = run_folder.latest(folder)
    table = run_folder.report(latest, folder)
    code = exit_code.of_records(latest)
    run_folder.show(table, folder, exit_code=code, as_json=options.json)
    return code
