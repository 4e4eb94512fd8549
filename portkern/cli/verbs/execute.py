"""``portkern execute``: run a plan on a machine that has no network, and not all of portkern's own
dependencies."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from portkern.cli import exit_code, json_output, plain_options
from portkern.errors import ConfigError
from portkern.execution import needed
from portkern.printable import printable

#: What follows the plan's name in that of its records.
SUFFIX = ".records.jsonl"


@dataclass
class ExecuteOptions:
    plan: str
    out: str = ""
    fresh: bool = False
    json: bool = False


def main(arguments: Sequence[str]) -> int:
    options = plain_options.resolve("execute", ExecuteOptions, arguments, places=("plan",))
    needed.check()  # before anything is imported that may not be here
    from portkern.cells import unavailable
    from portkern.cells.run import MatrixProgress
    from portkern.execution.plan import ExecutionPlan
    from portkern.execution.plan_run import PlanRun

    plan = ExecutionPlan.read(Path(options.plan))
    path = Path(options.out or Path(options.plan).with_suffix(SUFFIX))
    run = PlanRun(plan, path)
    run.check()

    def show(progress: MatrixProgress) -> None:
        record = progress.record
        if record is not None and not options.json:
            cell = f"{record.row}[{record.workload.set}/{record.workload.name}]"
            what = f"{record.backend}@{record.target} {cell} {record.workload.dtype}"
            line = f"[{progress.done}/{progress.total}] {what}: {record.verdict}"
            print(printable(line), flush=True)

    with _alone(path):
        records, torn = run.execute(fresh=options.fresh, show=show)
    if torn:
        print(f"portkern: note: {torn}", file=sys.stderr)
    for line in unavailable.lines(records):
        print(f"portkern: warning: {printable(line)}", file=sys.stderr)
    code = exit_code.of_records(records)
    if options.json:
        json_output.show(
            {"plan": plan.id, "records": str(path), "cells": len(records), "exit_code": code}
        )
    else:
        print(f"{printable(str(path))}: {len(records)} cells; 'portkern import records' takes it")
    return code


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One writer per file of records. Raises ConfigError and StorageError."""
    from filelock import FileLock, Timeout

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{path}.lock").acquire(timeout=0):
            yield
    except Timeout:
        raise ConfigError(
            f"Another portkern is writing to {path}; wait, or choose out=FILE"
        ) from None
