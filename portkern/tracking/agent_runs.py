"""A generation run in MLflow: a run with the best score over attempts, a trace for each attempt."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from portkern.agent.attempt import Attempt
from portkern.agent.llm.calls import Calls, ModelCall
from portkern.agent.log import Log
from portkern.agent.outcome import RunSummary
from portkern.tracking import traces
from portkern.tracking.store import BATCH, SkippedLog, Store, Tracked, public, sent

EXPERIMENT = "portkern generate"
__all__ = ["EXPERIMENT", "SkippedLog", "track"]


def track(
    log: Log, calls: Calls, document: RunSummary, folder: Path, uri: str | None = None
) -> Tracked | SkippedLog:
    """``document`` is the run's summary. Does not raise for a lost server."""

    def send(store: Store) -> Tracked:
        numbers: dict[str, float] = {"score": document["score"], "attempts": len(log)}
        numbers |= {f"status/{name}": n for name, n in document["statuses"].items()}
        cost: Mapping[str, object] = document["cost"]
        numbers |= {k: v for k, v in cost.items() if isinstance(v, int | float)}
        store.end_lost()
        run = store.start(folder.name, _tags(document))
        store.incomplete(run)
        store.add(run, numbers, params=_params(document))
        _curve(store, run, document["curve"])
        store.add_files(run, folder)
        traced = _traces(store, run, log, calls)
        store.finish(run)
        return Tracked(public(store.uri), store.experiment, run, traced, store.experiment_id)

    return sent(send, experiment=EXPERIMENT, uri=uri)


def _tags(document: RunSummary) -> dict[str, str]:
    return {
        "preset": str(document["preset"].get("name", "")),
        "author": document["author"][:4000],
    }


def _params(document: RunSummary) -> dict[str, str]:
    facts: Mapping[str, object] = document
    named = {k: str(facts[k]) for k in ("op", "target", "backend", "language", "dtype", "seed")}
    return named | {
        axis: str(options["kind"])
        for axis, options in document["axes"].items()
        if "kind" in options
    }


def _curve(store: Store, run: str, curve: Sequence[float]) -> None:
    from mlflow.entities import Metric

    now = int(time.time() * 1000)
    points = [Metric("best_so_far", value, now, step) for step, value in enumerate(curve, 1)]
    for start in range(0, len(points), BATCH):
        store.client.log_batch(run, points[start : start + BATCH])


def _traces(store: Store, run: str, log: Log, calls: Calls) -> int:
    """One for each attempt that took calls."""
    asked = [attempt for attempt in log if any(name in calls for name in attempt.calls)]
    if not asked:
        return 0
    with traces.sent_to(store.uri):
        for attempt in asked:
            _trace(store, run, attempt, [calls[name] for name in attempt.calls if name in calls])
    return len(asked)


def _trace(store: Store, run: str, attempt: Attempt, calls: Sequence[ModelCall]) -> None:
    traces.add(
        store,
        run,
        f"attempt {attempt.id}",
        calls,
        inputs={"parents": attempt.parents, "idea": attempt.idea, "arm": attempt.arm},
        outputs={
            "status": str(attempt.status),
            "score": attempt.score,
            "detail": attempt.detail,
        },
    )
