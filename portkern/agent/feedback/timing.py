"""How fast a right kernel is: against each baseline, and against what the hardware allows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from portkern.agent.attempt import speedups
from portkern.agent.axes import Measured
from portkern.agent.feedback.rendering import Form, sentences
from portkern.agent.task import Task
from portkern.records.record import Record, Verdict
from portkern.spec.candidate import Candidate


class TimingFeedback:
    kind: ClassVar[str] = "timing"
    stage: ClassVar[int] = 2

    def __init__(self, *, baseline: str, render: Form) -> None:
        self._baseline, self._render = baseline, render

    def measure(self, task: Task, candidate: Candidate, records: Sequence[Record]) -> Measured:
        timed = [record for record in records if record.timing is not None]
        if not timed:
            passed = [record for record in records if record.verdict is Verdict.PASSED]
            why = next((record.missing for record in passed if record.missing), "")
            return Measured({}, "Time", f"It was not timed: {why}." if why else "")
        metrics = dict(self._metrics(task, timed))
        lines = [_told(record) for record in timed]
        if self._render == "nl":
            lines += sentences(metrics)
        return Measured(metrics, "Time", "\n".join(lines))

    def _metrics(self, task: Task, timed: Sequence[Record]) -> Iterator[tuple[str, float]]:
        most = largest(task, timed)
        assert most.timing is not None
        yield "median_us", most.timing.median_us
        over = list(speedups(timed, self._baseline).values())
        if over:
            yield "speedup", math.exp(sum(map(math.log, over)) / len(over))
        if most.roofline is not None and most.roofline.fraction is not None:
            yield "roofline_pct", 100 * most.roofline.fraction


def largest(task: Task, records: Sequence[Record]) -> Record:
    """The record whose workload has the most bytes to move; of equals the first."""
    return max(
        records, key=lambda record: task.op.nbytes(record.workload.dims, record.workload.dtype)
    )


def _told(record: Record) -> str:
    assert record.timing is not None
    parts = [f"{record.timing.median_us:.4g} µs"]
    for name, ratio in record.speedup.items():
        low, high = ratio.ci95
        parts.append(f"{ratio.value:.3g} times as fast as {name} [{low:.3g}, {high:.3g}]")
    if record.timing.noisy:
        parts.append(f"too noisy to be compared: {record.timing.noisy}")
    roofline = record.roofline
    if roofline is not None and roofline.fraction is not None:
        parts.append(f"{roofline.fraction:.0%} of the roofline ({roofline.basis})")
    return f"{record.workload.set}/{record.workload.name} ({_dims(record.workload.dims)}): " + (
        ", ".join(parts)
    )


def _dims(dims: Mapping[str, int]) -> str:
    return " ".join(f"{axis}={length}" for axis, length in dims.items())
