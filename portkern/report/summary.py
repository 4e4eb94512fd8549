"""``summary.json``: the counts and aggregates a script wants, without reading every record."""

from __future__ import annotations

import json
from importlib.metadata import version
from typing import TYPE_CHECKING

from portkern.printable import printable
from portkern.records.record import Record
from portkern.report import coverage
from portkern.report.table import BASELINE, ColumnTotal, Geomean, MatrixTable, TableGroup, headline

if TYPE_CHECKING:
    from portkern.spec.json_types import JsonObject


def render(table: MatrixTable, *, title: str) -> str:
    return json.dumps(document(table, title=title), indent=1, ensure_ascii=False) + "\n"


def document(table: MatrixTable, *, title: str) -> JsonObject:
    return {
        "schema": 1,
        "title": printable(title),
        "portkern": version("portkern"),
        "generated": table.generated,
        "runs": sorted({r.run for r in table.records}),
        "baseline": BASELINE,
        "superseded": table.superseded,
        "ops": list(table.ops),
        "targets": list(table.targets),
        **_counts(table.whole),
        "columns": [_column(total) for total in table.totals.values()],
        "uncovered": [
            {"backend": gap.backend, "targets": list(gap.targets), "reason": gap.reason}
            for gap in coverage.gaps(table)
        ],
        "regressions": _regressions(table),
        "bad": [_bad(table, record) for record in table.failing],
        "quarantined": [
            {**_bad(table, record), "why": printable(table.quarantine(record))}
            for record in table.quarantined
        ],
        "environments": [e.model_dump() for e in table.environments],
    }


def _regressions(table: MatrixTable) -> JsonObject | None:
    """The regressions as JSON; None where the run was compared with none."""
    changes = table.changes
    if changes is None:
        return None
    return {"before": printable(changes.before), "counts": dict(changes.counts)}


def _counts(group: TableGroup) -> JsonObject:
    return {
        "cells": len(group),
        "passed": group.passed,
        "failed": len(group.failing),
        "verdicts": {str(v): n for v, n in group.verdicts.items()},
        "evidence": {str(e): n for e, n in group.rungs.items()},
        "noisy": group.noisy,
        "speedup": _geomean(group.speedup),
    }


def _geomean(speedup: Geomean | None) -> dict[str, float] | None:
    return None if speedup is None else {"geomean": round(speedup.value, 6), "n": speedup.n}


def _column(total: ColumnTotal) -> JsonObject:
    column = total.column
    return {
        "backend": column.backend,
        "language": column.language,
        "target": column.target,
        **_counts(total),
        "ops": {
            **{str(e): [c.op for c in cells] for e, cells in total.ops_by_rung.items()},
            "failed": [c.op for c in total.ops_failing],
        },
        "roofline_worst": total.roofline,
        "missing": list(total.missing),
    }


def _bad(table: MatrixTable, record: Record) -> JsonObject:
    return {
        "id": record.id,
        "op": record.row,
        "column": str(table.column(record)),
        "set": record.workload.set,
        "workload": record.workload.name,
        "dtype": record.workload.dtype,
        "verdict": str(record.verdict),
        "detail": headline(record.detail),
    }
