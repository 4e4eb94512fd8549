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
from portkern.sandbox.session import Answered, Lost, Session
from portkern.sandbox.shared_memory import Slot
from portkern.spec.op import Op, Workload
from portkern.worker import output_guards, protocol, timed_inputs

if TYPE_CHECKING:
    import torch

#: Outputs of more elements are kept in part, at so many places.
WHOLE_ELEMENTS, PLACES = 1 << 16, 64
#: Seconds for comparing outputs kept in part, beyond those of the last round and one other.
VERIFY_S = 0.25


@dataclass(frozen=True)
class TimedInputs:
    """What the inputs of a round's calls are made from: seeds, a base by its number, and whether
    its values go to other places; ``structured``: whether they stay what they are to one
    another, see :func:`portkern.worker.timed_inputs.inputs`."""

    seeds: tuple[int, ...]
    base: int = 0
    rolled: bool = True
    structured: bool = False

    @classmethod
    def after(
        cls, last: TimedInputs | None, chosen: random.Random, *, structured: bool = False
    ) -> TimedInputs:
        """New values and nearly equal ones in turns; new ones where they are structured."""
        seed = chosen.getrandbits(62)
        near = last is not None and len(last.seeds) == 1 and not structured
        return cls((*last.seeds, seed) if near and last else (seed,), structured=structured)


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
    """Of one workload; ``bases`` are distributions and inputs that those of all calls are made
    from, where the answers are made."""

    op: Op
    workload: Workload
    dtype: str
    bases: Sequence[tuple[str, Sequence[torch.Tensor]]]
    limit_s: float
    chosen: random.Random = field(default_factory=random.SystemRandom)
    #: Of each kernel, one comparison by the widest rule that was needed.
    compared: dict[int, compare.Comparison] = field(default_factory=dict)
    _kept: list[_Kept] = field(default_factory=list)

    def keep(
        self,
        key: int,
        session: Session,
        turn: int,
        made: TimedInputs,
        calls: Sequence[int],
        *,
        whole: bool,
    ) -> Lost | None:
        """Ask for the outputs of these calls of the round that has just been timed: all of them,
        or a part where they are large. What was lost, if the worker was."""
        if whole or self._elements() <= WHOLE_ELEMENTS:
            for call in calls:
                lost = self._keep_whole(key, session, turn, made, call)
                if lost is not None:
                    return lost
            return None
        return self._keep_part(key, session, turn, made, calls)

    def problems(self) -> Iterator[tuple[int, str]]:
        """Who was wrong in a timed call, and how."""
        failed: set[int] = set()
        required, others = self._calls()
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
        """What was kept of each call, by anyone: those that are always compared, which are whole or
        of a kernel's last round, and the others in random order."""
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
        distribution, base = self.bases[kept.made.base]
        given = kept.made
        made = timed_inputs.inputs(
            base, given.seeds, kept.call, rolled=given.rolled, structured=given.structured
        )
        return reference.answer(self.op, self.workload, distribution, made)

    def _problem(self, kept: _Kept, case: reference.Case) -> str:
        outputs = kept.outputs if kept.places is None else _filled_in(kept, case)
        comparison = compare.compare(actual=outputs, case=case, precision=self.op.precision)
        if comparison.tolerance == "derived" or kept.key not in self.compared:
            self.compared[kept.key] = comparison
        return comparison.problem

    def _keep_whole(
        self, key: int, session: Session, turn: int, made: TimedInputs, call: int
    ) -> Lost | None:
        session.memory.clear()
        slots = poisons(self.op, self.workload, self.dtype, session)
        outcome = session.ask(protocol.Fetch(call, slots), timeout_s=self.limit_s)
        if not isinstance(outcome, Answered):
            return outcome
        outputs = [session.memory.take(slot) for slot in slots]
        self._kept.append(_Kept(key, turn, made, call, outputs))
        return None

    def _keep_part(
        self, key: int, session: Session, turn: int, made: TimedInputs, calls: Sequence[int]
    ) -> Lost | None:
        memory, signature = session.memory, self.op.signature
        sizes = [spec.nelements(self.workload.dims) for spec in signature.outputs]
        places = tuple(
            tuple(self.chosen.randrange(size) for _ in range(PLACES if size else 0))
            for size in sizes
        )
        memory.clear()
        slots = tuple(
            memory.put(output_guards.poison((len(calls), len(at)), spec.resolve(self.dtype)))
            for spec, at in zip(signature.outputs, places, strict=True)
        )
        asked = protocol.Look(tuple(calls), places, slots)
        outcome = session.ask(asked, timeout_s=self.limit_s)
        if not isinstance(outcome, Answered):
            return outcome
        held = [memory.take(slot) for slot in slots]
        for row, call in enumerate(calls):
            self._kept.append(_Kept(key, turn, made, call, [part[row] for part in held], places))
        return None

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


def poisons(op: Op, workload: Workload, dtype: str, session: Session) -> tuple[Slot, ...]:
    forms = [(spec.sizes(workload.dims), spec.resolve(dtype)) for spec in op.signature.outputs]
    slots = tuple(session.memory.slot(*form) for form in forms)
    for slot in slots:
        output_guards.fill(session.memory.look(slot))
    return slots
