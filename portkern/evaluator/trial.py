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

from portkern.errors import ReferenceFailed
from portkern.evaluator import (
    host_memory,
    imported,
    inputs,
    reference,
    reference_device,
    statistics,
)
from portkern.evaluator.build import StageLimits
from portkern.evaluator.compiled_twin import CompiledTwins
from portkern.evaluator.correctness import Correctness
from portkern.evaluator.device_health import Devices
from portkern.evaluator.interleaved_timing import Base
from portkern.evaluator.result import Result, untimed
from portkern.evaluator.timer import Timer
from portkern.evaluator.workers import TRUSTED, Baseline, Contestant, Workers
from portkern.records.record import Verdict
from portkern.spec.op import Op, Workload


@dataclass(frozen=True)
class TrialOptions:
    """``baselines``: ``eager``, ``compile`` (torch.compile of the reference) and names of
    ``others``. Where it is not ``timed``, calls that would be are made all the same, but few, as
    kernels may be right in their first calls alone."""

    limits: StageLimits = field(default_factory=StageLimits)
    plan: statistics.TimingPlan = field(default_factory=statistics.TimingPlan)
    baselines: tuple[str, ...] = ("eager",)
    distributions: tuple[str, ...] = tuple(inputs.DISTRIBUTIONS)
    others: Mapping[str, Baseline] = field(default_factory=dict)
    timed: bool = True


@dataclass
class Checked:
    """The state of a workload before any kernel is timed: by index the results so far, and the
    kernels which have passed all cases, with the inputs of these cases. The inputs keep their
    memory until this is let go."""

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
        processors = len(os.sched_getaffinity(0))
        self._pool = ThreadPoolExecutor(min(len(self.contestants) or 1, processors))
        # What is made and opened before it is needed.
        self._ahead = ThreadPoolExecutor(2 + len(options.baselines))
        self._workers = Workers(op, contestants, options.limits, options.others)
        self._correctness = Correctness(op, dtype, self._workers, options.limits)
        self._twins = CompiledTwins(
            op, dtype, self.contestants, self._correctness, options.limits, options.distributions
        )
        plan = options.plan if options.timed else options.plan.silent
        self._timer = Timer(
            op, dtype, self._workers, options.limits, plan, options.baselines, self._pool
        )
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
        self._workers.close_all()
        imported.close(self.op.reference)

    def load_ahead(self, pool: Executor) -> list[Future[None]]:
        """Load all kernels before it is their turn. Their workers then stand still until
        :meth:`run`: nothing of theirs runs while others are timed."""
        return self._workers.open_ahead(range(len(self.contestants)), pool, at_rest=True)

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
        results = [
            replace(checked.results[index], code=self._workers.code(index))
            for index in range(len(self.contestants))
        ]
        return results if self.options.timed else [untimed(result) for result in results]

    def rest(self) -> None:
        """Stops all contestants until the next :meth:`check` or :meth:`race`."""
        self._workers.rest()

    def forget(self) -> None:
        """Give back the memory that timing took, which another one on this device may need."""
        self._workers.forget()

    def _go_through(self, checked: Checked, phase: Callable[[Checked], None]) -> None:
        """Goes through the phases; where one cannot be done, the results say why."""
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
        """Runs a phase; when the evaluator's own work on a GPU fails, once more from the beginning
        on the host."""
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
        self._workers.go_on()
        standing = self._healthy(range(len(self.contestants)), results)
        opening = self._workers.open_ahead(standing, self._pool)
        baselines = [
            self._ahead.submit(self._workers.baseline, name, device)
            for device in {self._device(i) for i in standing} - {""}
            for name in dict.fromkeys((TRUSTED, *self.options.baselines))
        ]
        try:
            where = self._reference_device.choose(workload, {self._device(i) for i in standing})
            cases = self._cases(workload, checked.distributions, where)
            kept = inputs.kept(self.op, workload, checked.distributions)
            compared = self._compare(workload, cases, kept, standing, opening, results)
            standing, checked.bases = compared
            results |= self._twins.hold(standing, results, workload, self._pool)
            standing = [i for i in standing if results[i].verdict is Verdict.PASSED]
            reference_device.release(where)
        finally:
            wait(opening)  # or they would be opened twice
            wait(baselines)
            self._correctness.release()
        checked.standing = standing

    def _race_all(self, checked: Checked) -> None:
        """Device by device."""
        self._workers.go_on()
        for device in {self._device(i) for i in checked.standing} - {""}:
            racing = [i for i in checked.standing if self._device(i) == device]
            self._timer.time(racing, device, checked.workload, checked.bases, checked.results)
            self._after_faults(racing, checked.results)

    def _compare(
        self,
        workload: Workload,
        cases: Iterable[reference.Case],
        kept: Sequence[str],
        standing: list[int],
        opening: Sequence[Future[None]],
        results: dict[int, Result],
    ) -> tuple[list[int], list[Base]]:
        """The kernels which have passed all cases, and the inputs of those cases that are
        ``kept``, where they were made: timed calls may see them too."""
        bases: list[Base] = []
        for case in cases:
            if not standing:
                break
            wait(opening)
            if case.distribution in kept:
                bases.append((case.distribution, case.placed))
            evaluate = partial(self._correctness.evaluate, workload=workload, case=case)
            evaluated = self._pool.map(evaluate, standing, [results.get(i) for i in standing])
            results |= dict(zip(standing, evaluated, strict=True))
            for index in standing:
                results[index] = self._correctness.alone_if_short(
                    index, results[index], workload, case
                )
            self._after_faults(standing, results)
            standing = [i for i in standing if results[i].verdict is Verdict.PASSED]
            standing = self._healthy(standing, results)
        return standing, bases

    def _cases(
        self, workload: Workload, distributions: Sequence[str], device: str
    ) -> Iterator[reference.Case]:
        """The cases in the order in which they are evaluated; each is made while the one before it
        is in use."""
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
            _ = case.budgets  # once, before several threads share it
            if not all(self._correctness.places(i, where) for i in range(len(self.contestants))):
                _ = case.inputs
            return case

        return reference_device.with_host_in_reserve(device, made)

    def _healthy(self, asked: Iterable[int], results: dict[int, Result]) -> list[int]:
        """The kernels whose device is in order; the results of the others say why they are not
        evaluated."""
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
                self._workers.close(index)
        for device in {self._device(i) for i in failed} - {"", "cpu"}:
            self._devices.check(device)

    def _device(self, index: int) -> str:
        return self.contestants[index].device
