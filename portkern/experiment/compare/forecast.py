"""How long what is left of a sweep takes: before it begins, by what kernels and replies of these
kinds took on this machine; then by what has ended."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Final

from portkern.agent import pace
from portkern.agent.llm.role import DEFAULT
from portkern.agent.pace import Pace
from portkern.agent.run import GenerationRun
from portkern.experiment.compare.task import AskedSample, ComparedModel, CompareTask

#: Seconds of a reply of a model that has not been asked on this machine before.
REPLY_S: Final = 20.0
#: The pace of a kernel where none of its kind ran here and none can be measured, by whether it is
#: timed.
_UNKNOWN: Final = {True: Pace(2.0, 8.0), False: Pace(2.0, 5.0)}
#: The least seconds of a sample, whatever becomes of it.
_LEAST_S: Final = 0.1
#: Fewer samples of a place are not worth the time to measure a kernel there.
_WORTH_MEASURING: Final = 8


@dataclass(frozen=True)
class Forecast:
    """``each_s``: seconds of the device for one sample, by the folder of its task. ``total_s``: of
    the whole command. ``assumed``: models whose replies are taken to need :data:`REPLY_S`."""

    each_s: Mapping[str, float]
    total_s: float
    assumed: tuple[str, ...] = ()

    def left_s(self, elapsed_s: float, done: Sequence[str], left: Sequence[str]) -> float:
        """``done`` and ``left`` are the tasks of this command's samples."""
        if not done:
            return max(self.total_s - elapsed_s, 0.0)
        return elapsed_s * self._seconds(left) / self._seconds(done)

    def _seconds(self, folders: Sequence[str]) -> float:
        return sum(self.each_s[folder] for folder in folders)


def of(asked: Sequence[AskedSample], builders: int, watch: Callable[[str], None]) -> Forecast:
    """The forecast for what is to be asked. A kernel is measured in each place where nothing is
    known yet."""
    tasks = {one.task.folder: one.task for one in asked}
    seen = _paces(asked, tasks, watch)
    each = {name: _sample_s(task, seen[name], builders) for name, task in tasks.items()}
    models = {one.model.name: one.model for one in asked}
    writing = [_writing_s(model, asked) for model in models.values()]
    assumed = [name for name, model in models.items() if _reply_s(model) is None]
    evaluating = sum(each[one.task.folder] for one in asked)
    return Forecast(each, max([evaluating, *writing]), tuple(assumed))


def _paces(
    asked: Sequence[AskedSample], tasks: Mapping[str, CompareTask], watch: Callable[[str], None]
) -> dict[str, Pace]:
    """The pace of each task: its own, or the mean of those of its place."""
    counts = Counter(one.task.place for one in asked)
    first = {one.task.folder: one for one in reversed(asked)}
    found: dict[str, Pace] = {}
    by_place: dict[str, list[Pace]] = {}
    for name, task in tasks.items():
        known = pace.known(task.plan.task)
        if known is None and task.place not in by_place and counts[task.place] >= _WORTH_MEASURING:
            watch(f"measuring how long a kernel takes by {task.place}")
            known = _measured(first[name])
        if known is not None:
            found[name] = known
            by_place.setdefault(task.place, []).append(known)
    return {name: found.get(name) or _usual(by_place.get(task.place), task)
            for name, task in tasks.items()}  # fmt: skip


def _usual(paces: Sequence[Pace] | None, task: CompareTask) -> Pace:
    if not paces:
        return _UNKNOWN[task.plan.task.ends == "hardware"]
    return Pace(fmean(one.build_s for one in paces), fmean(one.evaluate_s for one in paces))


def _measured(asked: AskedSample) -> Pace | None:
    with tempfile.TemporaryDirectory() as folder:
        return pace.of_one(GenerationRun(asked.plan, Path(folder)))


def _sample_s(task: CompareTask, seen: Pace, builders: int) -> float:
    plan = task.plan
    finals = sum(map(len, plan.final.values()))
    workloads = sum(map(len, plan.task.workloads.values()))
    attempts = plan.budget.attempts or 1
    most = seen.total_s(attempts, workloads=workloads, builders=builders, after=[finals])
    return max(most - seen.build_s, _LEAST_S)  # others are built meanwhile


def _writing_s(model: ComparedModel, asked: Sequence[AskedSample]) -> float:
    replies = sum(one.plan.budget.attempts or 1 for one in asked if one.model is model)
    return replies * (_reply_s(model) or REPLY_S) / model.concurrency


def _reply_s(model: ComparedModel) -> float | None:
    return pace.reply_s(str(model.roles[DEFAULT]["model"]))
