"""Whether timed calls were right: outputs of some calls of every round, chosen once the round is
over, and compared when all rounds are.

Of a large output only a few elements are kept, at places chosen after the call: which rounds are
compared is decided last, so that every round at every size may be.
"""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from portkern.evaluator import compare, reference
from portkern.evaluator.timed_buffers import OutputReader
from portkern.evaluator.timed_draws import TimedDraws, TimedInputs
from portkern.sandbox.session import Lost, Session
from portkern.sandbox.shared_memory import TensorPlace
from portkern.spec.op import Op, Workload
from portkern.worker import output_guards

if TYPE_CHECKING:
    import torch

#: Outputs of more elements are kept in part, at so many places.
WHOLE_ELEMENTS, PLACES = 1 << 16, 64
#: Seconds for comparing outputs kept in part, beyond those of the last round and one other.
VERIFY_S = 0.25


@dataclass(frozen=True)
class _Kept:
    """One call's outputs, or what they hold at ``places``."""

    key: int
    turn: int
    made: TimedInputs
    call: int
    outputs: Sequence[torch.Tensor]
    places: Sequence[Sequence[int]] | None = None


@dataclass
class TimedOutputs:
    """The outputs of one workload's timed calls that are kept for comparison; ``draws`` makes
    the inputs of calls whose answers are wanted."""

    op: Op
    workload: Workload
    dtype: str
    draws: TimedDraws
    chosen: random.Random = field(default_factory=random.SystemRandom)
    #: The comparison of each kernel by the widest rule that was needed.
    compared: dict[int, compare.Comparison] = field(default_factory=dict)
    _kept: list[_Kept] = field(default_factory=list)

    def keep(
        self,
        key: int,
        reader: OutputReader,
        turn: int,
        made: TimedInputs,
        calls: Sequence[int],
        *,
        whole: bool,
    ) -> Lost | None:
        """Read the outputs of these calls of the round that has just been timed: all of them, or a
        part where they are large. What was lost, if the worker was."""
        self.draws.keep(made, calls)
        if not whole and self._elements() > WHOLE_ELEMENTS:
            return self._keep_part(key, reader, turn, made, calls)
        for call in calls:
            outputs = reader.whole(call)
            if not isinstance(outputs, list):
                return outputs
            self._kept.append(_Kept(key, turn, made, call, outputs))
        return None

    def problems(self) -> Iterator[tuple[int, str]]:
        """The kernels that were wrong in a timed call since this was asked last, and how."""
        failed: set[int] = set()
        required, others = self._calls()
        self._kept = []
        begun = time.perf_counter()
        for number, group in enumerate([*required, *others]):
            if number > len(required) and time.perf_counter() - begun > VERIFY_S:
                return
            case: reference.Case | None = None
            for kept in group:
                if kept.key in failed:
                    continue
                case = case or self._answer(kept)
                problem = self._problem(kept, case)
                if problem:
                    failed.add(kept.key)
                    yield kept.key, f"in a timed call, {problem}"

    def _calls(self) -> tuple[list[list[_Kept]], list[list[_Kept]]]:
        """The outputs kept of each call, by anyone: those that are always compared, which are
        whole or of a kernel's last round, and the others in random order."""
        groups: dict[tuple[TimedInputs, int], list[_Kept]] = defaultdict(list)
        last: Counter[int] = Counter()
        for kept in self._kept:
            groups[kept.made, kept.call].append(kept)
            last[kept.key] = max(last[kept.key], kept.turn)
        required: list[list[_Kept]] = []
        others: list[list[_Kept]] = []
        for group in groups.values():
            needed = any(kept.places is None or kept.turn == last[kept.key] for kept in group)
            (required if needed else others).append(group)
        self.chosen.shuffle(others)
        return required, others

    def _answer(self, kept: _Kept) -> reference.Case:
        distribution, _ = self.draws.bases[kept.made.base]
        made = self.draws.of_call(kept.made, kept.call)
        return reference.answer(self.op, self.workload, distribution, made)

    def _problem(self, kept: _Kept, case: reference.Case) -> str:
        outputs = kept.outputs if kept.places is None else _filled_in(kept, case)
        comparison = compare.compare(actual=outputs, case=case, precision=self.op.precision)
        if comparison.tolerance == "derived" or kept.key not in self.compared:
            self.compared[kept.key] = comparison
        return comparison.problem

    def _keep_part(
        self, key: int, reader: OutputReader, turn: int, made: TimedInputs, calls: Sequence[int]
    ) -> Lost | None:
        sizes = [spec.nelements(self.workload.dims) for spec in self.op.signature.outputs]
        changed = [place for call in calls for place in self.draws.changed(made, call)]
        places = tuple(
            tuple(self._place(size, changed) for _ in range(PLACES if size else 0))
            for size in sizes
        )
        held = reader.at(calls, places)
        if not isinstance(held, list):
            return held
        for row, call in enumerate(calls):
            self._kept.append(_Kept(key, turn, made, call, [part[row] for part in held], places))
        return None

    def _place(self, size: int, changed: Sequence[tuple[float, float]]) -> int:
        """A place anywhere, or in one of two cases where nearly equal inputs differ: most outputs
        lie as what they are made of does."""
        if not changed or self.chosen.random() < 0.5:
            return self.chosen.randrange(size)
        return min(int(self.chosen.uniform(*self.chosen.choice(changed)) * size), size - 1)

    def _elements(self) -> int:
        outputs = self.op.signature.outputs
        return max((spec.nelements(self.workload.dims) for spec in outputs), default=0)


def _filled_in(kept: _Kept, case: reference.Case) -> list[torch.Tensor]:
    """The framework's own outputs with what the kernel has at some places."""
    import torch

    assert kept.places is not None
    outputs = []
    for own, held, places in zip(case.own, kept.outputs, kept.places, strict=True):
        # The framework's may be a transposed view of memory; places count in the order of indices.
        output = own.clone(memory_format=torch.contiguous_format)
        output.view(-1)[list(places)] = held.to(own.device)
        outputs.append(output)
    return outputs


def poisons(op: Op, workload: Workload, dtype: str, session: Session) -> tuple[TensorPlace, ...]:
    forms = [(spec.sizes(workload.dims), spec.resolve(dtype)) for spec in op.signature.outputs]
    slots = tuple(session.memory.slot(*form) for form in forms)
    for slot in slots:
        output_guards.fill(session.memory.look(slot))
    return slots
