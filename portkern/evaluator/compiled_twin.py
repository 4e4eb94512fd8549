"""Calls of what a compiler makes of a kernel, beside the emulator that interprets its source.

Where a kernel's source is interpreted, what tells an interpreter from a compiler may decide what it
computes. So one call of each such kernel is made by what is compiled of it, executed on the model
of a target for which that can be done; what is wrong there is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from portkern.evaluator import inputs, reference
from portkern.evaluator.build import StageLimits
from portkern.evaluator.correctness import Correctness
from portkern.evaluator.result import Result
from portkern.evaluator.workers import Contestant, Workers
from portkern.records.record import Finding, Verdict
from portkern.spec.backend import Missing
from portkern.spec.op import Op, Workload

#: Elements of the largest tensor of a call that is executed: a model takes its time.
MOST_ELEMENTS = 1 << 16
_SAYS_NOTHING = (Verdict.PASSED, Verdict.UNAVAILABLE)


@dataclass
class CompiledTwins:
    """One call, as it is compiled, of each contestant that an emulator interprets, by index."""

    op: Op
    dtype: str
    contestants: Sequence[Contestant]
    limits: StageLimits
    #: By index, what was wrong in the call that was made; '' where nothing was.
    _held: dict[int, str] = field(default_factory=dict)
    _doubted: set[int] = field(default_factory=set)

    def hold(
        self,
        standing: Iterable[int],
        results: Mapping[int, Result],
        workload: Workload,
        case: reference.Case,
    ) -> dict[int, Result]:
        """The results that this case changes: those of who is held now, where it is small and not
        the usual one, which is called more than once, and of who was wrong before."""
        few = _largest(self.op, workload) <= MOST_ELEMENTS and case.distribution != inputs.BASE
        found: dict[int, Result] = {}
        for index in standing:
            if results[index].verdict is not Verdict.PASSED:
                continue
            if index not in self._held and few:
                compared = self._compared(index, results[index], workload, case)
                wrong = compared.verdict is Verdict.WRONG
                if wrong and index not in self._doubted:
                    self._doubted.add(index)  # another case decides: one may be at an edge
                    continue
                found[index] = compared
                self._held[index] = compared.detail if wrong else ""
            elif said := self._held.get(index):
                found[index] = replace(results[index], verdict=Verdict.WRONG, detail=said)
        return found

    def _compared(
        self, index: int, right: Result, workload: Workload, case: reference.Case
    ) -> Result:
        contestant = self.contestants[index]
        twin = contestant.request.backend.compiled_twin(contestant.request.build, contestant.venue)
        if twin is None:
            return right
        if isinstance(twin, Missing):
            return _with_note(right, str(twin))
        target, venue = twin
        build = replace(contestant.request.build, target=target, executed=True, emulated=False)
        request = replace(contestant.request, build=build)
        workers = Workers(self.op, [replace(contestant, request=request, venue=venue)], self.limits)
        try:
            correctness = Correctness(self.op, self.dtype, workers, self.limits)
            executed = correctness.evaluate(0, None, workload=workload, case=case)
        finally:
            workers.close_all()
        if executed.verdict is Verdict.WRONG:
            where = f"compiled for {target.name} and executed there, not interpreted"
            return replace(right, verdict=Verdict.WRONG, detail=f"{where}: {executed.detail}")
        if executed.verdict is not Verdict.PASSED:
            return _with_note(right, f"{executed.verdict} for {target.name}: {executed.detail}")
        return right


def _largest(op: Op, workload: Workload) -> int:
    every = (*op.signature.inputs, *op.signature.outputs)
    return max((tensor.nelements(workload.dims) for tensor in every), default=0)


def _with_note(right: Result, why: str) -> Result:
    said = f"what is compiled of it was not executed beside the emulator: {why}"
    note = Finding(code="compiled-not-executed", severity="note", message=said)
    return replace(right, findings=(*right.findings, note))
