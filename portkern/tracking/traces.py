"""Traces of models' calls, as MLflow shows them: what was asked and answered, with a span for
each call."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from portkern.agent.llm.calls import ModelCall
from portkern.tracking.store import Store


@contextmanager
def sent_to(uri: str) -> Iterator[None]:
    """MLflow's functions for spans know one store at a time. Its address lies in the environment
    too, and what was there before is there afterwards, where a caller can change it."""
    import mlflow

    # Otherwise they are sent from a thread that may outlive the store.
    os.environ["MLFLOW_ENABLE_ASYNC_TRACE_LOGGING"] = "false"
    before = os.environ.get("MLFLOW_TRACKING_URI")
    mlflow.set_tracking_uri(uri)
    try:
        yield
    finally:
        mlflow.set_tracking_uri(None)  # type: ignore[arg-type]  # it then asks the environment
        if before is not None:
            os.environ["MLFLOW_TRACKING_URI"] = before


def add(
    store: Store,
    run: str,
    name: str,
    calls: Sequence[ModelCall],
    *,
    inputs: Mapping[str, object],
    outputs: Mapping[str, object],
    tags: Mapping[str, str] | None = None,
) -> None:
    """Adds a trace, within :func:`sent_to`. Calls follow each other in it, though some were made at
    the same time: the log has no clock."""
    import mlflow
    from mlflow.entities import SpanType

    start = now = time.time_ns()
    root = mlflow.start_span_no_context(
        name,
        span_type=SpanType.AGENT,
        start_time_ns=start,
        inputs=dict(inputs),
        tags=dict(tags or {}),
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
    root.end(outputs=dict(outputs), end_time_ns=now)
