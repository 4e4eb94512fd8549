"""How a run ended: the best kernel, on sizes that nobody saw, and against the one that ships."""

from __future__ import annotations

from dataclasses import dataclass, field

from portkern import timing
from portkern.agent.attempt import Attempt
from portkern.agent.bench import Bench
from portkern.agent.log import Log
from portkern.agent.proposer.catalogue import shipped
from portkern.agent.task import Task
from portkern.record import Record, Speedup

#: So many of the fastest are judged on the last sets before nobody is the best.
FINALISTS = 3


@dataclass(frozen=True)
class Outcome:
    """``final`` are the best one's records of the last sets; ``out`` says of faster ones why they
    are not the best. ``gain`` over the catalogue's kernel as it ships, by workload, from one race;
    ``why_no_gain`` where there was none."""

    best: Attempt | None = None
    final: tuple[Record, ...] = ()
    out: dict[str, str] = field(default_factory=dict)
    gain: dict[str, Speedup] = field(default_factory=dict)
    why_no_gain: str = ""


def conclude(log: Log, task: Task, bench: Bench, last: Bench) -> Outcome:
    """``last`` judges the last sets, ``bench`` has the workloads of the search."""
    out: dict[str, str] = {}
    for attempt in log.best(FINALISTS):
        candidate = task.candidate(attempt.source, author=attempt.author)
        records = last.judge(candidate) if last.work else []
        why = _failure(records)
        gain: dict[str, Speedup] = {}
        if not why:
            gain, raced, why_no_gain = _raced(attempt, task, bench)
            why = _failure(raced)
        if not why:
            return Outcome(attempt, tuple(records), out, gain, why_no_gain)
        out[attempt.id] = why
    return Outcome(out=out)


def _failure(records: Sequence[Record]) -> str:
    bad = [one for one in records if one.verdict.bad]
    if not bad:
        return ""
    where = f"{bad[0].workload.set}/{bad[0].workload.name}"
    return f"{bad[0].verdict} on {where}: {bad[0].detail.partition(chr(10))[0]}"


def _raced(
    attempt: Attempt, task: Task, bench: Bench
) -> tuple[dict[str, Speedup], list[Record], str]:
    """The gain over the catalogue's kernel in one race on the workloads that scores are of, with
    inputs of all distributions; the attempt's records, and why there is no gain."""
    candidate = task.candidate(attempt.source, author=attempt.author)
    kernel = shipped(task)
    same = kernel is not None and kernel.digest == candidate.digest
    others = [kernel] if kernel and not same else []
    scored = [one for one in bench.work if one.set == list(task.workloads)[-1]]
    told = bench.race([*others, candidate], scored)
    ours = [records[-1] for records in told]
    if kernel is None:
        return {}, ours, f"{task.backend.name} ships no {task.language} kernel of {task.op.name}"
    if same:
        return {}, ours, "it is the catalogue's kernel as it ships"
    gain = {
        mine.workload.name: timing.speedup(mine.timing.samples, theirs.timing.samples)
        for theirs, mine in told if mine.timing and theirs.timing
    }  # fmt: skip
    return gain, ours, "" if gain else "there is nothing here to time the two on"
