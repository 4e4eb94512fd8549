"""A comparison as the page's script reads it: rows of numbers, and each string once."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from portkern.experiment.compare.page.packed import EVIDENCE, STATUSES, number
from portkern.experiment.compare.result import METRICS, ModelComparison, Portability, SampleScope
from portkern.experiment.statistics import Estimate
from portkern.printable import printable
from portkern.report.page import Interned

if TYPE_CHECKING:
    from portkern.spec.json_types import Json, JsonObject


def payload(comparison: ModelComparison, ops: list[str]) -> JsonObject:
    """The page's data without the samples. Models, places and ops are numbers in their lists."""
    reasons = Interned()
    models = {name: i for i, name in enumerate(comparison.models)}
    places = {place: i for i, place in enumerate(comparison.places)}
    op_numbers = {name: i for i, name in enumerate(ops)}
    scopes = {s: i for i, s in enumerate(dict.fromkeys(f.scope for f in comparison.figures))}
    figures: list[Json] = [
        [scopes[f.scope], f.metric, f.k, f.p, *_estimate(f.estimate), f.tasks, f.samples,
         reasons[f.reason]]
        for f in comparison.figures
    ]  # fmt: skip
    tasks: list[Json] = [
        [models[t.model], op_numbers[t.op], printable(t.suite), printable(t.dtype),
         places[t.place], t.venue, t.samples, t.unevaluated, t.correct, t.timed, t.cheats,
         *_estimate(t.passed)[:3], number(t.best_speedup), number(t.best_efficiency),
         number(t.best_us)]
        for t in comparison.tasks
    ]  # fmt: skip

    def cascade(one: Portability) -> Json:
        steps: list[Json] = [
            [places[s.place], number(s.efficiency), number(s.portability)] for s in one.steps
        ]
        blocked = places[one.blocked] if one.blocked else None
        where: list[Json] = [models[one.model], op_numbers.get(one.op), printable(one.dtype)]
        told: list[Json] = [number(one.value), blocked, number(one.mean_of_supported)]
        return [*where, one.kind, *told, steps, printable(one.reason)]

    return {
        "models": [printable(model) for model in comparison.models],
        "places": [[printable(p.backend), printable(p.target)] for p in comparison.places],
        "ops": [printable(op) for op in ops],
        "suites": [printable(suite) for suite in comparison.suites],
        "ks": list(comparison.ks),
        "venues": list(comparison.venues()),
        "statuses": list(map(str, STATUSES)),
        "evidence": list(EVIDENCE),
        "metrics": {name: asdict(metric) for name, metric in METRICS.items()},
        "scopes": [_scope(scope, models) for scope in scopes],
        "figures": figures,
        "reasons": reasons.strings,
        "tasks": tasks,
        "cascades": [cascade(one) for one in comparison.cascades],
        "portability": [cascade(one) for one in comparison.portability],
        "translations": [
            [models[t.model], printable(t.donor), printable(t.backend), t.venue,
             *_estimate(t.estimate), t.tasks, t.samples]
            for t in comparison.translations
        ],
        "divergences": [
            [models[d.model], *sorted((places[d.first], places[d.second])), *_estimate(d.estimate)]
            for d in comparison.divergences
        ],
        "differences": [
            [models[d.first], models[d.second], d.metric, d.k, d.threshold, d.venue,
             *_estimate(d.estimate), number(d.p_value), number(d.p_holm), d.shown, d.tasks,
             printable(d.words)]
            for d in comparison.differences
        ],
    }  # fmt: skip


def _scope(scope: SampleScope, models: dict[str, int]) -> Json:
    parts = (scope.venue, scope.backend, scope.target, scope.suite)
    return [models[scope.model], *map(printable, parts)]


def _estimate(estimate: Estimate | None) -> list[Json]:
    """Value, ends of the interval and the number of units; None for each that is not known."""
    if estimate is None:
        return [None, None, None, 0]
    low, high = estimate.ci95 or (None, None)
    return [number(estimate.value), number(low), number(high), estimate.n]
