"""Calls of what a compiler makes of a kernel, beside the emulator that interprets its source.

Where a kernel's source is interpreted, what tells an interpreter from a compiler may decide what it
computes. So each such kernel is also called as what is compiled of it, executed on the model of a
target for which that can be done; what is right as it is interpreted and wrong there is wrong.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace

from portkern.errors import ReferenceFailed
from portkern.evaluator import inputs, reference
from portkern.evaluator.build import StageLimits
from portkern.evaluator.correctness import Correctness
from portkern.evaluator.result import Result
from portkern.evaluator.workers import Contestant, Opened, Workers
from portkern.records.record import Finding, Verdict
from portkern.spec.backend import Missing
from portkern.spec.op import Op, Workload

#: Elements of the largest tensor of a call that is executed: a model takes its time.
MOST_ELEMENTS = 1 << 16
#: So many cases must be wrong: one may lie at the edge of what is allowed. An operator without
#: distributions to draw from has so many cases of the usual inputs.
ENOUGH, CASES = 2, 3


@dataclass(frozen=True)
class _Said:
    """The word on a kernel as it is compiled: that it is wrong, a note, or nothing."""

    wrong: str = ""
    note: Finding | None = None

    def of(self, passed: Result) -> Result:
        if self.wrong:
            return replace(passed, verdict=Verdict.WRONG, detail=self.wrong)
        return replace(passed, findings=(*passed.findings, self.note)) if self.note else passed


@dataclass
class CompiledTwins:
    """All cases of one small size, as they are compiled, of contestants that an emulator
    interprets, before any of their sizes counts. ``interpreted`` calls them as they are."""

    op: Op
    dtype: str
    contestants: Sequence[Contestant]
    interpreted: Correctness
    limits: StageLimits
    distributions: Sequence[str]
    _said: dict[int, _Said] = field(default_factory=dict)
    _made: tuple[Workload, list[reference.Case]] | str = ""

    def hold(
        self, passed: Sequence[int], results: Mapping[int, Result], asked: Workload, pool: Executor
    ) -> dict[int, Result]:
        """The results of those who have passed a size, with the word on each."""
        twins = {index: self._twin(index) for index in passed if index not in self._said}
        if any(isinstance(twin, Contestant) for twin in twins.values()):
            self._made = self._made or self._make_cases(asked)
        said = pool.map(self._judge, [results[i] for i in twins], twins, twins.values())
        self._said |= dict(zip(twins, said, strict=True))
        return {index: self._said[index].of(results[index]) for index in passed}

    def _twin(self, index: int) -> Contestant | Missing | None:
        contestant = self.contestants[index]
        build = contestant.request.build
        twin = contestant.request.backend.compiled_twin(build, contestant.venue)
        if twin is None or isinstance(twin, Missing):
            return twin
        target, venue = twin
        build = replace(build, target=target, executed=True, emulated=False)
        return replace(contestant, request=replace(contestant.request, build=build), venue=venue)

    def _make_cases(self, asked: Workload) -> tuple[Workload, list[reference.Case]] | str:
        """The cases of a small size, or why there are none."""
        size = small_size(self.op, asked)
        if size is None:
            return "no size is small enough"
        chosen = inputs.choose(self.op, size, self.distributions)
        chosen = chosen if len(chosen) > 1 else chosen * CASES
        try:
            made = [reference.make_case(self.op, size, self.dtype, name) for name in chosen]
        except ReferenceFailed as error:
            return str(error)
        for case in made:
            _ = case.budgets, case.inputs  # once, before several threads share it
        return size, made

    def _judge(self, before: Result, index: int, twin: Contestant | Missing | None) -> _Said:
        if twin is None:
            return _Said()
        if isinstance(twin, Missing):
            return _not_executed(str(twin))
        if isinstance(self._made, str):
            return _not_executed(self._made)
        workers = Workers(self.op, [twin], self.limits)
        try:
            if isinstance(opened := workers.open(0), Opened):
                opened.later = 0  # what it does in later calls is seen where it is interpreted
            executed = Correctness(self.op, self.dtype, workers, self.limits)
            wrong, cut = self._wrong(executed, index, before)
        finally:
            workers.close_all()
        where = f"compiled for {twin.request.build.target.name} and executed there, not interpreted"
        if len(wrong) >= ENOUGH:
            return _Said(wrong=f"{where}: {wrong[0]}")
        if wrong:
            told = f"wrong on one of several inputs {where}: {wrong[0]}; two are taken as a proof"
            return _Said(note=Finding(code="compiled-in-doubt", severity="note", message=told))
        return _not_executed(cut) if cut else _Said()

    def _wrong(self, executed: Correctness, index: int, before: Result) -> tuple[list[str], str]:
        """The faults in cases that are right where they are interpreted, and why not all were
        looked at."""
        assert not isinstance(self._made, str)
        size, cases = self._made
        wrong: list[str] = []
        until = time.monotonic() + self.limits.run_s
        for number, case in enumerate(cases):
            if number and time.monotonic() > until:
                return wrong, f"after {number} of {len(cases)} calls its time was over"
            result = executed.evaluate(0, None, workload=size, case=case)
            if result.verdict not in (Verdict.PASSED, Verdict.WRONG):
                return wrong, f"{result.verdict}: {result.detail}"
            if result.verdict is Verdict.WRONG:
                plain = self.interpreted.evaluate(index, before, workload=size, case=case)
                if plain.verdict is not Verdict.PASSED:
                    return wrong, f"at {size.name} it is {plain.verdict} as it is interpreted, too"
                wrong.append(result.detail)
            if len(wrong) == ENOUGH:
                break
        return wrong, ""


def small_size(op: Op, asked: Workload) -> Workload | None:
    """The least of the operator's small sizes, whatever was asked for; of those at an edge the
    largest, as little can go wrong with a few elements."""
    sizes = [(largest(op, one), one) for one in op.workloads.get("ci", ())]
    edges = [(largest(op, one), one) for one in op.workloads.get("edge", ())]
    edges.sort(key=lambda one: one[0], reverse=True)
    sizes.sort(key=lambda one: one[0])
    every = [*sizes, *edges, (largest(op, asked), asked)]
    return next((one for elements, one in every if 0 < elements <= MOST_ELEMENTS), None)


def largest(op: Op, workload: Workload) -> int:
    every = (*op.signature.inputs, *op.signature.outputs)
    return max((tensor.nelements(workload.dims) for tensor in every), default=0)


def _not_executed(why: str) -> _Said:
    told = f"what is compiled of it was not executed beside the emulator: {why}"
    return _Said(note=Finding(code="compiled-not-executed", severity="note", message=told))
