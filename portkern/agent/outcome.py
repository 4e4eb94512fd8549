"""How a run ended: the best kernel, on sizes that nobody saw, and in a race against the others."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict

from portkern.agent import rank
from portkern.agent.attempt import Attempt, speedups
from portkern.agent.bench import Bench, BenchWorkload
from portkern.agent.log import Log
from portkern.agent.proposer.catalogue import shipped
from portkern.agent.task import Task
from portkern.errors import RecordError
from portkern.evaluator import statistics
from portkern.records.record import Record, Speedup
from portkern.spec import foreign_text
from portkern.spec.candidate import Candidate
from portkern.spec.foreign_text import json_value

#: The summary in a run's folder, once it came to its end.
FILE = "summary.json"
#: So many of the fastest attempts come to the end: scores are of races of their own, and the
#: highest of many is a lucky one too.
FINALISTS = 3


class RunCost(TypedDict):
    """The cost of a run; None where it is not known."""

    usd: float | None
    tokens_in: int | None
    tokens_out: int | None
    calls: int


class RunSeconds(TypedDict):
    wall: float
    device: float


class RunSummary(TypedDict):
    """The content of ``summary.json``; ``told`` is the run's end in words, by topic."""

    op: str
    target: str
    backend: str
    language: str
    dtype: str
    seed: int
    preset: Mapping[str, object]
    axes: Mapping[str, Mapping[str, object]]
    author: str
    stopped: str
    down: bool
    attempts: int
    statuses: Mapping[str, int]
    curve: Sequence[float]
    best: str | None
    score: float
    speedups: Mapping[str, float]
    final: Mapping[str, int]
    passed_over: Mapping[str, str]
    gain: Mapping[str, object]
    why_no_gain: str
    cost: RunCost
    seconds: RunSeconds
    exit_code: int
    told: dict[str, str]


@dataclass(frozen=True)
class RunOutcome:
    """``final`` are the best one's records of the last sets; ``out`` says of others why they are
    out. From the one race at the end: ``speedups`` of the best over the baseline by workload, and
    its ``gain`` over the kernel that the run started from, else the catalogue's as it ships
    (``why_no_speedup`` and ``why_no_gain`` where there is none)."""

    best: Attempt | None = None
    final: tuple[Record, ...] = ()
    out: Mapping[str, str] = field(default_factory=dict)
    speedups: Mapping[str, float] = field(default_factory=dict)
    gain: Mapping[str, Speedup] = field(default_factory=dict)
    why_no_speedup: str = ""
    why_no_gain: str = ""


def read(folder: Path) -> RunSummary:
    """Reads the summary of the run in ``folder``. Raises RecordError."""
    path = folder / FILE
    try:
        content = json_value(foreign_text.content(path))
    except (OSError, ValueError) as error:
        raise RecordError(f"Cannot read {path}: {error}; use fresh=true for that run") from error
    if not isinstance(content, dict):
        raise RecordError(f"{path} holds no summary of a run; use fresh=true for that run")
    summary: RunSummary = content  # type: ignore[assignment]  # it is portkern's own file
    return summary


def conclude(
    log: Log, task: Task, bench: Bench, last: Bench, race: Sequence[BenchWorkload], baseline: str
) -> RunOutcome:
    """``last`` evaluates the last sets; ``race`` are the workloads on which ``bench`` races the
    finalists, with inputs of all distributions."""
    kernel = shipped(task)
    finalists = log.best(FINALISTS)
    own = log.by_digest(kernel.digest) if kernel else None
    if own and own.correct and own not in finalists:
        finalists.append(own)
    final: dict[str, tuple[Record, ...]] = {}
    out: dict[str, str] = {}
    for attempt in finalists:
        final[attempt.id] = tuple(last.evaluate(_candidate(task, attempt))) if last.work else ()
        out |= _why_out(attempt.id, final[attempt.id])
    standing = [finalist for finalist in finalists if finalist.id not in out]
    if not standing:
        return RunOutcome(out=out)
    others = (
        [kernel] if kernel and kernel.digest not in {attempt.digest for attempt in standing} else []
    )
    by_workload = bench.race([*others, *(_candidate(task, attempt) for attempt in standing)], race)
    raced = {
        attempt.id: [records[len(others) + k] for records in by_workload]
        for k, attempt in enumerate(standing)
    }
    for attempt in standing:
        out |= _why_out(attempt.id, raced[attempt.id])
    left = [attempt for attempt in standing if attempt.id not in out]
    if not left:
        return RunOutcome(out=out)
    # Of equals the first, which was the faster one when it was evaluated.
    best = min(left, key=lambda attempt: _mean_us(raced[attempt.id]))
    ours = raced[best.id]
    theirs = [records[0] for records in by_workload] if others else raced[own.id] if own else []
    gain, why = _gain(task, best, kernel, ours, theirs)
    against = speedups(ours, baseline)
    untimed = "" if against else why_untimed(ours)
    return RunOutcome(best, final[best.id], out, against, gain, untimed, why)


def _candidate(task: Task, attempt: Attempt) -> Candidate:
    return task.candidate(attempt.source, author=attempt.author)


def _why_out(name: str, records: Sequence[Record]) -> dict[str, str]:
    bad = [record for record in records if record.verdict.bad]
    if not bad:
        return {}
    where = f"{bad[0].workload.set}/{bad[0].workload.name}"
    return {name: f"{bad[0].verdict} on {where}: {bad[0].detail.partition(chr(10))[0]}"}


def _mean_us(records: Sequence[Record]) -> float:
    """Geometric mean of the medians; infinite where nothing was timed."""
    times = [record.timing.median_us for record in records if record.timing and record.comparable]
    if not times:
        return math.inf
    return math.exp(sum(map(math.log, times)) / len(times))


def _gain(
    task: Task,
    best: Attempt,
    kernel: Candidate | None,
    ours: Sequence[Record],
    theirs: Sequence[Record],
) -> tuple[dict[str, Speedup], str]:
    if kernel is None:
        return {}, f"{task.backend.name} ships no {task.language} kernel of {task.op.name}"
    if best.digest == kernel.digest:
        return (
            {},
            "it is the kernel itself" if task.start else "it is the catalogue's kernel as it ships",
        )
    gains = {
        mine.workload.name: statistics.speedup(mine.timing.samples, its.timing.samples)
        for mine, its in zip(ours, theirs, strict=False)
        if mine.timing and its.timing and mine.comparable and its.comparable
    }
    return gains, "" if gains else _without_times(ours, theirs)


def _without_times(ours: Sequence[Record], theirs: Sequence[Record]) -> str:
    """Why there is no gain, and what both are ranked by instead where nothing was timed."""
    why = why_untimed([*ours, *theirs])
    mine, its = rank.of(ours), rank.of(theirs)
    timed = any(record.timing for record in (*ours, *theirs))
    return why if timed or not mine.anything else f"{why}; it has {mine}; that kernel {its}"


def why_untimed(records: Sequence[Record]) -> str:
    """The reason why none of these records can be compared."""
    if any(record.timing for record in records):
        return "times were too noisy to be compared; run it where the machine is less busy"
    return "there is nothing here to time it on"
