"""Where outputs of timed calls are read from, once a round is over and before anything else is.

On a host all of a worker's processes stand still by then, and what is read is memory: the
evaluator's own, in which every call of a round has buffers, or, of a kernel that returns tensors of
its own, that of the worker as the system shows it. Nothing that a candidate left in its process is
run. On a GPU its worker is asked.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from portkern.evaluator.processor_time import family
from portkern.sandbox.session import Answered, Lost, Session, Unreadable
from portkern.sandbox.shared_memory import Rows, Slot
from portkern.spec.op import Op, Workload
from portkern.worker import output_guards, protocol

if TYPE_CHECKING:
    import torch

#: The worker's number in its own namespace: the first process there starts no other.
_WORKER_THERE = "2"


class OutputReader(Protocol):
    """Outputs of the calls of the round that has just been timed."""

    def whole(self, call: int) -> list[torch.Tensor] | Lost: ...
    def at(
        self, calls: Sequence[int], places: Sequence[Sequence[int]]
    ) -> list[torch.Tensor] | Lost:
        """A tensor for each output, with a row for each call of what it holds at these places."""
        ...


class RoundMemory:
    """Buffers of the evaluator's own for up to ``most`` calls of one worker, and one that warms
    up; alike in every round."""

    def __init__(self, op: Op, workload: Workload, dtype: str, session: Session, most: int) -> None:
        self._memory = session.memory
        self._memory.clear()
        signature, dims = op.signature, workload.dims

        def rows(sizes: tuple[int, ...], kind: str) -> Rows:
            return self._memory.rows(sizes, kind, most + 1)

        self.inputs = tuple(rows(t.sizes(dims), t.resolve(dtype)) for t in signature.inputs)
        self.outputs = tuple(rows(t.sizes(dims), t.resolve(dtype)) for t in signature.outputs)

    def fill(self, given: Sequence[torch.Tensor], calls: int) -> None:
        """With the inputs of a round, of each a block, and poison where outputs belong, first: the
        caches then hold the inputs."""
        for rows in self.outputs:
            poison = output_guards.poison(rows.shape, rows.dtype).flatten()
            self._memory.block(rows, calls + 1).copy_(poison.expand(calls + 1, -1))
        for rows, block in zip(self.inputs, given, strict=True):
            self._memory.block(rows, calls + 1).copy_(block[: calls + 1])

    def whole(self, call: int) -> list[torch.Tensor]:
        return [self._memory.take(rows.row(call + 1)) for rows in self.outputs]

    def at(self, calls: Sequence[int], places: Sequence[Sequence[int]]) -> list[torch.Tensor]:
        import torch

        return [
            torch.stack([self._memory.look(rows.row(c + 1)).view(-1)[list(at)] for c in calls])
            for rows, at in zip(self.outputs, places, strict=True)
        ]


@dataclass(frozen=True)
class ReturnedTensors:
    """Tensors that a kernel made itself, each where its worker says that it lies: who names another
    place has answered with what lies there."""

    session: Session
    forms: Sequence[Slot]
    addresses: Sequence[Sequence[int]]

    def whole(self, call: int) -> list[torch.Tensor] | Lost:
        import torch

        try:
            held = []
            for form, data in zip(self.forms, self._bytes(call), strict=True):
                flat = torch.frombuffer(data, dtype=form.kind) if data else torch.empty(0)
                held.append(flat.to(form.kind).reshape(form.shape))
            return held
        except (OSError, ValueError, OverflowError) as error:
            return Unreadable(f"its output could not be read: {error}", self.session.log())

    def at(
        self, calls: Sequence[int], places: Sequence[Sequence[int]]
    ) -> list[torch.Tensor] | Lost:
        import torch

        found = []
        for call in calls:
            whole = self.whole(call)
            if not isinstance(whole, list):
                return whole
            found.append([one.view(-1)[list(p)] for one, p in zip(whole, places, strict=True)])
        return [torch.stack(rows) for rows in zip(*found, strict=True)]

    def _bytes(self, call: int) -> list[bytearray]:
        if len(self.addresses) <= call or len(self.addresses[call]) != len(self.forms):
            raise ValueError("it says not where all of them are")
        handle = _opened(self.session)
        try:
            return [
                _read(handle, form.nbytes, address)
                for form, address in zip(self.forms, self.addresses[call], strict=True)
            ]
        finally:
            os.close(handle)


@dataclass(frozen=True)
class AskedWorker:
    """Reads outputs by asking the worker, where the evaluator does not see its device's memory."""

    session: Session
    forms: Sequence[Slot]
    limit_s: float

    def whole(self, call: int) -> list[torch.Tensor] | Lost:
        slots = self._poisoned([(form.shape, form.dtype) for form in self.forms])
        outcome = self.session.ask(protocol.Fetch(call, slots), timeout_s=self.limit_s)
        if not isinstance(outcome, Answered):
            return outcome
        return [self.session.memory.take(slot) for slot in slots]

    def at(
        self, calls: Sequence[int], places: Sequence[Sequence[int]]
    ) -> list[torch.Tensor] | Lost:
        slots = self._poisoned(
            [
                ((len(calls), len(at)), form.dtype)
                for form, at in zip(self.forms, places, strict=True)
            ]
        )
        asked = protocol.Look(tuple(calls), tuple(map(tuple, places)), slots)
        outcome = self.session.ask(asked, timeout_s=self.limit_s)
        if not isinstance(outcome, Answered):
            return outcome
        return [self.session.memory.take(slot) for slot in slots]

    def _poisoned(self, forms: Sequence[tuple[tuple[int, ...], str]]) -> tuple[Slot, ...]:
        memory = self.session.memory
        memory.clear()
        return tuple(memory.put(output_guards.poison(*form)) for form in forms)


def output_forms(op: Op, workload: Workload, dtype: str) -> list[Slot]:
    return [Slot(0, t.sizes(workload.dims), t.resolve(dtype)) for t in op.signature.outputs]


def can_be_read(session: Session) -> bool:
    """Whether the system shows us the memory of such a worker, to be asked of a trusted one."""
    try:
        os.close(_opened(session))
    except OSError:
        return False
    return True


def _opened(session: Session) -> int:
    """The memory of the process that holds the kernel. Raises OSError."""
    worker = session.pid
    for member in family(session.pid):
        with suppress(OSError):
            status = Path(f"/proc/{member}/status").read_text(encoding="utf-8", errors="replace")
            numbers = re.search(r"^NSpid:\s+\d.*\s(\d+)$", status, re.MULTILINE)
            if numbers and numbers[1] == _WORKER_THERE:
                worker = member
                break
    return os.open(f"/proc/{worker}/mem", os.O_RDONLY | os.O_CLOEXEC)


def _read(handle: int, size: int, address: int) -> bytearray:
    """Raises OSError."""
    data = bytearray()
    while len(data) < size:
        piece = os.pread(handle, size - len(data), address + len(data))
        if not piece:
            raise OSError(f"{size - len(data)} bytes of it are not there")
        data += piece
    return data
