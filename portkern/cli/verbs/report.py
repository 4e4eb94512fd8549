"""``portkern report``: write a run's report again from its records."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from omegaconf import MISSING

from portkern.cli.config import resolve
from portkern.cli.verbs import run_folder
from portkern.errors import ConfigError
from portkern.records.record import RecordFile


@dataclass
class ReportOptions:
    run: str = MISSING
    reports: str = "reports"
    json: bool = False


def main(overrides: Sequence[str]) -> int:
    named = [f"run={o}" if "=" not in o else o for o in overrides]  # portkern report RUN
    options = resolve("report", ReportOptions, named)
    folder = run_folder.run_folder(options.reports, options.run)
    records, torn = RecordFile(folder / run_folder.RECORDS).read()
    if not records:
        raise ConfigError(
            f"No records in {folder / run_folder.RECORDS}; 'portkern matrix' writes them"
        )
    if torn:
        print(f"portkern: note: {torn}", file=sys.stderr)
    latest = list({record.key: record for record in records}.values())
    return run_folder.conclude(latest, folder, as_json=options.json)
