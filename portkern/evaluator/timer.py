"""Kernels that are right are timed, in turns with the baselines of their device; whom the times
accuse, or whose times are uncertain, once more by himself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace

from portkern.evaluator import code_pages, statistics, worker_reports
from portkern.evaluator.build import Failure, StageLimits, failure_of
from portkern.evaluator.interleaved_timing import Base, Doubt, InterleavedTiming, Key, Loss
from portkern.evaluator.reference_device import is_device_failure
from portkern.evaluator.result import Result, Samples, with_timed
from portkern.evaluator.telemetry import Watch
from portkern.evaluator.workers import TRUSTED, Opened, Workers
from portkern.records.record import Finding, Verdict
from portkern.sandbox.session import Answered, Died
from portkern.spec.op import Op, Workload
from portkern.spec.target import Target
from portkern.worker import protocol

#: The calls of a round on a GPU, if this share of its memory has room for their tensors: the time
#: of few calls says little from outside.
ROUND_CALLS, ROUND_OF_GPU = 32, 1 / 16
#: Rounds of a baseline's second process: so many times those that count, which are the last, or
#: fewer once they have taken so many seconds.
SETTLED, SLOW_S = 3, 1.0
#: A thread is alone when the others run or want to for no more than this share of its time.
ALONE = 0.1


@dataclass(frozen=True)
class Timer:
    """Times the kernels of these workers, by index, and the ``baselines`` by name."""

    op: Op
    dtype: str
    workers: Workers
    limits: StageLimits
    plan: statistics.TimingPlan
    baselines: tuple[str, ...]
    pool: Executor
    #: Why timed calls on a device work on no memory of the evaluator's, where that was found out.
    unplaced: dict[str, str] = field(default_factory=dict)

    def time(
        self,
        racing: Sequence[int],
        device: str,
        workload: Workload,
        bases: Sequence[Base],
        results: dict[int, Result],
    ) -> None:
        """Time the standing contestants and the baselines of one device in turns; once more if
        one was cut off by no fault of its own, and by itself whoever is accused by its times, or
        whose times are uncertain. Where the one that times are checked by does not run, nothing is
        timed, and the record says why."""
        run, notes = self._time_once(racing, device, workload, bases)
        faults: dict[Key, Loss] = {}  # of their own
        if any(map(_cut_off, run.lost.items())):
            faults = {key: loss for key, loss in run.lost.items() if _is_own_fault(key, loss)}
            run, notes = self._time_once(racing, device, workload, bases)
        timed = {}
        for index in racing:
            timed[index] = run, notes
            if index not in faults and _doubtful(index, run):
                self.workers.close(index)
                timed[index] = self._time_once([index], device, workload, bases)

        again = self._again(run, device, workload, bases)

        def finish(index: int) -> Result:
            own, own_notes = timed[index]
            slowed = map(_slowed, sorted(own.watch.slowed))
            lost = faults.get(index, own.lost.get(index))
            samples = _samples(own)
            if TRUSTED in samples:
                samples[TRUSTED] = replace(samples[TRUSTED], again=again)
            result = self._finish(index, results[index], lost, samples)
            result = with_timed(result, own.compared.get(index))
            asked = map(_asked, filter(None, [own.asked(index)]))
            return replace(result, findings=(*result.findings, *own_notes, *asked, *slowed))

        # At once: what a GPU's process has mapped takes the system a while to tell.
        results |= dict(zip(racing, self.pool.map(finish, racing), strict=True))

    def _time_once(
        self, racing: Sequence[int], device: str, workload: Workload, bases: Sequence[Base]
    ) -> tuple[InterleavedTiming, list[Finding]]:
        """The race, and which baselines are not in it."""
        runners: dict[Key, Opened] = {}
        unopened: dict[Key, Loss] = {}
        notes = []
        for index in racing:
            opened = self.workers.open(index)
            if isinstance(opened, Failure):
                unopened[index] = Doubt(f"it could not be timed: {opened}")
            else:
                runners[index] = opened
        for name in dict.fromkeys((TRUSTED, *self.baselines)):
            opened = self.workers.baseline(name, device)
            if isinstance(opened, Failure):
                notes.append(_untimed(str(opened)))
            else:
                runners[name] = opened
        targets = {index: self.workers.contestants[index].request.target for index in racing}
        where = targets[racing[0]]
        run = InterleavedTiming(
            self.op,
            workload,
            self.dtype,
            bases,
            self._plan(where, workload),
            self.limits.run_s,
            targets,
            {key: runner.method for key, runner in runners.items()},
            Watch(where),
            placed=frozenset(key for key in runners if self._is_placed(key, device)),
            device=device,
            returning=frozenset(i for i in racing if where.is_gpu and self._is_returning(i)),
            unplaced=self.unplaced.get(device, ""),
        )
        run.lost |= unopened
        if TRUSTED in runners:
            try:
                run.run({key: runner.session for key, runner in runners.items()}, TRUSTED)
            except RuntimeError as error:
                if run.unplaced or not is_device_failure(error):
                    raise
                self.unplaced[device] = "the evaluator's own work on this GPU failed"
                return self._time_once(racing, device, workload, bases)
        if run.unplaced:
            self.unplaced[device] = run.unplaced
        if (lost := run.lost.get(TRUSTED)) is not None:
            notes.append(_untimed(str(_loss(lost))))
        return run, notes

    def _again(
        self, run: InterleavedTiming, device: str, workload: Workload, bases: Sequence[Base]
    ) -> tuple[tuple[float, ...], ...]:
        """Rounds of the trusted baseline in another process, where its threads may lie otherwise;
        none where one thread does its work, or nobody waits for sure times."""
        laps = run.rounds.get(TRUSTED, [])
        teams = sum(lap.beside_s > ALONE * lap.busiest_s for lap in laps)
        if device != "cpu" or not self.plan.patient or 2 * teams <= len(laps):
            return ()
        self.workers.close_baseline(TRUSTED, device)
        opened = self.workers.baseline(TRUSTED, device)
        if isinstance(opened, Failure):
            return ()
        other = InterleavedTiming(
            self.op,
            workload,
            self.dtype,
            bases,
            replace(self.plan, rounds=SETTLED * self.plan.rounds, budget_s=0.0, slow_s=SLOW_S),
            self.limits.run_s,
            {},
            {TRUSTED: opened.method},
            run.watch,
            placed=frozenset({TRUSTED}),
        )
        other.run({TRUSTED: opened.session}, TRUSTED)
        # A team's first rounds in a process are slow: its threads find their processors.
        return tuple(map(tuple, other.samples().get(TRUSTED, [])[-self.plan.rounds :]))

    def _is_placed(self, key: Key, device: str) -> bool:
        """Whether its calls work on memory of the evaluator's; ``device`` is the baseline's."""
        if not isinstance(key, int):
            return True
        backend = self.workers.contestants[key].request.backend
        return backend.host_memory if device == "cpu" else backend.device_memory

    def _is_returning(self, index: int) -> bool:
        return self.workers.contestants[index].request.candidate.style != "dps"

    def _plan(self, where: Target, workload: Workload) -> statistics.TimingPlan:
        """The plan of timing, with longer rounds on a GPU, whose memory is fast and whose workloads
        are large."""
        if not where.is_gpu:
            return self.plan
        most = int((where.memory_gb or 0.0) * 1e9 * ROUND_OF_GPU)
        wanted = ROUND_CALLS * self.op.tensor_bytes(workload.dims, self.dtype)
        return replace(self.plan, round_bytes=max(min(wanted, most), 16 * self.plan.round_bytes))

    def _finish(
        self, index: int, before: Result, lost: Loss | None, samples: Mapping[Key, Samples]
    ) -> Result:
        if lost is not None:
            failure = _loss(lost)
            return replace(before, verdict=failure.verdict, detail=str(failure))
        if TRUSTED not in samples or index not in samples:
            return before
        changed = self._changed(index)
        if changed:
            return replace(before, verdict=Verdict.SUSPICIOUS, detail=changed)
        asked = {name: samples[name] for name in self.baselines if name in samples}
        return replace(before, samples=samples[index], baselines=asked)

    def _changed(self, index: int) -> str:
        """The changes that the timed calls made for others; '' when there are none."""
        opened = self.workers.opened(index)
        session = opened.session
        faults = code_pages.handled_faults(session.pid) - opened.faults
        # Of OpenCL the compiler handles them, and a GPU's driver may.
        if faults and self.workers.contestants[index].request.candidate.backend == "cpu":
            signals = ", ".join(sorted(faults))
            return f"it handles {signals}, and may compute an output when it is looked at"
        altered = code_pages.changed(opened.code, code_pages.written(session.pid))
        if altered:
            return f"it wrote to the code of {', '.join(altered)} in memory"
        outcome = session.ask(protocol.State(), timeout_s=self.limits.run_s)
        if isinstance(outcome, Answered):
            return worker_reports.changed_state(outcome.reply.changed)
        return str(failure_of(outcome, "the question for what it changed"))


def _samples(run: InterleavedTiming) -> dict[Key, Samples]:
    return {
        key: Samples(
            tuple(map(tuple, laps)), run.methods[key], run.watch.seen, run.unsure.get(key, "")
        )
        for key, laps in run.samples().items()
    }


def _doubtful(index: int, run: InterleavedTiming) -> bool:
    """Whether a machine with other load may be the cause of this outcome. Uncertain times are
    left to those runs which wait for another load."""
    loss = run.lost.get(index)
    if isinstance(loss, Doubt):
        return not loss.wrong
    if not run.plan.patient:
        return False
    timed = _samples(run)
    if loss is not None or index not in timed or TRUSTED not in timed:
        return False
    mine, trusted = timed[index], timed[TRUSTED]
    timing = statistics.summarize(mine.rounds, mine.method)
    ratio = statistics.speedup_of_rounds(mine.rounds, trusted.rounds)
    return bool(mine.unsure or statistics.noisy(timing, {TRUSTED: ratio}))


def _untimed(why: str) -> Finding:
    return Finding(code="no-baseline", severity="warning", message=why)


def _asked(why: str) -> Finding:
    message = f"outputs of timed calls were asked of the kernel's own process: {why}"
    return Finding(code="outputs-asked-for", severity="note", message=message)


def _slowed(by: str) -> Finding:
    message = f"while it was timed, the device's clocks were held down by {by}"
    return Finding(code="slowed", severity="warning", message=message)


def _cut_off(lost: tuple[Key, Loss]) -> bool:
    """Whether a loss cuts off the race: the loss of a fork server does, and that of a baseline,
    whatever ends it."""
    key, loss = lost
    return isinstance(loss, Died) and (loss.cause == "harness" or isinstance(key, str))


def _is_own_fault(key: Key, loss: Loss) -> bool:
    """Whether a loss is the kernel's own fault: neither cut off nor accused by its times alone, so
    that no other race takes it back."""
    accused = isinstance(loss, Doubt) and not loss.wrong
    return not accused and not _cut_off((key, loss))


def _loss(loss: Loss) -> Failure:
    if isinstance(loss, Doubt):
        return Failure(Verdict.WRONG if loss.wrong else Verdict.SUSPICIOUS, loss.reason)
    return failure_of(loss, "the timed kernel")
