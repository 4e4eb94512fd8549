"""Evaluates a run's candidates: each is built, then run workload by workload until one is not
passed.

Builds may overlap; what runs on the device takes turns. Of a task with several sets the last, which
is timed, has inputs of one distribution only: those of before had all, and whoever becomes the best
meets all of them there too.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from portkern.agent.task import Task
from portkern.cells import to_record
from portkern.cells.selection import Cell, Stage
from portkern.errors import MachineUnfit
from portkern.evaluator import build as building
from portkern.evaluator import inputs
from portkern.evaluator.artifact_cache import ArtifactCache
from portkern.evaluator.build import Built, Failure
from portkern.evaluator.device_health import Devices
from portkern.evaluator.trial import Trial, TrialOptions
from portkern.evaluator.workers import Contestant
from portkern.records.record import Record, RecordFile, Verdict
from portkern.spec.backend import Artifact, Missing, Ready, Venue
from portkern.spec.candidate import Candidate
from portkern.spec.op import Workload

_Key = tuple[str, str, str]


@dataclass(frozen=True)
class BenchWorkload:
    """A set's workload."""

    set: str
    workload: Workload


class Bench:
    """``file`` keeps the records; what it and ``recorded`` hold is not evaluated again; ``quick``
    as above. ``device_s`` is the time that the device was in use."""

    def __init__(
        self,
        task: Task,
        folder: Path,
        cache: ArtifactCache,
        options: TrialOptions,
        *,
        stage: Stage | None = None,
        recorded: Sequence[Record] = (),
        quick: bool = True,
    ) -> None:
        self.task, self.options, self._cache, self.quick = task, options, cache, quick
        self._run, self._stage = folder.name, stage or Stage()
        self.file = RecordFile(folder / "records.jsonl")
        own, self.torn = self.file.read()
        self._known: dict[_Key, Record] = {_key(record): record for record in own}
        self._recorded = {_key(record): record for record in recorded}
        self._devices, self._turn = Devices(), Lock()
        self.device_s = 0.0

    @property
    def work(self) -> list[BenchWorkload]:
        """In the order in which it is done."""
        return [
            BenchWorkload(name, w) for name, several in self.task.workloads.items() for w in several
        ]

    def build(self, candidate: Candidate) -> float:
        """So that :meth:`evaluate` finds the build; seconds that it took. Safe in any thread."""
        cell = self._cell(candidate, self.work[0])
        if cell.ruled_out or all(self._answer(candidate, work) for work in self.work):
            return 0.0
        start = time.perf_counter()
        self._build(cell)
        return time.perf_counter() - start

    def evaluate(self, candidate: Candidate) -> list[Record]:
        """Up to the first workload that is not passed. One at a time. Raises MachineUnfit when the
        machine, not the candidate, is why there is no verdict."""
        with self._turn:
            return list(self._evaluate(candidate))

    def _evaluate(self, candidate: Candidate) -> Iterator[Record]:
        todo = []
        for work in self.work:
            answer = self._answer(candidate, work)
            if answer is None:
                todo = self.work[self.work.index(work) :]
                break
            yield answer
            if answer.verdict is not Verdict.PASSED:
                return
        if todo:
            yield from self._run_cells([self._cell(candidate, work) for work in todo])

    def _run_cells(self, cells: Sequence[Cell]) -> Iterator[Record]:
        first = cells[0]
        if first.ruled_out:
            yield self._keep(to_record.unbuilt(self._run, first))
            return
        built = self._build(first)
        venue = first.venues.best
        if isinstance(built.outcome, Failure) and built.outcome.verdict is Verdict.UNAVAILABLE:
            raise _unfit(built.outcome.detail)
        if not isinstance(built.outcome, Artifact) or isinstance(venue, Missing):
            yield self._keep(to_record.unrun(self._run, first, built))
            return
        start = time.perf_counter()
        contestant = Contestant(built.request, built.outcome, venue, self.task.torch_ops)
        with Trial(first.op, first.dtype, [contestant], self.options, self._devices) as trial:
            for cell in cells:
                (result,) = trial.run(cell.workload, distributions=self._distributions(cell))
                if result.verdict is Verdict.UNAVAILABLE:
                    raise _unfit(result.detail)
                record = self._keep(to_record.evaluated(self._run, cell, built, result))
                yield record
                if record.verdict is not Verdict.PASSED:
                    break
        self.device_s += time.perf_counter() - start

    def _distributions(self, cell: Cell) -> tuple[str, ...] | None:
        task = self.task
        quick = self.quick and len(task.workloads) > 1 and cell.workload_set == task.scored
        return (inputs.BASE,) if quick else None

    def race(
        self, candidates: Sequence[Candidate], work: Sequence[BenchWorkload]
    ) -> list[list[Record]]:
        """Side by side in one run: by workload the records of all candidates. Nothing is reused
        and nothing kept, since it is the comparison that counts."""
        by_workload: list[list[Record]] = []
        start = time.perf_counter()
        with self._turn:
            cells = [self._cell(candidate, work[0]) for candidate in candidates]
            built = [self._build(cell) for cell in cells]
            venue = cells[0].venues.best
            assert isinstance(venue, Venue)
            contestants = [
                Contestant(made.request, made.outcome, venue, self.task.torch_ops)
                for made in built
                if isinstance(made.outcome, Artifact)
            ]
            if len(contestants) < len(candidates):
                return []
            with Trial(
                self.task.op, self.task.dtype, contestants, self.options, self._devices
            ) as trial:
                for asked in work:
                    results = trial.run(asked.workload)
                    by_workload.append(
                        [
                            to_record.evaluated(
                                self._run, self._cell(candidate, asked), made, result
                            )
                            for candidate, made, result in zip(
                                candidates, built, results, strict=True
                            )
                        ]
                    )
        self.device_s += time.perf_counter() - start
        return by_workload

    def _build(self, cell: Cell) -> Built:
        toolchain = cell.ready.toolchain if isinstance(cell.ready, Ready) else {}
        (built,) = building.build_all(
            [cell.build_request], [toolchain], limits=self.options.limits, cache=self._cache
        )
        return built

    def _cell(self, candidate: Candidate, work: BenchWorkload) -> Cell:
        return Cell(
            self.task.op,
            work.set,
            work.workload,
            self.task.dtype,
            self.task.backend,
            self.task.target,
            candidate,
            self._stage,
            self.task.torch_ops,
        )

    def _answer(self, candidate: Candidate, work: BenchWorkload) -> Record | None:
        key = candidate.digest, work.set, work.workload.name
        if key not in self._known and key in self._recorded:
            self._keep(self._recorded[key])
        return self._known.get(key)

    def _keep(self, record: Record) -> Record:
        record = record.model_copy(update={"run": self._run})
        self.file.append([record])
        self._known[_key(record)] = record
        return record


def _key(record: Record) -> _Key:
    return record.source_hash, record.workload.set, record.workload.name


def _unfit(why: str) -> MachineUnfit:
    return MachineUnfit(
        f"This machine cannot evaluate kernels now: {why}; nothing was charged for this attempt, "
        "give the same command again to go on"
    )
