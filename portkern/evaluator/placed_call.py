"""Where the tensors of a checked call lie when its answer is on a GPU: in memory of the evaluator's
there, which the worker maps, so that nothing of it passes through the host."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from portkern.evaluator.worker_reports import Slots
from portkern.sandbox.device_memory import DeviceMemory
from portkern.sandbox.session import Answered, Session
from portkern.sandbox.shared_memory import TensorPlace
from portkern.spec.op import Op, Workload
from portkern.worker import output_guards, protocol

if TYPE_CHECKING:
    import torch


class PlacedCall:
    """The buffers of one worker's calls on a workload, alike in every call: inputs, and outputs
    with margins that the worker is not told of."""

    def __init__(self, op: Op, workload: Workload, dtype: str, device: str) -> None:
        self.memory = DeviceMemory(device)
        signature, dims = op.signature, workload.dims
        forms = [
            [(spec.sizes(dims), spec.resolve(dtype)) for spec in several]
            for several in (signature.inputs, signature.outputs)
        ]
        self._inputs = [self.memory.rows(*form, 1).row(0) for form in forms[0]]
        self._blocks = [
            self.memory.rows((output_guards.guarded_bytes(*form),), "uint8", 1).row(0)
            for form in forms[1]
        ]
        self._results = [
            TensorPlace(block.offset + output_guards.MARGIN, *form)
            for block, form in zip(self._blocks, forms[1], strict=True)
        ]

    def open(self, session: Session, *, limit_s: float) -> bool:
        """Whether the worker has mapped the memory; where it has not, there is none. Raises
        DeviceMemoryError where the evaluator cannot have it."""
        self.memory.make(session.give)
        with ExitStack() as unless_open:
            unless_open.callback(self.memory.close)
            outcome = session.ask(protocol.Open(self.memory.nbytes), timeout_s=limit_s)
            if isinstance(outcome, Answered):
                unless_open.pop_all()
                return True
        return False

    def fill(self, inputs: Sequence[torch.Tensor]) -> Slots:
        """The places of a call whose inputs lie there, and poison where its outputs belong."""
        import torch

        for slot, tensor in zip(self._inputs, inputs, strict=True):
            self.memory.look(slot).copy_(tensor)
        margins = tuple(output_guards.guard(self.memory.look(block)) for block in self._blocks)
        torch.cuda.synchronize(self.memory.device)  # the worker's work is on another stream
        blocks, given = tuple(self._blocks), tuple(self._inputs)
        return Slots(given, blocks, tuple(self._results), given, (), margins, placed=True)

    def close(self) -> None:
        """Let go of the memory, which is free when the worker opens another, forgets it or
        ends: until then its view holds it."""
        self.memory.close()
