"""Calls of one kernel on one case: whether what it gives is right, and who did the work."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from portkern.evaluator import (
    attribution,
    compare,
    host_shortage,
    inputs,
    reference,
    worker_reports,
)
from portkern.evaluator.build import Failure, StageLimits, failure_of
from portkern.evaluator.placed_call import PlacedCall
from portkern.evaluator.result import Result, worst
from portkern.evaluator.timed_outputs import poisons
from portkern.evaluator.worker_reports import Slots
from portkern.evaluator.workers import Opened, Workers
from portkern.records.record import Finding, Verdict
from portkern.sandbox.session import Answered, Outcome, Session
from portkern.spec.op import Op, Workload
from portkern.worker import output_guards, protocol

if TYPE_CHECKING:
    import torch

#: Seconds for calls that an emulator is asked for beyond two, by what the second took, and at how
#: many of them, beside the last, outputs are looked at.
LATER_S, LOOKS = 2.0, 4


@dataclass(frozen=True)
class Correctness:
    """Checks whether the kernels of these workers, by index, are right."""

    op: Op
    dtype: str
    workers: Workers
    limits: StageLimits
    #: Memory of a GPU that a worker has mapped, by index; None where it cannot.
    _placed: dict[int, tuple[Session, PlacedCall | None]] = field(default_factory=dict)

    def places(self, index: int, device: str) -> bool:
        """Whether this kernel's calls are made on the evaluator's memory of a GPU where answers are
        made on ``device``."""
        contestant = self.workers.contestants[index]
        on_gpu = device.startswith("cuda") and contestant.device == device
        return on_gpu and contestant.request.backend.device_memory

    def release(self) -> None:
        """Lets go of memory of GPUs, before another workload or anybody is timed: it is free once
        its worker, too, opens another, forgets it or ends. A GPU that is out of order gives back
        nothing."""
        while self._placed:
            _, (_, placed) = self._placed.popitem()
            if placed is not None:
                with suppress(RuntimeError, OSError):
                    placed.close()

    def evaluate(
        self, index: int, before: Result | None, *, workload: Workload, case: reference.Case
    ) -> Result:
        """Asked again, once, when it was cut off by no fault of the kernel."""
        result = self._evaluate_once(index, before, workload, case)
        return self._evaluate_once(index, before, workload, case) if result.harness else result

    def alone_if_short(
        self, index: int, result: Result, workload: Workload, case: reference.Case
    ) -> Result:
        """The result; a kernel which failed for want of processes or memory is asked again while
        no other is, and where the machine is short of them even so, this is not a verdict on the
        kernel."""
        if result.verdict not in (Verdict.CRASHED, Verdict.TIMED_OUT):
            return result
        ended = result.verdict is Verdict.TIMED_OUT or "SIGKILL" in result.detail
        if not host_shortage.is_said(result.detail) and not (ended and host_shortage.seen()):
            return result
        self.workers.close(index)
        again = self._evaluate_once(index, None, workload, case)
        if again.verdict in (Verdict.CRASHED, Verdict.TIMED_OUT) and (why := host_shortage.seen()):
            return Result(Verdict.UNAVAILABLE, why, harness=True)
        return again

    def _evaluate_once(
        self, index: int, before: Result | None, workload: Workload, case: reference.Case
    ) -> Result:
        """One call on fresh inputs, and on the base distribution a second with equal ones: what
        works for the first alone, such as a compiler, is not in its trace."""
        opened = self.workers.open(index)
        if isinstance(opened, Failure):
            return Result(opened.verdict, str(opened), harness=opened.harness)
        session = opened.session
        if before is None:
            before, opened.seconds = Result(Verdict.PASSED, seconds=opened.seconds), {}
        placed = self._placed_call(index, session, workload, case)
        call = partial(self._evaluate_call, session, placed=placed, workload=workload, case=case)
        result, first = call(before=before)
        if result.verdict is not Verdict.PASSED or case.distribution != inputs.BASE:
            return result
        work = self.workers.contestants[index].work if any(t.numel() for t in case.exact) else None
        result, second = call(before=result, traced=work, known=first)
        if result.verdict in (Verdict.REJECTED, Verdict.SUSPICIOUS):
            return result
        if result.verdict is not Verdict.PASSED:
            return replace(result, detail=f"in a second call with equal inputs: {result.detail}")
        late = self._evaluate_later(opened, result, workload, case)
        if late is not None:
            return late
        again = compare.repeated(first=first, second=second, case=case, precision=self.op.precision)
        if again.spread is None:
            return result
        message = again.problem or f"two calls with equal inputs differ by up to {again.spread:.2g}"
        note = Finding(code="nondeterministic", severity="note", message=message)
        verdict = Verdict.WRONG if again.problem else Verdict.PASSED
        return replace(
            result, verdict=verdict, detail=again.problem, findings=(*result.findings, note)
        )

    def _placed_call(
        self, index: int, session: Session, workload: Workload, case: reference.Case
    ) -> PlacedCall | None:
        """The buffers of a worker's calls on the GPU that a case is on; None where they are on the
        host."""
        device = str(case.placed[0].device) if case.placed else ""
        if not self.places(index, device):
            return None
        owner, known = self._placed.get(index, (None, None))
        if owner is session:
            return known
        if known is not None:
            known.close()
        made = PlacedCall(self.op, workload, self.dtype, device)
        try:
            is_open = made.open(session, limit_s=self.limits.run_s)
        except OSError:  # the evaluator has none; a worker that has ended says so when it is asked
            is_open = False
        self._placed[index] = session, made if is_open else None
        return self._placed[index][1]

    def _evaluate_later(
        self, opened: Opened, right: Result, workload: Workload, case: reference.Case
    ) -> Result | None:
        """The failure of one of the calls that an emulator is asked for beyond two, which nobody
        times: a few of them, chosen by chance, and the last are looked at. None where they were
        right as well."""
        call_s = max(right.seconds["run"] - right.seconds["first"], 1e-4)
        calls = min(opened.later, int(LATER_S / call_s))
        looks = sorted({*random.SystemRandom().sample(range(calls), min(LOOKS, calls)), calls - 1})
        done = 0
        for look in looks if calls else ():
            opened.later -= look + 1 - done
            result, _ = self._evaluate_call(
                opened.session, before=right, workload=workload, case=case, before_it=look - done
            )
            done = look + 1
            if result.verdict is not Verdict.PASSED:
                return replace(result, detail=f"in a later call: {result.detail}")
        return None

    def _evaluate_call(
        self,
        session: Session,
        *,
        before: Result,
        workload: Workload,
        case: reference.Case,
        placed: PlacedCall | None = None,
        traced: attribution.AttributedKernel | None = None,
        known: Sequence[torch.Tensor] = (),
        before_it: int = 0,
    ) -> tuple[Result, list[torch.Tensor]]:
        """The verdict on one call and its outputs; errors are the worst of this and the calls
        before. ``traced`` asks who did the work; ``known`` outputs of this case were right;
        ``before_it``: so many calls are made first."""
        seconds = dict(before.seconds)
        slots = placed.fill(case.placed) if placed else self._slots(session, workload, case)
        memory = placed.memory if placed else session.memory
        outcome = self._ask_run(
            session, workload, slots, traced=traced is not None, before=before_it
        )
        if not isinstance(outcome, Answered):
            failure = failure_of(outcome, "the kernel")
            lost = Result(failure.verdict, str(failure), seconds=seconds, harness=failure.harness)
            return lost, []
        ran, took_s = outcome.reply, outcome.reply.seconds
        seconds = {"first": took_s} | seconds | {"run": seconds.get("run", 0.0) + took_s}
        findings = worker_reports.findings(ran.findings, before.findings)
        actual = worker_reports.collect(self.op, memory, slots, ran, case)
        problem = actual if isinstance(actual, str) else ""
        problem = problem or worker_reports.written_outside(self.op, memory, slots)
        changed = worker_reports.changed_input(self.op, memory, slots, case)
        if changed and not problem:
            problem = f"the kernel changed its input {changed!r}"
        if problem or isinstance(actual, str):
            return Result(Verdict.WRONG, problem, seconds=seconds, findings=findings), []
        if known and compare.same(actual, known):
            compared, errors = compare.Comparison(""), before.errors
        else:
            compared = compare.compare(actual=actual, case=case, precision=self.op.precision)
            errors = worst(before.errors, compared)
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
        self,
        session: Session,
        workload: Workload,
        slots: Slots,
        *,
        traced: bool,
        before: int,
    ) -> Outcome[protocol.Ran]:
        request = protocol.Run(
            slots.inputs,
            () if slots.placed else slots.outputs,
            slots.results,
            () if slots.placed else slots.after,
            slots.guards,
            workload.dims,
            self.op.signature.scalar_values(workload.scalars),
            traced,
            before,
            slots.placed,
        )
        return session.ask(request, timeout_s=self.limits.run_s)

    def _slots(self, session: Session, workload: Workload, case: reference.Case) -> Slots:
        """The places of a call's tensors in the memory that the host shares with its worker."""
        signature, memory = self.op.signature, session.memory
        memory.clear()
        wanted = [
            (spec.sizes(workload.dims), spec.resolve(self.dtype)) for spec in signature.outputs
        ]
        blocks = [memory.slot((output_guards.guarded_bytes(*form),), "uint8") for form in wanted]
        margins = tuple(output_guards.guard(memory.look(block)) for block in blocks)
        given = tuple(map(memory.put, case.inputs))
        return Slots(
            given,
            tuple(blocks),
            poisons(self.op, workload, self.dtype, session),
            tuple(memory.slot(slot.shape, slot.dtype) for slot in given),
            tuple(map(memory.put, margins)),
            margins,
        )


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
