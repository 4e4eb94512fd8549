"""Runs the cells of a matrix; every outcome is a record in the run's file at once."""

from __future__ import annotations

import os
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from threading import Lock

from portkern.cells import together
from portkern.cells.budget import Budget
from portkern.cells.carrying import CarriedCells
from portkern.cells.selection import SelectedCell
from portkern.cells.to_record import evaluated, unbuilt, unrun
from portkern.evaluator import build
from portkern.evaluator.artifact_cache import ArtifactCache
from portkern.evaluator.build import Built, Failure
from portkern.evaluator.device_health import Devices
from portkern.evaluator.result import Result
from portkern.evaluator.trial import Checked, Trial, TrialOptions
from portkern.evaluator.workers import Contestant
from portkern.records.jsonl import Torn
from portkern.records.record import Record, RecordFile, Verdict
from portkern.spec.backend import Artifact, Missing, Ready, Venue

#: An operator and a dtype, whose kernels are tried together.
_Problem = tuple[str, str]


@dataclass(frozen=True)
class MatrixProgress:
    """Called from several threads: ``total`` cells, ``done`` of them, and the newest record."""

    total: int
    done: int
    record: Record | None


def answered(cells: Sequence[SelectedCell], known: Iterable[Record]) -> Iterator[Record]:
    """Returns those of the known records that answer one of the cells."""
    asked = {cell.key: cell for cell in cells}
    return (r for r in known if r.key in asked and _final(r, asked[r.key]))


@dataclass
class Matrix:
    """``records`` in the file of the run are kept; only what they do not answer is run."""

    cells: Sequence[SelectedCell]
    run: str
    file: RecordFile
    cache: ArtifactCache
    options: TrialOptions = field(default_factory=TrialOptions)
    fresh: bool = False
    report: Callable[[MatrixProgress], None] = lambda _: None
    carried: CarriedCells | None = None
    budget: Budget | None = None
    _records: dict[str, Record] = field(default_factory=dict)
    _devices: Devices = field(default_factory=Devices)
    _lock: Lock = field(default_factory=Lock)
    torn: Torn | None = None

    def execute(self) -> list[Record]:
        """The records of all cells, in the cells' order. Raises StorageError when they cannot be
        kept; those that were are the next run's to reuse."""
        self.cache.sweep()
        if not self.fresh:
            self._reuse()
        todo = [cell for cell in self.cells if cell.key not in self._records]
        self._emit(unbuilt(self.run, cell) for cell in todo if cell.ruled_out)
        self._within_budget([cell for cell in todo if not cell.ruled_out])
        return [self._records[cell.key] for cell in self.cells]

    def _within_budget(self, cells: Sequence[SelectedCell]) -> None:
        """Runs the cells that fit the budget; all of them without one."""
        if self.budget is None:
            self._work(cells)
            return
        for batch in self.budget.batches(cells):
            self._work(batch)
        left = [cell for cell in cells if cell.key not in self._records]
        self._emit(self.budget.left(self.run, cell) for cell in left)

    def build_ahead(self) -> None:
        """Fill the cache with what :meth:`execute` would build: more at once than one run of few
        cells could."""
        with _pool() as pool:
            cells = [cell for cell in self.cells if not cell.ruled_out]
            for done in [pool.submit(self._build, group) for group in _to_build(cells)]:
                done.result()

    def _reuse(self) -> None:
        known, self.torn = self.file.read()
        self._records |= {record.key: record for record in answered(self.cells, known)}
        self.report(MatrixProgress(len(self.cells), len(self._records), None))

    def _work(self, cells: Sequence[SelectedCell]) -> None:
        """Builds and runs in executors share the CPUs; hardware is timed when those are done."""
        built: dict[tuple[str, str], Built] = {}
        with _pool() as pool:
            hardware = self._build_and_model(cells, built, pool)
        for groups in together.in_order(_by_problem(hardware)):
            self._try_in_turn(groups, built)

    def _build_and_model(
        self,
        cells: Sequence[SelectedCell],
        built: dict[tuple[str, str], Built],
        pool: ThreadPoolExecutor,
    ) -> list[SelectedCell]:
        """Builds all cells, and tries those without hardware as soon as their op and dtype is
        built. Only what can begin at once is given to the pool, so that a trial, whose results
        people wait for, goes before further builds. Returns the cells with hardware."""
        to_build = deque(_to_build(cells))
        left = Counter(map(_problem, cells))
        modelled: dict[_Problem, list[SelectedCell]] = defaultdict(list)
        hardware: list[SelectedCell] = []
        trials: deque[list[SelectedCell]] = deque()
        pending: set[Future[list[tuple[SelectedCell, Built]]]] = set()
        while to_build or trials or pending:
            while (trials or to_build) and len(pending) < _threads():
                if trials:
                    pending.add(pool.submit(self._try, trials.popleft(), built))
                else:
                    pending.add(pool.submit(self._build, to_build.popleft()))
            ended, pending = wait(pending, return_when=FIRST_COMPLETED)
            for cell, result in chain.from_iterable(each.result() for each in ended):
                built[_identity(cell)] = result
                if not self._recorded(cell, result):
                    has_hardware = isinstance(cell.venues.hardware, Venue)
                    (hardware if has_hardware else modelled[_problem(cell)]).append(cell)
                left[_problem(cell)] -= 1
                if not left[_problem(cell)] and modelled[_problem(cell)]:
                    trials.append(modelled[_problem(cell)])
        return hardware

    def _recorded(self, cell: SelectedCell, built: Built) -> bool:
        """Records a cell that needs no trial: it is not built, has no place, or an earlier record
        stands. Returns whether it did."""
        if isinstance(built.outcome, Failure) or isinstance(cell.venues.best, Missing):
            self._emit([unrun(self.run, cell, built)])
            return True
        if stands := self._carried(cell, built):
            self._emit([stands])
            return True
        return False

    def _carried(self, cell: SelectedCell, built: Built) -> Record | None:
        """The record of the cell from an earlier run, where that still stands."""
        if self.carried is None or self.fresh:
            return None
        return self.carried.record(self.run, cell, built, self.options.plan.rounds)

    def _build(self, cells: Sequence[SelectedCell]) -> list[tuple[SelectedCell, Built]]:
        """One kernel and dtype for one target; its cells share the build, which is for the largest
        workload that is judged."""
        largest = max(cells, key=together.elements)
        toolchains = [largest.ready.toolchain] if isinstance(largest.ready, Ready) else []
        [built] = build.build_all(
            [largest.build_request], toolchains, limits=self.options.limits, cache=self.cache
        )
        return [(cell, built) for cell in cells]

    def _try(
        self, cells: Sequence[SelectedCell], built: Mapping[tuple[str, str], Built]
    ) -> list[tuple[SelectedCell, Built]]:
        """Tries all kernels of one op and dtype; nothing new is built."""
        with self._trial(cells, built) as trial:
            self._evaluate(trial, cells, built)
        return []

    def _try_in_turn(
        self, groups: Sequence[Sequence[SelectedCell]], built: Mapping[tuple[str, str], Built]
    ) -> None:
        """Groups that each have the machine for themselves while they are timed; those of some are
        loaded together, as a compiler that does so may use one processor of many."""
        with ExitStack() as opened, _pool() as pool:
            trials = [opened.enter_context(self._trial(group, built)) for group in groups]
            if len(trials) > 1:
                wait([load for trial in trials for load in trial.load_ahead(pool)])
            if together.on_gpu(groups[0]):
                self._check_together(trials, groups, built, pool)
            else:
                for trial, group in zip(trials, groups, strict=True):
                    self._evaluate(trial, group, built)
                    trial.close()

    def _check_together(
        self,
        trials: Sequence[Trial],
        groups: Sequence[Sequence[SelectedCell]],
        built: Mapping[tuple[str, str], Built],
        pool: Executor,
    ) -> None:
        """A workload of each is checked at the same time, as a GPU waits for the host meanwhile;
        then they are timed in turn."""

        def check(trial: Trial, cells: Sequence[SelectedCell]) -> Checked:
            checked = trial.check(cells[0].workload)
            if len(trials) > 1:
                trial.rest()
            return checked

        for workloads in zip_longest(*map(_by_workload, groups)):
            left = [(trial, cells) for trial, cells in zip(trials, workloads, strict=True) if cells]
            checked = [pool.submit(check, *each) for each in left]
            wait(checked)
            for (trial, cells), done in zip(left, checked, strict=True):
                self._record(trial, cells, built, trial.race(done.result()))
                if len(trials) > 1:
                    trial.forget()
                    trial.rest()
        wait([pool.submit(trial.close) for trial in trials])

    def _trial(
        self, cells: Sequence[SelectedCell], built: Mapping[tuple[str, str], Built]
    ) -> Trial:
        contestants = _contestants(cells, built)
        return Trial(cells[0].op, cells[0].dtype, contestants, self.options, self._devices)

    def _evaluate(
        self, trial: Trial, cells: Sequence[SelectedCell], built: Mapping[tuple[str, str], Built]
    ) -> None:
        """Workload by workload."""
        for asked in _by_workload(cells):
            self._record(trial, asked, built, trial.run(asked[0].workload))

    def _record(
        self,
        trial: Trial,
        cells: Sequence[SelectedCell],
        built: Mapping[tuple[str, str], Built],
        results: Sequence[Result],
    ) -> None:
        """The cells of one workload."""
        order = {_venue_identity(each): n for n, each in enumerate(trial.contestants)}
        for cell in cells:
            outcome = built[_identity(cell)]
            key = _venue_identity(_contestant(cell, outcome))
            self._emit([evaluated(self.run, cell, outcome, results[order[key]])])

    def _emit(self, records: Iterable[Record]) -> None:
        with self._lock:
            new = list(records)
            if not new:
                return
            self.file.append(new)
            for record in new:
                self._records[record.key] = record
            self.report(MatrixProgress(len(self.cells), len(self._records), new[-1]))


#: What may have been the machine's fault, and is tried again.
RETRIED = (Verdict.CRASHED, Verdict.TIMED_OUT, Verdict.SUSPICIOUS)


def _final(record: Record, cell: SelectedCell) -> bool:
    """A crash or a timeout may have been the machine's, and so may be that a cell which can run
    did not: these are tried again."""
    if record.verdict is Verdict.UNAVAILABLE:
        return cell.ruled_out is not None or isinstance(cell.venues.best, Missing)
    return record.verdict not in RETRIED


def _threads() -> int:
    return len(os.sched_getaffinity(0))


@contextmanager
def _pool() -> Iterator[ThreadPoolExecutor]:
    """A pool of threads; when it is left by an error, what has not begun never does."""
    pool = ThreadPoolExecutor(_threads())
    try:
        yield pool
    except BaseException:
        pool.shutdown(cancel_futures=True)
        raise
    pool.shutdown()


def _identity(cell: SelectedCell) -> tuple[str, str]:
    """The part of a cell that its build depends on within one op, apart from the architecture's
    facts."""
    assert cell.candidate is not None
    return cell.candidate.digest + cell.dtype, cell.target.name


def _to_build(cells: Sequence[SelectedCell]) -> list[list[SelectedCell]]:
    """The cells of one build each, as these may be made side by side: problem by problem, and the
    long sources of each first, as the last to end is waited for."""
    groups: dict[tuple[str, str, str, str], list[SelectedCell]] = defaultdict(list)
    for cell in cells:
        assert cell.candidate is not None
        build_of = cell.backend.name, cell.candidate.digest, cell.dtype, cell.target.name
        groups[build_of].append(cell)
    problems = {problem: n for n, problem in enumerate(dict.fromkeys(map(_problem, cells)))}
    return sorted(
        groups.values(), key=lambda group: (problems[_problem(group[0])], -_source_length(group))
    )


def _source_length(cells: Sequence[SelectedCell]) -> int:
    candidate = cells[0].candidate
    return len(candidate.source) if candidate else 0


def _problem(cell: SelectedCell) -> _Problem:
    return cell.op.name, cell.dtype


def _by_problem(cells: Sequence[SelectedCell]) -> list[list[SelectedCell]]:
    groups: dict[_Problem, list[SelectedCell]] = defaultdict(list)
    for cell in cells:
        groups[_problem(cell)].append(cell)
    return list(groups.values())


def _by_workload(cells: Sequence[SelectedCell]) -> list[list[SelectedCell]]:
    groups: dict[tuple[str, str], list[SelectedCell]] = defaultdict(list)
    for cell in cells:
        groups[cell.workload_set, cell.workload.name].append(cell)
    return list(groups.values())


def _contestants(
    cells: Sequence[SelectedCell], built: Mapping[tuple[str, str], Built]
) -> list[Contestant]:
    """Targets with one artifact and venue share one."""
    shared: dict[tuple[str, str], Contestant] = {}
    for cell in cells:
        contestant = _contestant(cell, built[_identity(cell)])
        shared.setdefault(_venue_identity(contestant), contestant)
    return list(shared.values())


def _contestant(cell: SelectedCell, built: Built) -> Contestant:
    venue = cell.venues.best
    assert isinstance(venue, Venue) and isinstance(built.outcome, Artifact)
    return Contestant(built.request, built.outcome, venue, cell.torch_ops)


def _venue_identity(contestant: Contestant) -> tuple[str, str]:
    """Emulators ignore the target, so one run of the source answers for every build of it."""
    candidate, venue = contestant.request.candidate, contestant.venue
    what = candidate.digest if venue.kind == "emulator" else str(contestant.artifact.path)
    return what, repr(venue)
