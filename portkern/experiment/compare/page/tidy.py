"""``compare.csv``: one row for each number, so that any other tool can draw it."""

from __future__ import annotations

import csv
import io
from typing import Final

from portkern.experiment.compare.result import METRICS, Figure, ModelComparison
from portkern.printable import cell

HEAD: Final = (
    "model", "evidence", "backend", "target", "suite", "metric", "k", "p", "value", "low", "high",
    "n", "unit", "tasks", "samples", "reason",
)  # fmt: skip


def render(comparison: ModelComparison) -> str:
    """An empty ``backend``, ``target`` or ``suite`` is all of them, an empty ``value`` is none, for
    the ``reason``."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(HEAD)
    writer.writerows(map(_row, comparison.figures))
    return file.getvalue()


def _row(figure: Figure) -> tuple[object, ...]:
    scope, estimate = figure.scope, figure.estimate
    low, high = (estimate and estimate.ci95) or ("", "")
    names = (scope.model, scope.venue, scope.backend, scope.target, scope.suite, figure.metric)
    return (
        *map(cell, names),
        "" if figure.k is None else figure.k,
        "" if figure.p is None else figure.p,
        "" if estimate is None else estimate.value,
        low,
        high,
        estimate.n if estimate else 0,
        METRICS[figure.metric].unit,
        figure.tasks,
        figure.samples,
        cell(figure.reason),
    )
