"""A generation run in MLflow: a run with the best score over attempts, a trace for each attempt."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from portkern.agent.attempt import Attempt
from portkern.agent.llm.calls import Calls, ModelCall
from portkern.agent.log import Log
from portkern.agent.outcome import RunSummary
from portkern.tracking.store import BATCH, Skipped, Store, Tracked, sent

EXPERIMENT = "portkern generate"
__all__ = ["EXPERIMENT", "Skipped", "track"]


def track(
    log: Log, calls: Calls, document: RunSummary, folder: Path, uri: str | None = None
) -> Tracked | Skipped:
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
        return Tracked(store.uri, store.experiment, run, traced, store.experiment_id)

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
    # Otherwise they are sent from a thread that may outlive the store.
    os.environ["MLFLOW_ENABLE_ASYNC_TRACE_LOGGING"] = "false"
    with _traced_in(store.uri):
        for attempt in asked:
            _trace(store, run, attempt, [calls[name] for name in attempt.calls if name in calls])
    return len(asked)


@contextmanager
def _traced_in(uri: str) -> Iterator[None]:
    """MLflow's functions for spans know one store at a time. Its address lies in the environment
    too, and what was there before is there afterwards, where a caller can change it."""
    import mlflow

    before = os.environ.get("MLFLOW_TRACKING_URI")
    mlflow.set_tracking_uri(uri)
    try:
        yield
    finally:
        mlflow.set_tracking_uri(None)  # type: ignore[arg-type]  # it then asks the environment
        if before is not None:
            os.environ["MLFLOW_TRACKING_URI"] = before


def _trace(store: Store, run: str, attempt: Attempt, calls: Sequence[ModelCall]) -> None:
    """Calls follow each other in it, though some were made at the same time: the log has no
    clock."""
    import mlflow
    from mlflow.entities import SpanType

    start = now = time.time_ns()
    root = mlflow.start_span_no_context(
        f"attempt {attempt.id}",
        span_type=SpanType.AGENT,
        start_time_ns=start,
        inputs={"parents": attempt.parents, "idea": attempt.idea, "arm": attempt.arm},
        experiment_id=store.experiment_id,
        metadata={"mlflow.sourceRun": run},
    )
    for call in calls:
        span = mlflow.start_span_no_context(
            call.role,
            span_type=SpanType.CHAT_MODEL,
            parent_span=root,
            start_time_ns=now,
            inputs={"messages": [vars(message) for message in call.messages], **call.params},
            attributes={
                "call": call.id,
                "model": call.answered or call.model,
                "prompt": call.prompt,
            },
        )
        if call.tokens_in is not None and call.tokens_out is not None:
            usage = {"input_tokens": call.tokens_in, "output_tokens": call.tokens_out}
            total = call.tokens_in + call.tokens_out
            span.set_attribute("mlflow.chat.tokenUsage", usage | {"total_tokens": total})
        now += int(call.seconds * 1e9)
        span.end(
            outputs={"reply": call.reply, "error": call.error},
            end_time_ns=now,
            status="ERROR" if call.error else "OK",
        )
    outputs = {"status": str(attempt.status), "score": attempt.score, "detail": attempt.detail}
    root.end(outputs=outputs, end_time_ns=now)
