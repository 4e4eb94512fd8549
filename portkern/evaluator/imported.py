"""Asks a confined worker what a reference that came from outside gives: code of others, like a
kernel, but trusted with the answer. Its worker holds no kernel and no kernel's worker holds it.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from portkern.errors import ReferenceFailed
from portkern.evaluator.cached import cached_property
from portkern.rounding.derived_budget import DerivedBudget
from portkern.sandbox.message import Failed, Request, brief
from portkern.sandbox.session import Answered, Session
from portkern.sandbox.shared_memory import TensorPlace
from portkern.spec.imported import ImportedInputs, ImportedReference
from portkern.spec.op import ITEMSIZE, Scalar
from portkern.worker import protocol
from portkern.worker.tracing import PRELOAD

if TYPE_CHECKING:
    import torch

R = TypeVar("R")

#: Seconds that one run of a reference may take, and deriving a budget from some twenty of them.
RUN_S, DERIVE_S = 300.0, 900.0


class ReferenceWorker:
    """The worker of one reference; opened when it is first asked, and again when it has ended.
    Thread-safe."""

    def __init__(self, reference: ImportedReference) -> None:
        self.reference = reference
        self._session: Session | None = None
        self._lock = threading.Lock()

    def outputs(
        self, inputs: Sequence[torch.Tensor], scalars: Mapping[str, Scalar]
    ) -> tuple[torch.Tensor, ...]:
        """The reference's outputs for host tensors. Raises ReferenceFailed."""
        with self._lock:
            session = self._opened()
            given = tuple(map(session.memory.put, inputs))
            asked = protocol.Compute(self.reference, given, scalars)
            reply = self._ask(session, asked, RUN_S)
            elements = _Elements(session)
            return tuple(map(elements.take, reply.outputs))

    def drawn(
        self, inputs: ImportedInputs, dims: Mapping[str, int], seed: int
    ) -> tuple[torch.Tensor, ...]:
        """Raises ReferenceFailed."""
        with self._lock:
            session = self._opened()
            reply = self._ask(session, protocol.Draw(inputs, dims, seed), RUN_S)
            elements = _Elements(session)
            return tuple(map(elements.take, reply.outputs))

    def derived(
        self,
        inputs: Sequence[torch.Tensor],
        scalars: Mapping[str, Scalar],
        exact: Sequence[torch.Tensor],
        own: Sequence[torch.Tensor],
        seed: int,
    ) -> DerivedBudget:
        """Raises ReferenceFailed."""
        with self._lock:
            session = self._opened()
            slots: list[tuple[TensorPlace, ...]] = [
                tuple(map(session.memory.put, tensors)) for tensors in (inputs, exact, own)
            ]
            asked = protocol.Derive(self.reference, slots[0], scalars, slots[1], slots[2], seed)
            reply = self._ask(session, asked, DERIVE_S)
            elements = _Elements(session)
            allowed = tuple(None if form is None else elements.take(form) for form in reply.allowed)
            integers = tuple(tuple(map(elements.take, forms)) for forms in reply.integers)
            if [len(allowed), len(integers)] != [len(exact)] * 2:
                raise ReferenceFailed(f"The reference {self.reference.name} gave no such budget")
            unruled = tuple(map(brief, reply.unruled))
            return DerivedBudget(allowed, integers, unruled, brief(reply.problem))

    def close(self) -> None:
        with self._lock:
            if self._session is not None:
                self._session.close()
            self._session = None

    def _opened(self) -> Session:
        if self._session is not None and not self._session.alive:
            self._session.close()
            self._session = None
        if self._session is None:
            self._session = Session(PRELOAD, {})
        self._session.memory.clear()
        return self._session

    def _ask(self, session: Session, asked: Request[R], timeout_s: float) -> R:
        outcome = session.ask(asked, timeout_s=timeout_s)
        if isinstance(outcome, Answered):
            return outcome.reply
        said = str(outcome)
        if isinstance(outcome, Failed):
            said = f"raised {outcome.error}: {outcome.message.partition(chr(10))[0]}"
        raise ReferenceFailed(f"The reference {self.reference.name} {brief(said)}")


class _Elements:
    """The elements of tensors that follow each other in a worker's memory."""

    def __init__(self, session: Session) -> None:
        self._session, self._offset = session, 0

    def take(self, form: protocol.OutputForm) -> torch.Tensor:
        """A copy of the next one. Raises ReferenceFailed for more than there is."""
        import torch

        if form.dtype not in ITEMSIZE or min(form.shape, default=0) < 0:
            raise ReferenceFailed(f"A reference gave {brief(form.dtype)}{list(form.shape)[:8]}")
        size = math.prod(form.shape) * ITEMSIZE[form.dtype]
        data = self._session.memory.bytes(size, self._offset)
        if data is None:
            raise ReferenceFailed(f"A reference gave no {size} bytes of its output")
        kind: torch.dtype = getattr(torch, form.dtype)
        if not size:
            return torch.empty(form.shape, dtype=kind)
        self._offset += size
        return torch.frombuffer(bytearray(data), dtype=kind).reshape(form.shape)


@dataclass(frozen=True)
class ImportedDerivation:
    """A :class:`portkern.rounding.derived_budget.Derivation` that is made in the worker."""

    worker: ReferenceWorker
    inputs: Sequence[torch.Tensor]
    scalars: Mapping[str, Scalar]
    exact: Sequence[torch.Tensor]
    own: Sequence[torch.Tensor]
    seed: int

    @cached_property
    def budget(self) -> DerivedBudget:
        return self.worker.derived(self.inputs, self.scalars, self.exact, self.own, self.seed)


_LOCK = threading.Lock()


def worker_of(reference: ImportedReference) -> ReferenceWorker:
    """The worker of this object, which ends with it: jobs that were given the same text are not to
    wait for each other, nor close what another one uses."""
    with _LOCK:
        known: ReferenceWorker | None = vars(reference).get("_worker")
        if known is None:
            known = vars(reference)["_worker"] = ReferenceWorker(replace(reference))
            weakref.finalize(reference, known.close).atexit = False
        return known


def close(reference: object) -> None:
    """Closes the reference's worker, if it has one, which begins anew when it is asked again."""
    if isinstance(reference, ImportedReference):
        worker_of(reference).close()
