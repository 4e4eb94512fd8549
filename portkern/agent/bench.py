"""Evaluates a run's candidates: each is built, then run workload by workload until one is not
passed.

Builds may overlap; what runs on the device takes turns. Of a task with several sets the last, which
is timed, has inputs of one distribution only: those of before had all, and whoever becomes the best
meets all of them there too.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock

from portkern.agent.task import Task
from portkern.cells import to_record
from portkern.cells.selection import RunStage, SelectedCell
from portkern.errors import MachineUnfit
from portkern.evaluator import build as building
from portkern.evaluator import inputs
from portkern.evaluator.artifact_cache import ArtifactCache
from portkern.evaluator.build import Built, Failure
from portkern.evaluator.device_health import Devices
from portkern.evaluator.result import Result
from portkern.evaluator.trial import Trial, TrialOptions
from portkern.evaluator.workers import Contestant
from portkern.guard import Library
from portkern.records.record import Record, RecordFile, Verdict
from portkern.spec.backend import Artifact, Missing, Ready, Venue
from portkern.spec.candidate import Candidate
from portkern.spec.occupancy import no_place
from portkern.spec.op import Workload
from portkern.spec.target import Target

_Key = tuple[str, str, str]
#: Answers with the records of cells of a run, from another process; None: evaluate them here.
Ask = Callable[[Sequence[SelectedCell], TrialOptions, str], Sequence[Record] | None]
#: The records of a run's last race, in its folder; by workload those of all kernels.
RACE = "race.jsonl"


@dataclass(frozen=True)
class BenchWorkload:
    """A set's workload."""

    set: str
    workload: Workload


class Bench:
    """``file`` keeps the records; what it and ``recorded`` hold is not evaluated again, and what
    ``races`` and ``raced`` hold is not raced again; ``quick`` as above; built kernels run where
    ``ask`` says, if it answers. ``device_s`` is how long the device was in use, or was waited for
    there, ``build_s`` what builds took."""

    def __init__(
        self,
        task: Task,
        folder: Path,
        cache: ArtifactCache,
        options: TrialOptions,
        *,
        stage: RunStage | None = None,
        recorded: Sequence[Record] = (),
        raced: Sequence[Record] = (),
        quick: bool = True,
        ask: Ask | None = None,
    ) -> None:
        self.task, self.options, self._cache, self.quick = task, options, cache, quick
        self._ask = ask
        self._run, self._stage = folder.name, stage or RunStage()
        self.file, self.races = RecordFile(folder / "records.jsonl"), RecordFile(folder / RACE)
        self._raced = raced
        own, self.torn = self.file.read()
        self._known: dict[_Key, Record] = {_key(record): record for record in own}
        self._recorded = {_key(record): record for record in recorded}
        self._devices, self._turn, self._keeping = Devices(), Lock(), Lock()
        self.device_s, self.build_s = 0.0, 0.0
        #: Told what is begun, for whoever waits.
        self.watch: Callable[[str], None] = lambda _: None

    @property
    def nowhere(self) -> str:
        """Why nothing can be built, or run, for this task on this machine; empty where it can."""
        task = self.task
        nothing = task.candidate("", author="")
        cell = self._cell(nothing, self.work[0])
        for lack in (cell.ready, cell.venues.best):
            if isinstance(lack, Missing):
                return str(lack)
        return ""

    @property
    def work(self) -> list[BenchWorkload]:
        """The workloads in the order in which they are run."""
        return [
            BenchWorkload(name, w) for name, several in self.task.workloads.items() for w in several
        ]

    def build(self, candidate: Candidate) -> float:
        """Builds, so that :meth:`evaluate` finds the build; returns the seconds that it took. Safe
        in any thread."""
        cell = self._cell(candidate, self.work[0])
        if cell.ruled_out or all(self._answer(candidate, work) for work in self.work):
            return 0.0
        self.watch(f"building a kernel in {self.task.language}")
        start = time.perf_counter()
        self._build(cell)
        seconds = time.perf_counter() - start
        self.build_s += seconds
        return seconds

    def no_place(self, candidate: Candidate) -> str:
        """Builds, and returns why there is no place for the candidate on the target: it does not
        build for it, or takes more than there is. Empty where it has one, or nothing tells. It is
        kept as a record, so that a run which goes on, or a replay, need not build. Safe in any
        thread."""
        first = self.work[0]
        known = self._answer(candidate, first)
        if known is None:
            cell = self._cell(candidate, first)
            if cell.ruled_out:
                return ""
            self.watch(f"building a kernel in {self.task.language}")
            built = _placed(self._build(cell), self.task.target)
            self.build_s += built.seconds
            if not isinstance(built.outcome, Failure) or built.outcome.harness:
                return ""
            if built.outcome.verdict is not Verdict.BUILD_FAILED:
                return ""
            known = self._keep(to_record.unrun(self._run, cell, built))
        return known.detail.strip() if known.verdict is Verdict.BUILD_FAILED else ""

    def evaluate(self, candidate: Candidate) -> list[Record]:
        """Evaluates a candidate up to the first workload that does not pass; one candidate at a
        time. Raises MachineUnfit when the machine, not the candidate, is why there is no
        verdict."""
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

    def _run_cells(self, cells: Sequence[SelectedCell]) -> Iterator[Record]:
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
        able = first.backend.runs(built.outcome, venue)
        if isinstance(able, Missing):  # what this kernel is made of, not what the machine lacks
            result = Result(Verdict.UNAVAILABLE, str(able))
            yield self._keep(to_record.evaluated(self._run, first, built, result))
            return
        start = time.perf_counter()
        left = list(cells)
        for record in self._asked(cells):
            left.pop(0)
            if record.verdict is Verdict.UNAVAILABLE:
                raise _unfit(record.detail)
            yield self._keep(record)
            if record.verdict is not Verdict.PASSED:
                left.clear()
                break
        if left:
            contestant = Contestant(built.request, built.outcome, venue, self.task.torch_ops)
            yield from self._here(left, built, contestant)
        self.device_s += time.perf_counter() - start

    def _asked(self, cells: Sequence[SelectedCell]) -> Iterator[Record]:
        """The records of the first sets, as many as are answered by another process."""
        for _, several in itertools.groupby(cells, lambda cell: cell.workload_set):
            own = list(several)
            self.watch(f"a kernel runs on {own[0].workload_set}, by the server")
            chosen = self.options
            if distributions := self._distributions(own[0]):
                chosen = replace(chosen, distributions=distributions)
            records = self._ask(own, chosen, self._run) if self._ask else None
            if records is None:
                return
            yield from records

    def _here(
        self, cells: Sequence[SelectedCell], built: Built, contestant: Contestant
    ) -> Iterator[Record]:
        first = cells[0]
        with Trial(first.op, first.dtype, [contestant], self.options, self._devices) as trial:
            for number, cell in enumerate(cells, 1):
                where = f"{cell.workload_set}/{cell.workload.name}"
                self.watch(f"a kernel runs on {where}, {number} of {len(cells)} workloads")
                (result,) = trial.run(cell.workload, distributions=self._distributions(cell))
                if result.verdict is Verdict.UNAVAILABLE:
                    raise _unfit(result.detail)
                record = self._keep(to_record.evaluated(self._run, cell, built, result))
                yield record
                if record.verdict is not Verdict.PASSED:
                    return

    def _distributions(self, cell: SelectedCell) -> tuple[str, ...] | None:
        task = self.task
        quick = self.quick and len(task.workloads) > 1 and cell.workload_set == task.scored
        return (inputs.BASE,) if quick else None

    def race(
        self, candidates: Sequence[Candidate], work: Sequence[BenchWorkload]
    ) -> list[list[Record]]:
        """Side by side in one run: by workload the records of all candidates. They are kept
        together, and reused together or not at all, since it is the comparison that counts."""
        known = self._race_of(candidates, work)
        if not known and (known := self._race(candidates, work)):
            self.races.append(known)
        every = len(candidates)
        return [known[at : at + every] for at in range(0, len(known), every)]

    def _race_of(
        self, candidates: Sequence[Candidate], work: Sequence[BenchWorkload]
    ) -> list[Record]:
        """The records of this race if it was run before, here or in the replayed run; empty
        where it was not."""
        asked = [(c.digest, w.set, w.workload.name) for w in work for c in candidates]
        own, _ = self.races.read()
        for before, is_own in ((own, True), (self._raced, False)):
            for start in range(len(before) - len(asked) + 1) if asked else ():
                found = [before[start + k] for k in range(len(asked))]
                if [_key(record) for record in found] != asked:
                    continue
                if not is_own:
                    found = [record.model_copy(update={"run": self._run}) for record in found]
                    self.races.append(found)
                return found
        return []

    def _race(self, candidates: Sequence[Candidate], work: Sequence[BenchWorkload]) -> list[Record]:
        """Empty where one of them is not built."""
        start = time.perf_counter()
        with self._turn:
            built = [self._build(self._cell(candidate, work[0])) for candidate in candidates]
            if not all(isinstance(made.outcome, Artifact) for made in built):
                return []
            cells = [self._cell(candidate, asked) for asked in work for candidate in candidates]
            self.watch(f"the last race, on {len(work)} workloads")
            records = self._ask(cells, self.options, self._run) if self._ask else None
            if records is None:
                records = self._race_here(cells, built, len(work))
        self.device_s += time.perf_counter() - start
        return [*records]

    def _race_here(
        self, cells: Sequence[SelectedCell], built: Sequence[Built], workloads: int
    ) -> list[Record]:
        """``cells`` are those of all built kernels, workload by workload."""
        venue, records = cells[0].venues.best, list[Record]()
        assert isinstance(venue, Venue)
        contestants = [
            Contestant(made.request, made.outcome, venue, self.task.torch_ops)
            for made in built
            if isinstance(made.outcome, Artifact)
        ]
        with Trial(
            self.task.op, self.task.dtype, contestants, self.options, self._devices
        ) as trial:
            for number in range(workloads):
                asked = cells[number * len(built) : (number + 1) * len(built)]
                where = f"{asked[0].workload_set}/{asked[0].workload.name}"
                self.watch(f"the last race, on {where}, {number + 1} of {workloads} workloads")
                results = trial.run(asked[0].workload)
                records += [
                    to_record.evaluated(self._run, *each)
                    for each in zip(asked, built, results, strict=True)
                ]
        return records

    def _build(self, cell: SelectedCell) -> Built:
        toolchain = cell.ready.toolchain if isinstance(cell.ready, Ready) else {}
        (built,) = building.build_all(
            [cell.build_request], [toolchain], limits=self.options.limits, cache=self._cache
        )
        return built

    def _cell(self, candidate: Candidate, work: BenchWorkload) -> SelectedCell:
        return SelectedCell(
            self.task.op,
            work.set,
            work.workload,
            self.task.dtype,
            self.task.backend,
            self.task.target,
            candidate,
            self._stage,
            self.task.torch_ops,
            library=self._library(candidate),
        )

    def _library(self, candidate: Candidate) -> Library:
        """The kernel that a search begins with is nobody's answer."""
        start = self.task.start
        return "allow" if start and candidate.digest == start.digest else self.task.library

    def _answer(self, candidate: Candidate, work: BenchWorkload) -> Record | None:
        key = candidate.digest, work.set, work.workload.name
        if key not in self._known and key in self._recorded:
            self._keep(self._recorded[key])
        return self._known.get(key)

    def _keep(self, record: Record) -> Record:
        record = record.model_copy(update={"run": self._run})
        with self._keeping:
            self.file.append([record])
            self._known[_key(record)] = record
        return record


def _placed(built: Built, where: Target) -> Built:
    """The build, as failed where the target has not what it takes."""
    used = built.outcome.resources if isinstance(built.outcome, Artifact) else ()
    why = next(filter(None, (no_place(where, one) for one in used)), "")
    return replace(built, outcome=Failure(Verdict.BUILD_FAILED, why)) if why else built


def _key(record: Record) -> _Key:
    return record.source_hash, record.workload.set, record.workload.name


def _unfit(why: str) -> MachineUnfit:
    return MachineUnfit(
        f"This machine cannot evaluate kernels now: {why}; nothing was charged for this attempt, "
        "give the same command again to go on"
    )
