"""``portkern report``: write a run's report again from its records."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from omegaconf import MISSING

from portkern.config import resolve
from portkern.errors import ConfigError
from portkern.record import RecordFile
from portkern.verbs import _run


@dataclass
class ReportOptions:
    run: str = MISSING
    reports: str = "reports"
    json: bool = False


def main(overrides: Sequence[str]) -> int:
    named = [f"run={o}" if "=" not in o else o for o in overrides]  # portkern report RUN
    options = resolve("report", ReportOptions, named)
    folder = _run.run_folder(options.reports, options.run)
    records, torn = RecordFile(folder / _run.RECORDS).read()
    if not records:
        raise ConfigError(f"No records in {folder / _run.RECORDS}; 'portkern matrix' writes them")
    if torn:
        print(f"portkern: note: {torn}", file=sys.stderr)
    latest = list({record.key: record for record in records}.values())
    return _run.conclude(latest, folder, as_json=options.json)
