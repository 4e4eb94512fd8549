"""A matrix in MLflow's numbers, tags and tables. MLflow's page groups charts by what stands before
the last ``/`` of a metric's name."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from portkern.errors import ConfigError, ToolError
from portkern.printable import printable
from portkern.records.record import Evidence, Record, Verdict
from portkern.regression import document
from portkern.regression.comparison import RunComparison
from portkern.regression.rule import ChangeKind
from portkern.regression.runs import RunFacts
from portkern.report.table import (
    MatrixTable,
    TableCell,
    TableGroup,
    headline,
    speedup_of,
)
from portkern.spec.target import load as load_target
from portkern.toolchain.git import run_git
from portkern.tracking.store import TAG_LIMIT, joined, metric_key

if TYPE_CHECKING:
    from portkern.spec.json_types import Json, JsonObject


def counts(group: TableGroup) -> dict[str, float]:
    """The numbers that MLflow compares between matrices. Those that there are none of are 0: a
    run that is logged again keeps no number from before."""
    metrics = {"cells": float(len(group)), "passed": group.passed, "failed": len(group.failing)}
    metrics |= {f"verdict/{verdict}": group.verdicts.get(verdict, 0) for verdict in Verdict}
    metrics |= {f"evidence/{evidence}": group.rungs.get(evidence, 0) for evidence in Evidence}
    evaluated = group.passed + len(group.failing)
    if evaluated:  # a cell that nobody could run is not a failure
        metrics["pass_rate"] = group.passed / evaluated
    metrics["noisy"] = group.noisy
    if group.speedup is not None:
        metrics["geomean_speedup"] = group.speedup.value
    return metrics


CHANGE = "change/"


def without_new_zeros(numbers: Mapping[str, float], before: Collection[str]) -> dict[str, float]:
    """The numbers without those of verdicts and evidence that are 0 and were not there
    ``before``: such zeros would be most of what a small group has. The numbers of changes are
    there each night, so that no chart has gaps."""
    return {
        name: n
        for name, n in numbers.items()
        if n or "/" not in name or name in before or name.startswith(CHANGE)
    }


def changes(comparison: RunComparison | None) -> dict[str, float]:
    """How many cells became slower, fixed … since the baseline."""
    if comparison is None:
        return {}
    return {f"{CHANGE}{change}": float(comparison.counts.get(change, 0)) for change in ChangeKind}


#: Cells that got worse which a run's description names; ``regressions.json`` has all.
MOST_NAMED = 10


def description(whole: TableGroup, comparison: RunComparison | None) -> str:
    """The text that MLflow's page shows of the run first, as Markdown."""
    passed = f"{whole.passed} of {len(whole)} cells passed, {len(whole.failing)} failed"
    lines = [f"{passed}. All of it: *matrix.html* among the artifacts."]
    if comparison is not None:
        changes = document.of(comparison)
        worse = [f"- {one}" for one in changes.cells if one.regressed]
        lines += ["", *worse[:MOST_NAMED], "", str(changes)]
    return printable("\n".join(lines))[:TAG_LIMIT]


#: The metrics of each time: what a run of a group and the history show; and what else the matrix's
#: run does.
FEW, MORE = ("us", "speedup"), ("us_low", "us_high", "noise")


def cell_metrics(
    group: TableCell, kinds: Collection[str], *, noisy: bool = True
) -> dict[str, float]:
    """The metrics of each time of the group: in microseconds the median and its 95 % interval,
    the noise, and the speedup against eager: ``us/softmax/cpu:x86_64-v3/8x128 float32``. Without
    the ``noisy`` ones no line over time is drawn through what was a busy machine."""
    numbers: dict[str, float] = {}
    sets: dict[tuple[str, str], set[str]] = {}
    for record in group.records:
        w = record.workload
        sets.setdefault((w.name, w.dtype), set()).add(w.set)
    for record in group.records:
        if not (noisy or record.comparable):
            continue
        w = record.workload
        name = f"{w.set}:{w.name}" if len(sets[w.name, w.dtype]) > 1 else w.name
        where = f"{group.op}/{group.column.tool}:{group.column.target}/{name} {w.dtype}"
        figures = _figures(record).items()
        numbers |= {f"{kind}/{where}": n for kind, n in figures if kind in kinds and n is not None}
    return numbers


def _figures(record: Record) -> dict[str, float | None]:
    timing = record.timing
    if timing is None:
        return {}
    low, high = timing.ci95_us or (None, None)
    return {
        "us": timing.median_us,
        "us_low": low,
        "us_high": high,
        "noise": timing.noise,
        "speedup": speedup_of(record),
    }


def rows(table: MatrixTable) -> dict[str, list[Json]]:
    """The cells as rows, by column: what ``mlflow.load_table`` gives back."""
    rows = [_row(record) for record in table.records]
    return {name: [row[name] for row in rows] for name in rows[0]}


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


def run_tags(table: MatrixTable, facts: RunFacts | None = None) -> dict[str, str]:
    """``facts``: of the checkout that the kernels are in, and of the CI job."""
    git = facts.git if facts else None
    tags = {
        "run": joined([r.run for r in table.records]),
        "machine": joined([e.machine for e in table.environments]),
        "device": joined([e.device for e in table.environments]),
        "driver": joined([e.driver for e in table.environments]),
        "portkern": joined([e.harness_version for e in table.environments]),
        "toolchain": _toolchain(table.records),
        "mlflow.source.git.commit": git.commit if git else _git_sha(),
        "mlflow.source.git.branch": git.branch if git else "",
        "git.dirty": "true" if git and git.dirty else "",
        "ci.job": facts.job if facts else "",
    }
    return {name: value for name, value in tags.items() if value}


#: Characters of a parameter's value that every store of MLflow's takes.
MOST_PARAM = 500


def run_params(table: MatrixTable, facts: RunFacts) -> dict[str, str]:
    """The parameters of a matrix: its commit, where it ran, with which tools, and the options
    that were given."""
    tags = run_tags(table, facts)
    names = {"mlflow.source.git.commit": "commit", "mlflow.source.git.branch": "branch"}
    kept = ("machine", "device", "driver", "portkern", "toolchain")
    params = {names.get(k, k): v for k, v in tags.items() if k in names or k in kept}
    params |= {metric_key(f"option.{name}"): value for name, value in facts.options.items()}
    return {name: value[:MOST_PARAM] for name, value in params.items() if value}


def group_params(group: TableCell) -> dict[str, str]:
    """The parameters of a group, which never change: MLflow keeps each as it was first given."""
    column = group.column
    params = {"op": group.op, "backend": column.backend, "target": column.target}
    try:
        params["arch"] = load_target(column.target).arch
    except ConfigError:
        pass  # another machine's own target: its name is all that is known of it here
    return params


def group_tags(group: TableCell) -> dict[str, str]:
    records = group.records
    tags = {
        "dtypes": joined([r.workload.dtype for r in records]),
        "languages": joined([r.language for r in records]),
        "authors": joined([r.author for r in records]),
        "toolchain": _toolchain(records),
    }
    return {name: value for name, value in tags.items() if value}


def workloads(records: Iterable[Record]) -> dict[str, list[JsonObject]]:
    """The workloads by op, each once."""
    by_op: dict[str, dict[str, JsonObject]] = {}
    for record in records:
        w = record.workload
        entry: JsonObject = {"set": w.set, "name": w.name, "dims": w.dims, "scalars": w.scalars}
        by_op.setdefault(record.op, {})[json.dumps(entry, sort_keys=True)] = entry
    return {op: [entries[key] for key in sorted(entries)] for op, entries in by_op.items()}


def milliseconds(time: str) -> int:
    """A record's time in milliseconds since 1970."""
    return int(datetime.fromisoformat(time).timestamp() * 1000)


def span_ms(records: Sequence[Record]) -> tuple[int, int]:
    """The times of the first record and of the last."""
    times = [milliseconds(record.time) for record in records]
    return min(times), max(times)


def _toolchain(records: Iterable[Record]) -> str:
    parts = (r.environment.toolchain.items() for r in records)
    return joined([f"{name} {version}" for items in parts for name, version in items])


def _git_sha() -> str:
    """The commit of the tree that the command ran in: the user's kernels, not portkern's own."""
    try:
        return run_git(Path.cwd(), "rev-parse", "HEAD").strip()
    except ToolError:
        return ""
