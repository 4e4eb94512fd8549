"""How long a run will take: from what a kernel of its kind took on this machine before, or from the
kernel that it is compared with, which is evaluated first where nothing is known."""

from __future__ import annotations

import hashlib
import json
import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from portkern.agent.outcome import FINALISTS
from portkern.agent.proposer.catalogue import shipped
from portkern.agent.strategy.search import Search
from portkern.agent.task import Task
from portkern.records import atomic_write
from portkern.spec.candidate import Candidate
from portkern.spec.foreign_text import json_value
from portkern.toolchain import host
from portkern.toolchain.run_tool import cache_root

if TYPE_CHECKING:
    from portkern.agent.run import GenerationRun

#: The seconds that earlier runs have seen, a file in the cache.
FILE = "pace.json"


@dataclass(frozen=True)
class Pace:
    """Seconds of one kernel: its build, and its evaluation on all workloads of the search."""

    build_s: float
    evaluate_s: float

    def total_s(
        self, attempts: int, *, workloads: int, builders: int, after: Sequence[int] = ()
    ) -> float:
        """``attempts`` kernels, of which several are built while one is evaluated, and then
        ``after``: kernels times workloads of each stage of the end."""
        each = max(self.evaluate_s, self.build_s / builders)
        return self.build_s + attempts * each + sum(after) * self.evaluate_s / max(workloads, 1)


def expected_s(run: GenerationRun, *, measure: bool = True) -> float | None:
    """Seconds that the run's evaluations will take, without what models take to answer. None where
    they are not known: nothing ships to ``measure`` them by, or nothing says how many there are."""
    plan, task = run.plan, run.plan.task
    asked = run.strategy.most if isinstance(run.strategy, Search) else None
    most = [n for n in (plan.budget.attempts, asked) if n is not None]
    left = min(most, default=0) - run.log.left_count
    if left < 1 or plan.replay:
        return None
    seen = known(task) if run.log.left_count or not measure else of_one(run)
    if seen is None:
        return None
    finals = sum(map(len, plan.final.values()))
    raced = len(plan.raced or task.workloads[task.scored])
    expected = seen.total_s(
        left,
        workloads=len(run.bench.work),
        builders=plan.builders,
        after=[min(FINALISTS, *most) * finals, raced],
    )
    limits = [n for n in (plan.budget.wall_s, plan.budget.device_s) if n is not None]
    return min([expected, *limits])


def of_one(run: GenerationRun) -> Pace | None:
    """The time that one kernel of the run takes, which is measured where it is not known. None
    where nothing ships to measure it by."""
    task = run.plan.task
    seen, kernel = known(task), task.start or shipped(task)
    if seen is None and kernel is not None:
        seen = _measured(run, kernel)
        _keep(task, seen)
    return seen


def learn(run: GenerationRun) -> None:
    """Keeps the pace for the next run of this kind, if this run evaluated its kernels itself and
    most of them worked: what does not work ends early, and says little of how long others take."""
    judged = sum(bool(attempt.records) for attempt in run.log)
    working = 2 * len(run.log.correct) >= judged > 0
    if working and not run.plan.replay and not run.log.left_count:
        _keep(run.plan.task, Pace(run.bench.build_s / judged, run.bench.device_s / judged))


def _measured(run: GenerationRun, kernel: Candidate) -> Pace:
    """Measures the time of this kernel, built anew: a build from the cache would not show how
    long others take."""
    unknown = run.plan.task.candidate(f"{kernel.source}\n", author=kernel.author)
    with tempfile.TemporaryDirectory() as folder:
        bench = run.bench_in(Path(folder))
        build_s = bench.build(unknown)
        bench.evaluate(unknown)
    run.meter.spend_device(bench.device_s)
    return Pace(build_s, bench.device_s)


def known(task: Task) -> Pace | None:
    """The pace of such a task in earlier runs."""
    pace = _read().get(_key(task))
    return Pace(**pace) if pace else None


def reply_s(model: str) -> float | None:
    """Seconds in which the model answered before, in the mean; None where it was not asked."""
    return _read().get(_model_key(model), {}).get("reply_s")


def learn_replies(run: GenerationRun) -> None:
    """Keeps how long models took to reply, for the next run that asks them."""
    seconds: dict[str, list[float]] = {}
    for call in run.models.store:
        if not call.error and call.seconds:
            seconds.setdefault(call.model, []).append(call.seconds)
    for model, several in seconds.items():
        before = reply_s(model)
        mean = math.fsum(several) / len(several)
        _note(_model_key(model), {"reply_s": mean if before is None else (before + mean) / 2})


def _keep(task: Task, seen: Pace) -> None:
    before = known(task)
    if before is not None:
        build_s = (before.build_s + seen.build_s) / 2
        seen = Pace(build_s, (before.evaluate_s + seen.evaluate_s) / 2)
    _note(_key(task), asdict(seen))


def _note(key: str, seen: Mapping[str, float]) -> None:
    everything = {**_read(), key: dict(seen)}
    path = cache_root() / FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write.write(path, json.dumps(everything, indent=1, sort_keys=True) + "\n")


def words(seconds: float) -> str:
    """An expected duration, no finer than it can be known."""
    return f"{max(5 * math.ceil(seconds / 5), 5)} s" if seconds < 90 else duration(seconds)


def duration(seconds: float) -> str:
    """The duration in the unit that people would use."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"


def _model_key(model: str) -> str:
    return f"model {model}"


def _key(task: Task) -> str:
    """A digest of all that decides how long a kernel takes."""
    parts = [
        task.op.digest,
        task.backend.name,
        task.language,
        task.target.name,
        task.dtype,
        task.ends,
        *task.checkers,
        *(f"{name}/{w.name}" for name, several in task.workloads.items() for w in several),
        host.cpu_name(),
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _read() -> Mapping[str, dict[str, float]]:
    """The pace that is kept on disk; empty where there is none or it cannot be read, as better
    numbers come soon."""
    try:
        content = json_value((cache_root() / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
