"""Where outputs of timed calls are read from, once a round is over and before anything else is.

All of a worker's processes stand still by then, and what is read is memory: the evaluator's own, of
the host or of a GPU, in which every call of a round has buffers, or, of a kernel on a host that
returns tensors of its own, that of the worker as the system shows it. Nothing that a candidate left
in its process is run. Who returns tensors on a GPU is asked, and so are all where the system cannot
share a GPU's memory.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from portkern.evaluator.processor_time import family
from portkern.sandbox.device_memory import DeviceMemory
from portkern.sandbox.session import Answered, Lost, Session, Unreadable
from portkern.sandbox.shared_memory import Rows, SharedMemory, TensorPlace
from portkern.spec.op import Op, Workload
from portkern.worker import masks, output_guards, protocol

if TYPE_CHECKING:
    import torch

#: The worker's number in its own namespace: the first process there starts no other.
_WORKER_THERE = "2"
#: Elements of each call's outputs that are looked at as soon as a round on a GPU is over, and what
#: they are compared as, by their size.
GLANCES = 16
_INTEGERS = {1: "uint8", 2: "int16", 4: "int32", 8: "int64"}


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

    def __init__(
        self,
        op: Op,
        workload: Workload,
        dtype: str,
        memory: SharedMemory | DeviceMemory,
        most: int,
    ) -> None:
        self._memory = memory
        self._seen: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []
        #: Keys of what lies over each call's inputs.
        self.masks: tuple[int, ...] = ()
        signature, dims = op.signature, workload.dims

        def rows(sizes: tuple[int, ...], kind: str) -> Rows:
            return self._memory.rows(sizes, kind, most + 1)

        self.inputs = tuple(rows(t.sizes(dims), t.resolve(dtype)) for t in signature.inputs)
        self.outputs = tuple(rows(t.sizes(dims), t.resolve(dtype)) for t in signature.outputs)

    @classmethod
    def on_host(
        cls, op: Op, workload: Workload, dtype: str, session: Session, most: int
    ) -> RoundMemory:
        """A round's buffers in the memory that a session shares with its worker."""
        session.memory.clear()
        return cls(op, workload, dtype, session.memory, most)

    @classmethod
    def on_device(
        cls,
        op: Op,
        workload: Workload,
        dtype: str,
        session: Session,
        most: int,
        *,
        device: str,
        limit_s: float,
    ) -> RoundMemory | Lost:
        """A round's buffers in memory of this GPU's, which the worker maps too. Raises
        DeviceMemoryError where the evaluator cannot have it."""
        memory = DeviceMemory(device)
        made = cls(op, workload, dtype, memory, most)
        memory.make(session.give)
        with ExitStack() as unless_open:
            unless_open.callback(memory.close)
            outcome = session.ask(protocol.Open(memory.nbytes), timeout_s=limit_s)
            if not isinstance(outcome, Answered):
                return outcome
            unless_open.pop_all()
        return made

    def close(self) -> None:
        """Give a GPU's memory back; a host's is the session's."""
        self._seen = []
        if isinstance(self._memory, DeviceMemory):
            self._memory.close()

    def fill(self, given: Sequence[torch.Tensor], calls: int) -> None:
        """Fills the buffers with the inputs of a round, a block for each, after poison where
        outputs belong, so that the caches then hold the inputs."""
        for rows in self.outputs:
            block = self._memory.block(rows, calls + 1)
            poison = output_guards.poison(rows.shape, rows.dtype, block.device).flatten()
            block.copy_(poison.expand(calls + 1, -1))
        for rows, made in zip(self.inputs, given, strict=True):
            self._memory.block(rows, calls + 1).copy_(made[: calls + 1])
        if isinstance(self._memory, DeviceMemory):
            self._mask(calls)
            self._choose_places(calls)

    def _mask(self, calls: int) -> None:
        """Hides each call's inputs until it is made."""
        self.masks = tuple(secrets.randbits(62) for _ in range(calls + 1))
        blocks = [self._memory.block(rows, calls + 1) for rows in self.inputs]
        for number, key in enumerate(self.masks):
            masks.mask([block[number] for block in blocks], key)

    def _choose_places(self, calls: int) -> None:
        """Elements of every output that :meth:`glance` looks at. All work of the evaluator's on the
        GPU is over then."""
        import torch

        self._seen = []
        for rows in self.outputs:
            block = self._memory.block(rows, calls + 1)
            if block.numel():
                block = block.view(getattr(torch, _INTEGERS[block.element_size()]))
                places = torch.randint(0, block.shape[1], (calls + 1, GLANCES), device=block.device)
                self._seen.append((block, places, block.gather(1, places)))
        torch.cuda.synchronize()

    def glance(self) -> None:
        """Copy a few elements of the outputs of all calls within the GPU, as soon as a round is
        over: what is computed later is not there."""
        import torch

        for block, places, seen in self._seen:
            torch.gather(block, 1, places, out=seen)
        if self._seen:
            torch.cuda.synchronize()

    def changed(self) -> bool:
        """Whether an output is another one than at the glance."""
        return any(bool((b.gather(1, places) != seen).any()) for b, places, seen in self._seen)

    def whole(self, call: int) -> list[torch.Tensor]:
        """Copies of a call's outputs, which stay on their GPU where that has plenty of room."""
        slots = [rows.row(call + 1) for rows in self.outputs]
        if isinstance(self._memory, DeviceMemory):
            where = self._memory.kept_on(sum(slot.nbytes for slot in slots))
            return [self._memory.take(slot, where) for slot in slots]
        return [self._memory.take(slot) for slot in slots]

    def at(self, calls: Sequence[int], places: Sequence[Sequence[int]]) -> list[torch.Tensor]:
        import torch

        return [
            torch.stack(
                [self._memory.look(rows.row(c + 1)).view(-1)[list(at)].cpu() for c in calls]
            )
            for rows, at in zip(self.outputs, places, strict=True)
        ]


@dataclass(frozen=True)
class ReturnedTensors:
    """Tensors that a kernel made itself, each where its worker says that it lies: who names another
    place has answered with what lies there."""

    session: Session
    forms: Sequence[TensorPlace]
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
    forms: Sequence[TensorPlace]
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

    def _poisoned(self, forms: Sequence[tuple[tuple[int, ...], str]]) -> tuple[TensorPlace, ...]:
        memory = self.session.memory
        memory.clear()
        return tuple(memory.put(output_guards.poison(*form)) for form in forms)


def output_forms(op: Op, workload: Workload, dtype: str) -> list[TensorPlace]:
    return [TensorPlace(0, t.sizes(workload.dims), t.resolve(dtype)) for t in op.signature.outputs]


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
