"""``portkern matrix``: every cell of ops × targets × backends × dtypes × workloads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from portkern import guard
from portkern.cli.config import Names, names, resolve
from portkern.cli.verbs import run_folder
from portkern.matrix.selection import Selection, Stage
from portkern.records.record import Record
from portkern.tuning import database


@dataclass
class MatrixOptions:
    """Names take one name, a list, or a set: core, all; targets also host, demo, architectures,
    products."""

    ops: Names = "core"
    targets: Names = "all"
    backends: Names = "all"
    workloads: Names = "ci"
    dtypes: Names = "float32"
    run: str = ""
    reports: str = "reports"
    venue: str = "best"
    sanitize: Names = "none"
    torch_ops: str = "forbid"
    tuned: bool = True
    fresh: bool = False
    baselines: Names = field(default_factory=lambda: ["eager"])
    rounds: int = 5
    budget_s: float = 0.25
    timeout_s: float = 120.0
    track: bool = True
    json: bool = False


def main(overrides: Sequence[str]) -> int:
    options = resolve("matrix", MatrixOptions, overrides)
    question = Selection(
        names(options.ops),
        names(options.targets),
        names(options.backends),
        names(options.workloads),
        names(options.dtypes),
        Stage.parse(options.venue, names(options.sanitize)),
        guard.torch_ops(options.torch_ops),
        [database.own(), database.shipped()] if options.tuned else [],
    )
    run = options.run or "-".join(map(str, (*question.ops, *question.targets, *question.workloads)))
    folder = run_folder.run_folder(options.reports, run)
    chosen = run_folder.options(
        baselines=names(options.baselines),
        rounds=options.rounds,
        budget_s=options.budget_s,
        timeout_s=options.timeout_s,
    )
    records = run_folder.run_cells(
        question.cells(), folder, chosen, fresh=options.fresh, quiet=options.json
    )
    return run_folder.conclude(
        records, folder, as_json=options.json, sink=lambda: _track(records, folder, options)
    )


def _track(records: Sequence[Record], folder: Path, options: MatrixOptions) -> list[str]:
    """Notes about tracking; losing it loses no result."""
    if not options.track:
        return []
    from portkern.tracking import matrix_runs

    suite = "-".join(names(options.ops))
    tracked = matrix_runs.track(
        records, experiment=suite, run_name=folder.name, folder=folder, uri=None
    )
    again = "the records are kept; give the same command again to log them"
    return [f"{tracked}; {again}" if isinstance(tracked, matrix_runs.Skipped) else str(tracked)]
