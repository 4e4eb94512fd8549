"""Evaluates kernels: every exit is a :class:`Result`, none is an exception.

All kernels of one op and dtype are evaluated together, each in a worker of its own: they see the
same fresh inputs, and are timed in turns with the baseline on the same device.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, get_args

from portkern.errors import ReferenceFailed
from portkern.evaluator import (
    attribution,
    code_pages,
    compare,
    host_memory,
    host_shortage,
    imported,
    inputs,
    interleaved_timing,
    reference,
    reference_device,
    statistics,
    worker_reports,
)
from portkern.evaluator.build import Failure, StageLimits, failure_of
from portkern.evaluator.device_health import Devices
from portkern.evaluator.telemetry import Watch
from portkern.evaluator.worker_reports import Slots
from portkern.evaluator.workers import TRUSTED, Baseline, Contestant, Opened, Workers
from portkern.records.record import Errors, Finding, Launch, Tolerance, Verdict
from portkern.sandbox.session import Answered, Died, Outcome, Session
from portkern.spec.op import Op, Workload
from portkern.worker import output_guards, protocol

if TYPE_CHECKING:
    import torch

#: On a GPU a round has so many calls, if this share of its memory has room for their tensors: the
#: time of few calls says little from outside.
ROUND_CALLS, ROUND_OF_GPU = 32, 1 / 16
#: A distribution and the inputs drawn from it.
Base = tuple[str, Sequence["torch.Tensor"]]


@dataclass(frozen=True)
class TrialOptions:
    """``baselines``: ``eager``, ``compile`` (torch.compile of the reference) and names of
    ``others``."""

    limits: StageLimits = field(default_factory=StageLimits)
    plan: statistics.TimingPlan = field(default_factory=statistics.TimingPlan)
    baselines: tuple[str, ...] = ("eager",)
    distributions: tuple[str, ...] = tuple(inputs.DISTRIBUTIONS)
    others: Mapping[str, Baseline] = field(default_factory=dict)


@dataclass(frozen=True)
class Samples:
    """Microseconds per call of each round, how they were taken and what the device was like;
    ``unsure``: why they could not be checked."""

    rounds: tuple[tuple[float, ...], ...]
    method: str
    conditions: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    unsure: str = ""

    @property
    def values(self) -> list[float]:
        return statistics.observations(self.rounds)


@dataclass(frozen=True)
class Result:
    """One contestant on one workload. ``samples`` are there when it passed on hardware;
    ``harness``: it was cut off by what the kernel had no part in."""

    verdict: Verdict
    detail: str = ""
    errors: Errors | None = None
    samples: Samples | None = None
    baselines: Mapping[str, Samples] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    launches: tuple[Launch, ...] = ()
    harness: bool = False


@dataclass
class Checked:
    """What is known of a workload before anyone is timed: by index the results so far, and whom all
    cases have passed, with the inputs of these. They keep their memory until it is let go."""

    workload: Workload
    distributions: tuple[str, ...]
    results: dict[int, Result] = field(default_factory=dict)
    standing: list[int] = field(default_factory=list)
    bases: list[Base] = field(default_factory=list)


class Trial:
    """The workers of all contestants for one op and dtype, and of the baselines they are timed
    against. A worker that died, or whose kernel crashed, is started again for the next workload,
    if its device is in order; ``devices`` remembers those that are not."""

    def __init__(
        self,
        op: Op,
        dtype: str,
        contestants: Sequence[Contestant],
        options: TrialOptions,
        devices: Devices | None = None,
    ) -> None:
        self.op, self.dtype, self.options = op, dtype, options
        self._devices = devices or Devices()
        host_memory.keep_freed()
        self.contestants = list(contestants)
        self._pool = ThreadPoolExecutor(min(len(self.contestants) or 1, os.cpu_count() or 1))
        # What is made and opened before it is needed.
        self._ahead = ThreadPoolExecutor(2 + len(options.baselines))
        self._runners = Workers(op, contestants, options.limits, options.others)
        self._reference_device = reference_device.ReferenceDevice(op, dtype)

    def __enter__(self) -> Trial:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._ahead.shutdown(cancel_futures=True)
        self._pool.shutdown()
        self._runners.close_all()
        imported.close(self.op.reference)

    def load_ahead(self, pool: Executor) -> list[Future[None]]:
        """Load all kernels before it is their turn. Their workers then stand still until
        :meth:`run`: nothing of theirs runs while others are timed."""
        return self._runners.open_ahead(range(len(self.contestants)), pool, at_rest=True)

    def run(
        self, workload: Workload, *, distributions: Sequence[str] | None = None
    ) -> list[Result]:
        """Evaluate every contestant on ``workload``, with inputs of these ``distributions`` or of
        those that the options and the op's adversaries give."""
        return self.race(self.check(workload, distributions=distributions))

    def check(self, workload: Workload, *, distributions: Sequence[str] | None = None) -> Checked:
        """The first half of :meth:`run`: whether they are right. Others may be checked meanwhile,
        on the same device too."""
        chosen = distributions or inputs.choose(self.op, workload, self.options.distributions)
        checked = Checked(workload, tuple(chosen))
        everyone = range(len(self.contestants))
        lack = host_memory.lack(self.op, workload, self.dtype, at_once=len(everyone))
        if lack:
            checked.results |= dict.fromkeys(everyone, Result(Verdict.UNAVAILABLE, lack))
        else:
            self._go_through(checked, self._check)
        return checked

    def race(self, checked: Checked) -> list[Result]:
        """The other half, which must have the machine for itself: who is right is timed."""
        if checked.standing:
            self._go_through(checked, self._race_all)
        return [checked.results[index] for index in range(len(self.contestants))]

    def rest(self) -> None:
        """Nothing of the contestants runs before the next :meth:`check` or :meth:`race`."""
        self._runners.rest()

    def forget(self) -> None:
        """Give back the memory that timing took, which another one on this device may need."""
        self._runners.forget()

    def _go_through(self, checked: Checked, phase: Callable[[Checked], None]) -> None:
        """Where it cannot be done, the results say why."""
        try:
            self._once_more_on_host(checked, phase)
        except ReferenceFailed as error:
            reason = str(error)
        except host_memory.EXHAUSTED as error:
            if not host_memory.exhausted(error):
                raise
            cause = str(error).partition("\n")[0] or "MemoryError"
            reason = f"the evaluator ran out of memory: {cause}"
        else:
            return
        checked.standing = []
        for index in range(len(self.contestants)):
            checked.results[index] = Result(Verdict.UNAVAILABLE, reason)

    def _once_more_on_host(self, checked: Checked, phase: Callable[[Checked], None]) -> None:
        """When the evaluator's own work on a GPU fails, it goes on without, from the beginning."""
        try:
            phase(checked)
        except RuntimeError as error:
            if not reference_device.is_device_failure(error):
                raise
            self._reference_device.give_up()
            checked.results.clear()
            self._check(checked)
            if phase != self._check:
                phase(checked)

    def _check(self, checked: Checked) -> None:
        workload, results = checked.workload, checked.results
        self._runners.go_on()
        standing = self._healthy(range(len(self.contestants)), results)
        opening = self._runners.open_ahead(standing, self._pool)
        baselines = [
            self._ahead.submit(self._runners.baseline, name, device)
            for device in {self._device(i) for i in standing} - {""}
            for name in dict.fromkeys((TRUSTED, *self.options.baselines))
        ]
        try:
            where = self._reference_device.choose(workload, {self._device(i) for i in standing})
            cases = self._cases(workload, checked.distributions, where)
            standing, checked.bases = self._compare(workload, cases, standing, opening, results)
            reference_device.release(where)
        finally:
            wait(opening)  # or they would be opened twice
            wait(baselines)
        checked.standing = standing

    def _race_all(self, checked: Checked) -> None:
        """Device by device."""
        self._runners.go_on()
        for device in {self._device(i) for i in checked.standing} - {""}:
            racing = [i for i in checked.standing if self._device(i) == device]
            self._race(racing, device, checked.workload, checked.bases, checked.results)
            self._after_faults(racing, checked.results)

    def _compare(
        self,
        workload: Workload,
        cases: Iterable[reference.Case],
        standing: list[int],
        opening: Sequence[Future[None]],
        results: dict[int, Result],
    ) -> tuple[list[int], list[Base]]:
        """Who has passed all cases, and the inputs of these, where they were made: what timed calls
        may see too. Of large ones, the base and one other."""
        bases: list[Base] = []
        few = inputs.largest(self.op, workload) <= inputs.MANY_ELEMENTS
        for case in cases:
            if not standing:
                break
            wait(opening)
            if few or len(bases) < 2:
                bases.append((case.distribution, case.placed))
            evaluate = partial(self._evaluate, workload=workload, case=case)
            evaluated = self._pool.map(evaluate, standing, [results.get(i) for i in standing])
            results |= dict(zip(standing, evaluated, strict=True))
            for index in standing:
                results[index] = self._alone_if_short(index, results[index], workload, case)
            self._after_faults(standing, results)
            standing = [i for i in standing if results[i].verdict is Verdict.PASSED]
            standing = self._healthy(standing, results)
        return standing, bases

    def _cases(
        self, workload: Workload, distributions: Sequence[str], device: str
    ) -> Iterator[reference.Case]:
        """In the order they are evaluated in; each is made while the one before is in use."""
        coming: Future[reference.Case] | None = None
        for name in (*distributions, None):
            made = coming.result() if coming is not None else None
            if name is not None:
                coming = self._ahead.submit(self._case, workload, name, device)
            if made is not None:
                yield made

    def _case(self, workload: Workload, distribution: str, device: str) -> reference.Case:
        def made(where: str) -> reference.Case:
            case = reference.make_case(self.op, workload, self.dtype, distribution, device=where)
            _ = case.budgets, case.inputs  # once, before several threads share it
            return case

        return reference_device.with_host_in_reserve(device, made)

    def _healthy(self, asked: Iterable[int], results: dict[int, Result]) -> list[int]:
        """Those whose device is in order; the others are told why they are not evaluated."""
        sound = []
        for index in asked:
            problem = self._devices.problem(self._device(index))
            if problem:
                results[index] = Result(Verdict.UNAVAILABLE, problem)
            else:
                sound.append(index)
        return sound

    def _after_faults(self, asked: Sequence[int], results: Mapping[int, Result]) -> None:
        """A process that saw an illegal access cannot use its device again; nor can anyone, if
        worse has happened to it."""
        failed = [i for i in asked if results[i].verdict in (Verdict.CRASHED, Verdict.TIMED_OUT)]
        for index in failed:
            if self._device(index):
                self._runners.close(index)
        for device in {self._device(i) for i in failed} - {"", "cpu"}:
            self._devices.check(device)

    def _device(self, index: int) -> str:
        return self.contestants[index].device

    def _evaluate(
        self, index: int, before: Result | None, *, workload: Workload, case: reference.Case
    ) -> Result:
        """Asked again, once, when it was cut off by no fault of the kernel."""
        result = self._evaluate_once(index, before, workload, case)
        return self._evaluate_once(index, before, workload, case) if result.harness else result

    def _alone_if_short(
        self, index: int, result: Result, workload: Workload, case: reference.Case
    ) -> Result:
        """Who failed for want of processes or memory is asked again while nobody else is; where the
        machine is short of them even so, it is no verdict on the kernel."""
        if result.verdict not in (Verdict.CRASHED, Verdict.TIMED_OUT):
            return result
        ended = result.verdict is Verdict.TIMED_OUT or "SIGKILL" in result.detail
        if not host_shortage.is_said(result.detail) and not (ended and host_shortage.seen()):
            return result
        self._runners.close(index)
        again = self._evaluate_once(index, None, workload, case)
        if again.verdict in (Verdict.CRASHED, Verdict.TIMED_OUT) and (why := host_shortage.seen()):
            return Result(Verdict.UNAVAILABLE, why, harness=True)
        return again

    def _evaluate_once(
        self, index: int, before: Result | None, workload: Workload, case: reference.Case
    ) -> Result:
        """One call on fresh inputs, and on the base distribution a second with equal ones: what
        works for the first alone, such as a compiler, is not in its trace."""
        opened = self._runners.open(index)
        if isinstance(opened, Failure):
            return Result(opened.verdict, str(opened), harness=opened.harness)
        session = opened.session
        if before is None:
            before, opened.seconds = Result(Verdict.PASSED, seconds=opened.seconds), {}
        result, first = self._evaluate_call(session, before, workload, case)
        if result.verdict is not Verdict.PASSED or case.distribution != inputs.BASE:
            return result
        work = self.contestants[index].work if any(t.numel() for t in case.exact) else None
        result, second = self._evaluate_call(
            session, result, workload, case, traced=work, known=first
        )
        if result.verdict in (Verdict.REJECTED, Verdict.SUSPICIOUS):
            return result
        if result.verdict is not Verdict.PASSED:
            return replace(result, detail=f"in a second call with equal inputs: {result.detail}")
        again = compare.repeated(first=first, second=second, case=case, precision=self.op.precision)
        if again.spread is None:
            return result
        message = again.problem or f"two calls with equal inputs differ by up to {again.spread:.2g}"
        note = Finding(code="nondeterministic", severity="note", message=message)
        verdict = Verdict.WRONG if again.problem else Verdict.PASSED
        return replace(
            result, verdict=verdict, detail=again.problem, findings=(*result.findings, note)
        )

    def _evaluate_call(
        self,
        session: Session,
        before: Result,
        workload: Workload,
        case: reference.Case,
        traced: attribution.AttributedKernel | None = None,
        known: Sequence[torch.Tensor] = (),
    ) -> tuple[Result, list[torch.Tensor]]:
        """The verdict on one call and its outputs; errors are the worst of this and the calls
        before. ``traced`` asks who did the work; ``known`` outputs of this case were right."""
        seconds = dict(before.seconds)
        outcome, slots = self._ask_run(session, workload, case, traced=traced is not None)
        if not isinstance(outcome, Answered):
            failure = failure_of(outcome, "the kernel")
            lost = Result(failure.verdict, str(failure), seconds=seconds, harness=failure.harness)
            return lost, []
        ran, took_s = outcome.reply, outcome.reply.seconds
        seconds = {"first": took_s} | seconds | {"run": seconds.get("run", 0.0) + took_s}
        findings = worker_reports.findings(ran.findings, before.findings)
        actual = worker_reports.collect(self.op, session.memory, slots, ran)
        problem = actual if isinstance(actual, str) else ""
        problem = problem or worker_reports.written_outside(self.op, session.memory, slots)
        changed = worker_reports.changed_input(self.op, session.memory, slots, case)
        if changed and not problem:
            problem = f"the kernel changed its input {changed!r}"
        if problem or isinstance(actual, str):
            return Result(Verdict.WRONG, problem, seconds=seconds, findings=findings), []
        if known and compare.same(actual, known):
            compared, errors = compare.Comparison(""), before.errors
        else:
            compared = compare.compare(actual=actual, case=case, precision=self.op.precision)
            errors = _worst(before.errors, compared)
        findings = worker_reports.with_caveat(findings, compared.caveat)
        defects = [str(finding) for finding in findings if finding.severity == "error"]
        problem = compared.problem or "\n".join(defects)
        if problem:
            return Result(Verdict.WRONG, problem, errors, seconds=seconds, findings=findings), []
        result = Result(
            Verdict.PASSED, "", errors, seconds=seconds, findings=findings, launches=before.launches
        )
        return _held(result, ran, traced), actual

    def _ask_run(
        self, session: Session, workload: Workload, case: reference.Case, *, traced: bool
    ) -> tuple[Outcome[protocol.Ran], Slots]:
        signature, memory = self.op.signature, session.memory
        memory.clear()
        wanted = [
            (spec.sizes(workload.dims), spec.resolve(self.dtype)) for spec in signature.outputs
        ]
        blocks = [output_guards.guarded(*form) for form in wanted]
        margins = tuple(map(output_guards.margins, blocks))
        given = tuple(map(memory.put, case.inputs))
        slots = Slots(
            given,
            tuple(map(memory.put, blocks)),
            tuple(memory.put(output_guards.poison(*form)) for form in wanted),
            tuple(memory.slot(slot.shape, slot.dtype) for slot in given),
            tuple(map(memory.put, margins)),
            margins,
        )
        request = protocol.Run(
            slots.inputs,
            slots.outputs,
            slots.results,
            slots.after,
            slots.guards,
            workload.dims,
            signature.scalar_values(workload.scalars),
            traced,
        )
        return session.ask(request, timeout_s=self.options.limits.run_s), slots

    def _race(
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
        run, notes = self._race_once(racing, device, workload, bases)
        faults: dict[interleaved_timing.Key, interleaved_timing.Loss] = {}  # of their own
        if any(map(_cut_off, run.lost.items())):
            faults = {key: loss for key, loss in run.lost.items() if _is_own_fault(key, loss)}
            run, notes = self._race_once(racing, device, workload, bases)
        timed = {}
        for index in racing:
            timed[index] = run, notes
            if index not in faults and _doubtful(index, run):
                self._runners.close(index)
                timed[index] = self._race_once([index], device, workload, bases)

        def finish(index: int) -> Result:
            own, own_notes = timed[index]
            slowed = map(_slowed, sorted(own.watch.slowed))
            lost = faults.get(index, own.lost.get(index))
            result = self._finish(index, results[index], lost, _samples(own))
            result = _with_timed(result, own.compared.get(index))
            return replace(result, findings=(*result.findings, *own_notes, *slowed))

        # At once: what a GPU's process has mapped takes the system a while to tell.
        results |= dict(zip(racing, self._pool.map(finish, racing), strict=True))

    def _race_once(
        self, racing: Sequence[int], device: str, workload: Workload, bases: Sequence[Base]
    ) -> tuple[interleaved_timing.InterleavedTiming, list[Finding]]:
        """The race, and which baselines are not in it."""
        runners: dict[interleaved_timing.Key, Opened] = {}
        unopened: dict[interleaved_timing.Key, interleaved_timing.Loss] = {}
        notes = []
        for index in racing:
            opened = self._runners.open(index)
            if isinstance(opened, Failure):
                unopened[index] = interleaved_timing.Doubt(f"it could not be timed: {opened}")
            else:
                runners[index] = opened
        for name in dict.fromkeys((TRUSTED, *self.options.baselines)):
            opened = self._runners.baseline(name, device)
            if isinstance(opened, Failure):
                notes.append(_untimed(str(opened)))
            else:
                runners[name] = opened
        targets = {index: self.contestants[index].request.target for index in racing}
        plan = self.options.plan
        where = targets[racing[0]]
        if where.is_gpu:  # whose memory is fast, and whose workloads are large
            most = int((where.memory_gb or 0.0) * 1e9 * ROUND_OF_GPU)
            wanted = ROUND_CALLS * self.op.tensor_bytes(workload.dims, self.dtype)
            plan = replace(plan, round_bytes=max(min(wanted, most), 16 * plan.round_bytes))
        run = interleaved_timing.InterleavedTiming(
            self.op,
            workload,
            self.dtype,
            bases,
            plan,
            self.options.limits.run_s,
            targets,
            {key: runner.method for key, runner in runners.items()},
            Watch(where),
        )
        run.lost |= unopened
        if TRUSTED in runners:
            run.run({key: runner.session for key, runner in runners.items()}, TRUSTED)
        if (lost := run.lost.get(TRUSTED)) is not None:
            notes.append(_untimed(str(_loss(lost))))
        return run, notes

    def _finish(
        self,
        index: int,
        before: Result,
        lost: interleaved_timing.Loss | None,
        samples: Mapping[interleaved_timing.Key, Samples],
    ) -> Result:
        if lost is not None:
            failure = _loss(lost)
            return replace(before, verdict=failure.verdict, detail=str(failure))
        if TRUSTED not in samples or index not in samples:
            return before
        changed = self._changed(index)
        if changed:
            return replace(before, verdict=Verdict.SUSPICIOUS, detail=changed)
        asked = {name: samples[name] for name in self.options.baselines if name in samples}
        return replace(before, samples=samples[index], baselines=asked)

    def _changed(self, index: int) -> str:
        """What the timed calls have changed for others."""
        opened = self._runners.opened(index)
        session = opened.session
        faults = code_pages.handled_faults(session.pid) - opened.faults
        # Of OpenCL the compiler handles them, and a GPU's driver may.
        if faults and self.contestants[index].request.candidate.backend == "cpu":
            signals = ", ".join(sorted(faults))
            return f"it handles {signals}, and may compute an output when it is looked at"
        altered = code_pages.changed(opened.code, code_pages.written(session.pid))
        if altered:
            return f"it wrote to the code of {', '.join(altered)} in memory"
        outcome = session.ask(protocol.State(), timeout_s=self.options.limits.run_s)
        if isinstance(outcome, Answered):
            return worker_reports.changed_state(outcome.reply.changed)
        return str(failure_of(outcome, "the question for what it changed"))


def _samples(
    run: interleaved_timing.InterleavedTiming,
) -> dict[interleaved_timing.Key, Samples]:
    return {
        key: Samples(
            tuple(map(tuple, laps)), run.methods[key], run.watch.seen, run.unsure.get(key, "")
        )
        for key, laps in run.samples().items()
    }


def _doubtful(index: int, run: interleaved_timing.InterleavedTiming) -> bool:
    """What a machine with other load may be the cause of. Times that are uncertain are for those
    to better who wait for another load."""
    loss = run.lost.get(index)
    if isinstance(loss, interleaved_timing.Doubt):
        return not loss.wrong
    if not run.plan.patient:
        return False
    timed = _samples(run)
    if loss is not None or index not in timed or TRUSTED not in timed:
        return False
    mine, trusted = timed[index], timed[TRUSTED]
    timing = statistics.summarize(mine.rounds, mine.method)
    ratio = statistics.speedup(mine.values, trusted.values)
    return bool(mine.unsure or statistics.noisy(timing, {TRUSTED: ratio}))


def _untimed(why: str) -> Finding:
    return Finding(code="no-baseline", severity="warning", message=why)


def _slowed(by: str) -> Finding:
    message = f"while it was timed, the device's clocks were held down by {by}"
    return Finding(code="slowed", severity="warning", message=message)


def _held(right: Result, ran: protocol.Ran, traced: attribution.AttributedKernel | None) -> Result:
    """A call with right outputs, held against what it changed for others and who did its work."""
    changed = worker_reports.changed_state(ran.changed)
    if changed:
        return replace(right, verdict=Verdict.SUSPICIOUS, detail=changed)
    if traced is None:
        return right
    proof = attribution.hold(ran.trace or protocol.Trace(), traced, seconds=ran.seconds)
    return replace(
        right,
        verdict=proof.verdict,
        detail=proof.problem,
        launches=proof.launches,
        findings=(*right.findings, *proof.findings),
    )


def _cut_off(lost: tuple[interleaved_timing.Key, interleaved_timing.Loss]) -> bool:
    """Whoever loses a fork server loses a race; so does a baseline, whatever ends it."""
    key, loss = lost
    return isinstance(loss, Died) and (loss.cause == "harness" or isinstance(key, str))


def _is_own_fault(key: interleaved_timing.Key, loss: interleaved_timing.Loss) -> bool:
    """Neither cut off nor accused by its times alone: no other race takes it back."""
    accused = isinstance(loss, interleaved_timing.Doubt) and not loss.wrong
    return not accused and not _cut_off((key, loss))


def _loss(loss: interleaved_timing.Loss) -> Failure:
    if isinstance(loss, interleaved_timing.Doubt):
        return Failure(Verdict.WRONG if loss.wrong else Verdict.SUSPICIOUS, loss.reason)
    return failure_of(loss, "the timed kernel")


def _worst(before: Errors | None, now: compare.Comparison) -> Errors:
    names = ("max_abs", "max_rel", "vs_fp64", "reference_vs_fp64")
    return Errors(
        tolerance=_widest(before, now),
        **{
            name: max(getattr(now, name), getattr(before, name) if before else 0.0)
            for name in names
        },
    )


def _widest(before: Errors | None, now: compare.Comparison) -> Tolerance:
    known = (before and before.tolerance) or now.tolerance
    return max(known, now.tolerance, key=get_args(Tolerance).index)


def _with_timed(result: Result, now: compare.Comparison | None) -> Result:
    """By which rule the outputs of timed calls were compared; their errors are not recorded."""
    if now is None or result.errors is None:
        return result
    errors = result.errors.model_copy(update={"tolerance": _widest(result.errors, now)})
    findings = worker_reports.with_caveat(result.findings, now.caveat)
    return replace(result, errors=errors, findings=findings)
