"""Judges kernels: every exit is a :class:`Result`, none is an exception.

All kernels of one op and dtype are judged together, each in a worker of its own: they see the
same fresh inputs, and are timed in turns with the baseline on the same device.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from functools import partial
from types import TracebackType
from typing import Any

from portkern import answers, check, claims, fences, inputs, memory, proof, race, timing
from portkern.building import Failure, Limits, failure_of
from portkern.claims import Slots
from portkern.health import Devices
from portkern.op import Op, Workload
from portkern.record import Errors, Finding, Launch, Verdict
from portkern.runners import TRUSTED, Baseline, Contestant, Opened, Runners
from portkern.sandbox import Answer, Died, Outcome, Session
from portkern.telemetry import Watch


@dataclass(frozen=True)
class Options:
    """``baselines``: ``eager``, ``compile`` (torch.compile of the reference) and names of
    ``others``."""

    limits: Limits = field(default_factory=Limits)
    plan: timing.Plan = field(default_factory=timing.Plan)
    baselines: tuple[str, ...] = ("eager",)
    distributions: tuple[str, ...] = tuple(inputs.DISTRIBUTIONS)
    others: Mapping[str, Baseline] = field(default_factory=dict)


@dataclass(frozen=True)
class Samples:
    """Microseconds per call of each round, how they were taken and what the device was like."""

    laps: tuple[tuple[float, ...], ...]
    method: str
    conditions: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def values(self) -> list[float]:
        return timing.observations(self.laps)


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


class Trial:
    """The workers of all contestants for one op and dtype, and of the baselines they are timed
    against. A worker that died, or whose kernel crashed, is started again for the next workload,
    if its device is in order; ``devices`` remembers those that are not."""

    def __init__(
        self, op: Op, dtype: str, contestants: Sequence[Contestant], options: Options,
        devices: Devices | None = None,
    ) -> None:  # fmt: skip
        self.op, self.dtype, self.options = op, dtype, options
        self._devices = devices or Devices()
        memory.keep_freed()
        self.contestants = list(contestants)
        self._pool = ThreadPoolExecutor(min(len(self.contestants) or 1, os.cpu_count() or 1))
        self._ahead = ThreadPoolExecutor(2)  # what is made and opened before it is needed
        self._runners = Runners(op, contestants, options.limits, options.others)

    def __enter__(self) -> Trial:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self._ahead.shutdown(cancel_futures=True)
        self._pool.shutdown()
        self._runners.close_all()

    def run(
        self, workload: Workload, *, distributions: Sequence[str] | None = None
    ) -> list[Result]:
        """Judge every contestant on ``workload``, with inputs of these ``distributions`` or of
        those that the options and the op's adversaries give; the timed part has the machine for
        itself."""
        chosen = distributions or inputs.choose(self.op, workload, self.options.distributions)
        everyone = list(range(len(self.contestants)))
        lack = memory.lack(self.op, workload, self.dtype, at_once=len(everyone))
        if lack:
            return [Result(Verdict.UNAVAILABLE, lack) for _ in everyone]
        results: dict[int, Result] = {}
        try:
            self._run(workload, chosen, results)
        except memory.EXHAUSTED as error:
            if not memory.exhausted(error):
                raise
            reason = (
                f"the judge ran out of memory: {str(error).partition(chr(10))[0] or 'MemoryError'}"
            )
            return [Result(Verdict.UNAVAILABLE, reason) for _ in everyone]
        return [results[index] for index in everyone]

    def _run(
        self, workload: Workload, distributions: Sequence[str], results: dict[int, Result]
    ) -> None:
        standing = self._healthy(range(len(self.contestants)), results)
        opening = self._runners.open_ahead(standing, self._pool)
        baselines = [
            self._ahead.submit(self._runners.baseline, TRUSTED, device)
            for device in {self._device(i) for i in standing} - {""}
        ]
        try:
            cases = self._cases(workload, distributions)
            standing, base = self._compare(workload, cases, standing, opening, results)
        finally:
            wait(opening)  # or they would be opened twice
            wait(baselines)
        for device in {self._device(i) for i in standing} - {""}:
            racing = [i for i in standing if self._device(i) == device]
            self._race(racing, device, workload, base, results)
            self._after_faults(racing, results)

    def _compare(
        self, workload: Workload, cases: Iterable[answers.Case], standing: list[int],
        opening: Sequence[Future[None]], results: dict[int, Result],
    ) -> tuple[list[int], tuple[Any, ...]]:  # fmt: skip
        """Who has passed all cases, and the inputs of the base."""
        base: tuple[Any, ...] = ()
        for case in cases:
            if not standing:
                break
            wait(opening)
            base = case.inputs if case.distribution == inputs.BASE else base
            judge = partial(self._judge, workload=workload, case=case)
            judged = self._pool.map(judge, standing, [results.get(i) for i in standing])
            results |= dict(zip(standing, judged, strict=True))
            self._after_faults(standing, results)
            standing = [i for i in standing if results[i].verdict is Verdict.PASSED]
            standing = self._healthy(standing, results)
        return standing, base

    def _cases(self, workload: Workload, distributions: Sequence[str]) -> Iterator[answers.Case]:
        """In the order they are judged in; each is made while the one before is in use."""
        coming: Future[answers.Case] | None = None
        for name in (*distributions, None):
            made = coming.result() if coming is not None else None
            if name is not None:
                coming = self._ahead.submit(self._case, workload, name)
            if made is not None:
                yield made

    def _case(self, workload: Workload, distribution: str) -> answers.Case:
        case = answers.make_case(self.op, workload, self.dtype, distribution)
        _ = case.budgets  # once, before several threads share it
        return case

    def _healthy(self, asked: Iterable[int], results: dict[int, Result]) -> list[int]:
        """Those whose device is in order; the others are told why they are not judged."""
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

    def _judge(
        self, index: int, before: Result | None, *, workload: Workload, case: answers.Case
    ) -> Result:
        """Asked again, once, when it was cut off by no fault of the kernel."""
        result = self._judge_once(index, before, workload, case)
        return self._judge_once(index, before, workload, case) if result.harness else result

    def _judge_once(
        self, index: int, before: Result | None, workload: Workload, case: answers.Case
    ) -> Result:
        """One call on fresh inputs, and on the base distribution a second with equal ones: what
        works for the first alone, such as a compiler, is not in its trace."""
        opened = self._runners.open(index)
        if isinstance(opened, Failure):
            return Result(opened.verdict, str(opened), harness=opened.harness)
        session = opened.session
        if before is None:
            before, opened.seconds = Result(Verdict.PASSED, seconds=opened.seconds), {}
        result, first = self._judge_call(session, before, workload, case)
        if result.verdict is not Verdict.PASSED or case.distribution != inputs.BASE:
            return result
        work = self.contestants[index].work if any(t.numel() for t in case.exact) else None
        result, second = self._judge_call(session, result, workload, case, traced=work, known=first)
        if result.verdict in (Verdict.REJECTED, Verdict.SUSPICIOUS):
            return result
        if result.verdict is not Verdict.PASSED:
            return replace(result, detail=f"in a second call with equal inputs: {result.detail}")
        found = check.repeated(first=first, second=second, case=case, precision=self.op.precision)
        if found.spread is None:
            return result
        message = found.problem or f"two calls with equal inputs differ by up to {found.spread:.2g}"
        note = Finding(code="nondeterministic", severity="note", message=message)
        verdict = Verdict.WRONG if found.problem else Verdict.PASSED
        return replace(
            result, verdict=verdict, detail=found.problem, findings=(*result.findings, note)
        )

    def _judge_call(
        self, session: Session, before: Result, workload: Workload, case: answers.Case,
        traced: proof.Work | None = None, known: Sequence[Any] = (),
    ) -> tuple[Result, list[Any]]:  # fmt: skip
        """The verdict on one call and its outputs; errors are the worst of this and the calls
        before. ``traced`` asks who did the work; ``known`` outputs of this case were right."""
        seconds = dict(before.seconds)
        outcome, slots = self._ask_run(session, workload, case, traced=traced is not None)
        if not isinstance(outcome, Answer):
            failure = failure_of(outcome, "the kernel")
            told = Result(failure.verdict, str(failure), seconds=seconds, harness=failure.harness)
            return told, []
        took_s = claims.seconds(outcome.data)
        seconds = {"first": took_s} | seconds | {"run": seconds.get("run", 0.0) + took_s}
        try:
            findings = claims.findings(outcome.data, before.findings)
        except ValueError as error:
            detail = f"the kernel's worker answered in no form that is known: {error}"
            return Result(Verdict.CRASHED, detail, seconds=seconds), []
        actual = claims.collect(self.op, session.arena, slots, outcome.data)
        problem = actual if isinstance(actual, str) else ""
        problem = problem or claims.trespass(self.op, session.arena, slots)
        changed = claims.changed_input(self.op, session.arena, slots, case)
        if changed and not problem:
            problem = f"the kernel changed its input {changed!r}"
        if problem or isinstance(actual, str):
            return Result(Verdict.WRONG, problem, seconds=seconds, findings=findings), []
        if known and check.same(actual, known):
            compared, errors = check.Comparison(""), before.errors
        else:
            compared = check.compare(actual=actual, case=case, precision=self.op.precision)
            errors = _worst(before.errors, compared)
        defects = [str(one) for one in findings if one.severity == "error"]
        problem = compared.problem or "\n".join(defects)
        if problem:
            return Result(Verdict.WRONG, problem, errors, seconds=seconds, findings=findings), []
        result = Result(
            Verdict.PASSED, "", errors, seconds=seconds, findings=findings, launches=before.launches
        )
        return _held(result, outcome.data, traced, took_s), actual

    def _ask_run(
        self, session: Session, workload: Workload, case: answers.Case, *, traced: bool
    ) -> tuple[Outcome, Slots]:
        signature, arena = self.op.signature, session.arena
        arena.clear()
        wanted = [
            (spec.sizes(workload.dims), spec.resolve(self.dtype)) for spec in signature.outputs
        ]
        blocks = [fences.fenced(*form) for form in wanted]
        margins = [fences.margins(block) for block in blocks]
        slots = Slots(
            [arena.put(tensor) for tensor in case.inputs], [arena.put(b) for b in blocks],
            [arena.put(fences.poison(*form)) for form in wanted],
            [arena.put(t) for t in case.inputs], [arena.put(m) for m in margins], margins,
        )  # fmt: skip
        outcome = session.ask(
            "run", timeout_s=self.options.limits.run_s, inputs=slots.inputs, outputs=slots.outputs,
            results=slots.results, after=slots.after, fences=slots.fences,
            dims=dict(workload.dims), scalars=signature.scalar_values(workload.scalars),
            traced=traced,
        )  # fmt: skip
        return outcome, slots

    def _race(
        self, racing: Sequence[int], device: str, workload: Workload, base: Sequence[Any],
        results: dict[int, Result],
    ) -> None:  # fmt: skip
        """Time the standing contestants and the baselines of one device in turns; once more if
        one was cut off by no fault of its own. Where the one that times are checked by does not
        run, nothing is timed, and the record says why."""
        run, notes = self._race_once(racing, device, workload, base)
        if any(map(_cut_off, run.lost.items())):
            run, notes = self._race_once(racing, device, workload, base)
        samples = {
            key: Samples(tuple(map(tuple, laps)), run.methods[key], run.watch.seen)
            for key, laps in run.samples().items()
        }
        notes += map(_slowed, sorted(run.watch.slowed))
        for index in racing:
            told = self._finish(index, results[index], run.lost.get(index), samples)
            results[index] = replace(told, findings=(*told.findings, *notes))

    def _race_once(
        self, racing: Sequence[int], device: str, workload: Workload, base: Sequence[Any]
    ) -> tuple[race.Race, list[Finding]]:
        """The race, and which baselines are not in it."""
        runners: dict[race.Key, Opened] = {}
        notes = []
        for index in racing:
            opened = self._runners.open(index)
            if not isinstance(opened, Failure):
                runners[index] = opened
        for name in dict.fromkeys((TRUSTED, *self.options.baselines)):
            opened = self._runners.baseline(name, device)
            if isinstance(opened, Failure):
                notes.append(_untimed(str(opened)))
            else:
                runners[name] = opened
        targets = {index: self.contestants[index].request.target for index in racing}
        plan = self.options.plan
        if targets[racing[0]].is_gpu:  # whose memory is fast, and whose workloads are large
            plan = replace(plan, round_bytes=16 * plan.round_bytes)
        run = race.Race(
            self.op, workload, self.dtype, base, plan,
            self.options.limits.run_s, targets,
            {key: one.method for key, one in runners.items()}, Watch(targets[racing[0]]),
        )  # fmt: skip
        if TRUSTED in runners:
            run.run({key: one.session for key, one in runners.items()}, TRUSTED)
        if (lost := run.lost.get(TRUSTED)) is not None:
            notes.append(_untimed(str(_loss(lost))))
        return run, notes

    def _finish(
        self, index: int, before: Result, lost: race.Loss | None,
        samples: Mapping[race.Key, Samples],
    ) -> Result:  # fmt: skip
        if lost is not None:
            failure = _loss(lost)
            return replace(before, verdict=failure.verdict, detail=str(failure))
        if TRUSTED not in samples or index not in samples:
            return before
        opened = self._runners.open(index)
        changed = str(opened) if isinstance(opened, Failure) else self._changed(opened.session)
        if changed:
            return replace(before, verdict=Verdict.SUSPICIOUS, detail=changed)
        asked = {name: samples[name] for name in self.options.baselines if name in samples}
        return replace(before, samples=samples[index], baselines=asked)

    def _changed(self, session: Session) -> str:
        """What the timed calls have changed for others."""
        outcome = session.ask("state", timeout_s=self.options.limits.run_s)
        if isinstance(outcome, Answer):
            return claims.changed_state(outcome.data)
        return str(failure_of(outcome, "the question for what it changed"))


def _untimed(why: str) -> Finding:
    return Finding(code="no-baseline", severity="warning", message=why)


def _slowed(by: str) -> Finding:
    message = f"while it was timed, the device's clocks were held down by {by}"
    return Finding(code="slowed", severity="warning", message=message)


def _held(
    right: Result, told: Mapping[str, Any], traced: proof.Work | None, took_s: float
) -> Result:
    """A call with right outputs, held against what it changed for others and who did its work."""
    changed = claims.changed_state(told)
    if changed:
        return replace(right, verdict=Verdict.SUSPICIOUS, detail=changed)
    if traced is None:
        return right
    found = proof.hold(told.get("trace"), traced, seconds=took_s)
    return replace(
        right, verdict=found.verdict, detail=found.problem, launches=found.launches,
        findings=(*right.findings, *found.findings),
    )  # fmt: skip


def _cut_off(lost: tuple[race.Key, race.Loss]) -> bool:
    """Whoever loses a fork server loses a race; so does a baseline, whatever ends it."""
    key, loss = lost
    return isinstance(loss, Died) and (loss.cause == "harness" or isinstance(key, str))


def _loss(loss: race.Loss) -> Failure:
    if isinstance(loss, race.Doubt):
        return Failure(Verdict.WRONG if loss.wrong else Verdict.SUSPICIOUS, loss.reason)
    return failure_of(loss, "the timed kernel")


def _worst(before: Errors | None, now: check.Comparison) -> Errors:
    names = ("max_abs", "max_rel", "vs_fp64", "reference_vs_fp64")
    return Errors(**{
        name: max(getattr(now, name), getattr(before, name) if before else 0.0) for name in names
    })  # fmt: skip
