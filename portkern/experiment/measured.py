"""Measures of one job, by which arms are compared."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from portkern.experiment import statistics
from portkern.experiment.contrast import ContrastMeasure, means
from portkern.experiment.ending import AttemptEnding
from portkern.experiment.job import FinishedJob
from portkern.experiment.section import ChartLine

#: None where nothing is known.
OfJob = Callable[[FinishedJob], float | None]
Task = tuple[str, str]

SOLVED = ContrastMeasure("solved", "solved")
CORRECT = ContrastMeasure("correct", "correct attempts")
SPEEDUP = ContrastMeasure("speedup", "speedup", ratio=True)


def task(done: FinishedJob) -> Task:
    """An operator and where it was asked for: what arms are compared on."""
    return done.job.operator, done.job.place


def evaluated(done: FinishedJob) -> list[AttemptEnding]:
    return [ending for ending in done.endings if ending.status]


def solved(done: FinishedJob) -> float | None:
    """Whether any attempt was correct."""
    ends = evaluated(done)
    return float(any(ending.correct for ending in ends)) if ends else None


def correct(done: FinishedJob) -> float | None:
    ends = evaluated(done)
    return sum(ending.correct for ending in ends) / len(ends) if ends else None


def speedup(done: FinishedJob) -> float | None:
    """The logarithm of the best kernel's, from the race at the job's end where there was one: the
    highest score of many is in part luck."""
    raced = list(done.summary.get("speedups", {}).values())
    scores = raced or [max((e.score for e in evaluated(done) if _timed(e)), default=0.0)]
    return math.fsum(map(math.log, scores)) / len(scores) if all(scores) else None


def usual_speedup(done: FinishedJob) -> float | None:
    """The logarithm of the geometric mean over its correct attempts: that of one of them."""
    scores = [math.log(ending.score) for ending in evaluated(done) if _timed(ending)]
    return math.fsum(scores) / len(scores) if scores else None


def scores(done: Sequence[FinishedJob], of: OfJob) -> Mapping[object, float]:
    """The scores by task, averaged over seeds."""
    known = [(task(finished), of(finished)) for finished in done]
    return means((where, value) for where, value in known if value is not None)


def solved_by_turn(
    groups: Mapping[str, Sequence[FinishedJob]], count: int
) -> tuple[ChartLine, ...]:
    """A line for each group: the share of tasks with a correct kernel by each turn."""
    return tuple(
        ChartLine(name, tuple(statistics.means(list(_by_task(own, count).values()))))
        for name, own in groups.items()
        if any(map(evaluated, own))
    )


def _by_task(own: Sequence[FinishedJob], count: int) -> dict[object, list[float]]:
    """Whether it was solved by each turn: the mean over seeds."""
    turns = [
        means(
            (task(done), float(any(end.correct for end in done.endings[: turn + 1])))
            for done in own
        )
        for turn in range(count)
    ]
    return {where: [turn[where] for turn in turns] for where in turns[0]}


def _timed(ending: AttemptEnding) -> bool:
    return ending.correct and ending.timed


MEASURES: Mapping[ContrastMeasure, OfJob] = {SOLVED: solved, CORRECT: correct, SPEEDUP: speedup}
