"""MLflow as one sink of records: a run per matrix, below it a run per (op, backend, target) that
was tried. Records that were logged already are not logged again.

The records on disk are the truth. Losing the tracking server loses a view of them, so everything
that goes wrong here comes back as :class:`Skipped`.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock

from portkern.errors import ConfigError, ToolError
from portkern.records import atomic_write
from portkern.records.record import Record, Verdict
from portkern.report.table import Table, TableCell, TableGroup, clean, headline, speedup_of
from portkern.spec.target import load as load_target
from portkern.toolchain.run_tool import run_tool

if TYPE_CHECKING:
    from portkern.spec.json_types import Json, JsonObject

#: Limits of MLflow's log_batch and of its tags.
BATCH = 1000
TAG_LIMIT = 4000
#: In a run's folder: which records were logged last, and where.
SENT = ".mlflow.json"


@dataclass(frozen=True)
class Tracked:
    """Where the matrix is found in MLflow."""

    uri: str
    experiment: str
    run_id: str
    children: int

    def __str__(self) -> str:
        return f"MLflow run {self.run_id} of experiment {self.experiment!r} in {self.uri}"


@dataclass(frozen=True)
class Skipped:
    """Nothing, or not all, was logged; the records are untouched."""

    reason: str

    def __str__(self) -> str:
        return f"not tracked in MLflow: {self.reason}"


def track(
    records: Sequence[Record],
    *,
    experiment: str,
    run_name: str,
    folder: Path,
    uri: str | None = None,
) -> Tracked | Skipped:
    """Log a matrix and the report files that lie in ``folder``. Does not raise for a lost server.

    ``uri`` is MLFLOW_TRACKING_URI's unless given, else ``mlflow.db`` in the current folder, which
    is where ``mlflow ui`` looks.
    """
    if not records:
        return Skipped("there are no records")
    known = _already_sent(records, experiment, folder, _uri(uri))
    if known is not None:
        return known
    answer = sent(
        lambda store: _log_matrix(store, Table.of(records), records, run_name, folder),
        experiment=experiment,
        uri=uri,
    )
    if isinstance(answer, Tracked) and folder.is_dir():
        note = {"records": _digest(records), "tracked": asdict(answer)}
        atomic_write.write(folder / SENT, json.dumps(note, indent=1) + "\n")
    return answer


def _already_sent(
    records: Sequence[Record], experiment: str, folder: Path, uri: str
) -> Tracked | None:
    """Where these very records were logged the last time, if they were and that is still there."""
    try:
        note = json.loads((folder / SENT).read_text(encoding="utf-8"))
        tracked, digest = Tracked(**note["tracked"]), note["records"]
    except (OSError, ValueError, KeyError, TypeError):  # absent, or of another version
        return None
    database = _sqlite_file(uri)
    lost = database is not None and not database.exists()
    same = (tracked.uri, tracked.experiment) == (uri, experiment)
    return tracked if same and not lost and digest == _digest(records) else None


def _digest(records: Sequence[Record]) -> str:
    lines = "\n".join(sorted(record.to_json() for record in records))
    return hashlib.sha256(lines.encode()).hexdigest()


def _uri(uri: str | None) -> str:
    return uri or os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{Path.cwd() / 'mlflow.db'}"


def sent(
    log: Callable[[Store], Tracked], *, experiment: str, uri: str | None = None
) -> Tracked | Skipped:
    """What ``log`` makes of the store; a store that is lost is :class:`Skipped`."""
    # MLflow's own defaults keep trying a dead server for minutes.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "30")
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)
    try:
        from mlflow.exceptions import MlflowException
        from sqlalchemy.exc import SQLAlchemyError
    except ImportError:
        return Skipped("MLflow is not installed; pip install 'portkern[tracking]'")
    place = _uri(uri)
    try:
        return log(Store(place, experiment))
    except (MlflowException, SQLAlchemyError, OSError) as error:  # requests' errors are OSErrors
        return Skipped(f"{place}: {headline(str(error)) or type(error).__name__}")


def _log_matrix(
    store: Store, table: Table, records: Sequence[Record], run_name: str, folder: Path
) -> Tracked:
    """The parent counts as FINISHED only when all of it has arrived."""
    tags = _run_tags(table, store.experiment)
    parent = store.start(run_name, tags, {}, counts(table.whole))
    _datasets(store, parent, table)
    cells = [cell for cell in table.cells.values() if _was_tried(cell)]
    for cell in cells:
        tags = {"mlflow.parentRunId": parent, "gate": _gate(cell)}
        name = f"{cell.op} {cell.column}"
        child = store.start(name, tags, _cell_params(cell), cell_metrics(cell))
        store.client.set_terminated(child)
    store.client.log_table(parent, rows(table), "matrix.json")
    store.add_files(parent, folder)
    if not (folder / "records.jsonl").is_file():
        lines = "".join(record.to_json() + "\n" for record in records)
        store.client.log_text(parent, lines, "records.jsonl")
    store.client.set_terminated(parent)
    return Tracked(store.uri, store.experiment, parent, len(cells))


def _was_tried(cell: TableCell) -> bool:
    """What no toolchain supports is a row of the parent's matrix.json and no run of its own."""
    return any(record.verdict is not Verdict.UNSUPPORTED for record in cell.records)


class Store:
    """One connection to a tracking store, and the experiment that runs go to."""

    def __init__(self, uri: str, experiment: str) -> None:
        from mlflow import MlflowClient

        self.uri, self.experiment = uri, experiment
        database = _sqlite_file(uri)
        # Processes that create the same database at the same time break its migrations.
        with _lock(database):
            self.client = MlflowClient(tracking_uri=uri)
            self.experiment_id = self._experiment_id(database)

    def _experiment_id(self, database: Path | None) -> str:
        found = self.client.get_experiment_by_name(self.experiment)
        if found is not None:
            return str(found.experiment_id)
        # MLflow would put artifacts below the current folder, wherever the database is.
        place = None if database is None else (database.parent / "mlruns" / _slug(self.experiment))
        return str(
            self.client.create_experiment(self.experiment, place.as_uri() if place else None)
        )

    def start(
        self,
        name: str,
        tags: Mapping[str, str],
        params: Mapping[str, str],
        metrics: Mapping[str, float],
    ) -> str:
        """The id of a new run."""
        from mlflow.entities import Metric, Param

        run = self.client.create_run(self.experiment_id, tags=dict(tags), run_name=name)
        now = int(time.time() * 1000)
        logged = [Metric(_key(key), value, now, 0) for key, value in metrics.items()]
        given = [Param(key, value) for key, value in params.items()]
        run_id = str(run.info.run_id)
        for start in range(0, max(len(logged), 1), BATCH):
            batch = logged[start : start + BATCH]
            self.client.log_batch(run_id, batch, given if start == 0 else [])
        return run_id

    def add_files(self, run_id: str, folder: Path) -> None:
        """Those that lie in ``folder``, as artifacts."""
        files = sorted(p for p in folder.iterdir() if p.is_file()) if folder.is_dir() else []
        files = [file for file in files if not file.name.startswith(".")]
        for file in files:
            self.client.log_artifact(run_id, str(file))


def _datasets(store: Store, run_id: str, table: Table) -> None:
    """The workloads of each op, as inputs of the run."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    context = [InputTag("mlflow.data.context", "evaluation")]
    inputs = []
    for op, workloads in sorted(_workloads(table.records).items()):
        text = json.dumps(workloads)
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        profile = json.dumps({"workloads": len(workloads)})
        inputs.append(DatasetInput(Dataset(op, digest, "portkern", text, None, profile), context))
    store.client.log_inputs(run_id, inputs)


def counts(group: TableGroup) -> dict[str, float]:
    """What MLflow compares between matrices."""
    metrics = {"cells": float(len(group)), "passed": group.passed, "failed": len(group.failing)}
    metrics |= {f"verdict/{verdict}": n for verdict, n in group.verdicts.items()}
    metrics |= {f"evidence/{evidence}": n for evidence, n in group.rungs.items()}
    evaluated = group.passed + len(group.failing)
    if evaluated:  # a cell that nobody could run is no failure
        metrics["pass_rate"] = group.passed / evaluated
    if group.speedup is not None:
        metrics["geomean_speedup"] = group.speedup.value
    return metrics


def cell_metrics(cell: TableCell) -> dict[str, float]:
    metrics = counts(cell)
    for record in cell.records:
        speedup = speedup_of(record)
        if speedup is not None:
            metrics[f"speedup/{record.workload.dtype}/{record.workload.name}"] = speedup
    return metrics


def rows(table: Table) -> dict[str, list[Json]]:
    """Every cell as a row, by column: what ``mlflow.load_table`` gives back."""
    found = [_row(record) for record in table.records]
    return {name: [row[name] for row in found] for name in found[0]}


def _row(record: Record) -> JsonObject:
    return {
        "op": record.op,
        "backend": record.backend,
        "language": record.language,
        "target": record.target,
        "set": record.workload.set,
        "workload": record.workload.name,
        "dtype": record.workload.dtype,
        "verdict": str(record.verdict),
        "evidence": str(record.evidence),
        "venue": record.venue,
        "median_us": record.timing.median_us if record.timing else None,
        "speedup": speedup_of(record),
        "detail": headline(record.detail),
        "missing": headline(record.missing),
        "id": record.id,
    }


def _cell_params(cell: TableCell) -> dict[str, str]:
    column = cell.column
    params = {
        "op": cell.op,
        "backend": column.backend,
        "target": column.target,
        "dtypes": _joined(r.workload.dtype for r in cell.records),
        "languages": _joined(r.language for r in cell.records),
        "authors": _joined(r.author for r in cell.records),
        "toolchain": _toolchain(cell.records),
    }
    try:
        params["arch"] = load_target(column.target).arch
    except ConfigError:
        pass  # another machine's own target: its name is all that is known of it here
    return {name: value for name, value in params.items() if value}


def _run_tags(table: Table, experiment: str) -> dict[str, str]:
    tags = {
        "suite": experiment,
        "gate": _gate(table.whole),
        "run": _joined(r.run for r in table.records),
        "machine": _joined(e.machine for e in table.environments),
        "device": _joined(e.device for e in table.environments),
        "driver": _joined(e.driver for e in table.environments),
        "portkern": _joined(e.harness_version for e in table.environments),
        "toolchain": _toolchain(table.records),
        "mlflow.source.name": "portkern",
        "mlflow.source.git.commit": _git_sha(),
    }
    return {name: value for name, value in tags.items() if value}


def _gate(group: TableGroup) -> str:
    return "fail" if group.failing else "pass"


def _workloads(records: Iterable[Record]) -> dict[str, list[JsonObject]]:
    found: dict[str, dict[str, JsonObject]] = {}
    for record in records:
        w = record.workload
        entry: JsonObject = {"set": w.set, "name": w.name, "dims": w.dims, "scalars": w.scalars}
        found.setdefault(record.op, {})[json.dumps(entry, sort_keys=True)] = entry
    return {op: [entries[key] for key in sorted(entries)] for op, entries in found.items()}


def _joined(values: Iterable[str]) -> str:
    return ", ".join(sorted({value for value in values if value}))[:TAG_LIMIT]


def _toolchain(records: Iterable[Record]) -> str:
    parts = (r.environment.toolchain.items() for r in records)
    return _joined(f"{name} {version}" for items in parts for name, version in items)


def _git_sha() -> str:
    """Of the tree that the command ran in: the user's kernels, not portkern's own."""
    try:
        return run_tool(["git", "rev-parse", "HEAD"], timeout_s=10, error=ToolError).strip()
    except ToolError:
        return ""


def _key(name: str) -> str:
    """MLflow takes letters, digits and ``_-. :/`` in the name of a metric."""
    return re.sub(r"[^\w\-. :/]", "_", clean(name))[:250]


def _slug(name: str) -> str:
    return re.sub(r"[^\w.-]", "_", name)


def _sqlite_file(uri: str) -> Path | None:
    path = uri.removeprefix("sqlite:///").partition("?")[0]
    return Path(path).absolute() if path and path != uri else None


def _lock(database: Path | None) -> AbstractContextManager[object]:
    if database is None:
        return nullcontext()
    database.parent.mkdir(parents=True, exist_ok=True)
    return FileLock(f"{database}.lock")
