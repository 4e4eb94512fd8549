"""Reports of a worker on one call, held against what it was given and what lies in the shared
memory.

It may say anything that :mod:`portkern.worker.protocol` has a form for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from portkern.evaluator.reference import Case
from portkern.records.record import Finding
from portkern.sandbox.device_memory import DeviceMemory
from portkern.sandbox.message import brief
from portkern.sandbox.shared_memory import SharedMemory, TensorPlace
from portkern.spec.op import Op
from portkern.worker import output_guards, protocol
from portkern.worker.protocol import Layout, Ran, Timed

if TYPE_CHECKING:
    import torch

Memory = SharedMemory | DeviceMemory


@dataclass(frozen=True)
class Slots:
    """Where one call's tensors lie in memory that is shared: ``after`` are the inputs once it is
    over, ``guards`` the bytes around the outputs, which were ``margins`` before. Those that are
    ``placed`` on a GPU are worked on where they lie: ``results`` are within ``outputs``, and
    ``guards`` read there."""

    inputs: tuple[TensorPlace, ...]
    outputs: tuple[TensorPlace, ...]
    results: tuple[TensorPlace, ...]
    after: tuple[TensorPlace, ...]
    guards: tuple[TensorPlace, ...]
    margins: tuple[torch.Tensor, ...]
    placed: bool = False

    def edges(self, memory: Memory) -> list[torch.Tensor]:
        """The bytes around the outputs as they are now, on the host."""
        if self.placed:
            return [output_guards.margins(memory.look(block)).cpu() for block in self.outputs]
        return [memory.look(slot) for slot in self.guards]


def collect(op: Op, memory: Memory, slots: Slots, ran: Ran, case: Case) -> list[torch.Tensor] | str:
    """The output tensors, where their answers are, or what is wrong with their form."""
    expected = len(op.signature.outputs)
    if ran.returned != expected or len(ran.outputs) != expected:
        count = "1 output" if ran.returned == 1 else f"{ran.returned} outputs"
        wanted = zip(op.signature.outputs, slots.results, strict=True)
        forms = ", ".join(f"{spec.name} {slot.dtype}{list(slot.shape)}" for spec, slot in wanted)
        return f"the kernel returned {count}, expected {expected}: {forms}"
    for spec, output, slot in zip(op.signature.outputs, ran.outputs, slots.results, strict=True):
        if (output.shape, output.dtype) != (slot.shape, slot.dtype):
            return (
                f"output {spec.name!r} is {brief(output.dtype)}{brief(list(output.shape))}, "
                f"expected {slot.dtype}{list(slot.shape)}"
            )
        odd = oddity(op, output.layout)
        if odd:
            return f"output {spec.name!r} {odd}"
    answers = zip(slots.results, case.exact, strict=True)
    return [memory.take(slot, exact.device) for slot, exact in answers]


def oddity(op: Op, layout: Layout) -> str:
    """The first oddity of how an output of the right shape and dtype lies in memory; '' when
    there is none."""
    if layout.type:
        return f"is a {brief(layout.type)}, expected a torch.Tensor"
    if layout.attributes:
        attributes = brief(list(layout.attributes))
        return f"has attributes of its own, {attributes}, expected a plain tensor"
    if layout.owes:
        owed = brief(layout.owes)
        return f"has work left for whoever looks at it ({owed}), expected a plain tensor"
    if layout.device:
        return f"is on {brief(layout.device)}, expected the device of the inputs"
    if layout.input is not None:
        names = [spec.name for spec in op.signature.inputs]
        which = names[layout.input] if 0 <= layout.input < len(names) else "?"
        return f"lies in the memory of the input {which!r}, expected a tensor of its own"
    if layout.strides is not None:
        return f"has the strides {brief(list(layout.strides))}, expected it contiguous"
    return ""


def written_outside(op: Op, memory: Memory, slots: Slots) -> str:
    """A sentence on what the kernel wrote around the outputs; '' when it wrote nothing there."""
    edges = slots.edges(memory)
    for spec, edge, margins in zip(op.signature.outputs, edges, slots.margins, strict=True):
        written = edge != margins
        before, behind = (int(side.sum()) for side in written.chunk(2))
        if before or behind:
            return (
                f"the kernel wrote outside of its output {spec.name!r}: "
                f"{before} bytes before it and {behind} behind it"
            )
    return ""


def changed_input(op: Op, memory: Memory, slots: Slots, case: Case) -> str:
    """The name of the first input whose bytes differ after the call; '' when none does."""
    import torch

    given = case.placed if slots.placed else case.inputs
    for spec, tensor, slot in zip(op.signature.inputs, given, slots.after, strict=True):
        before = tensor.contiguous().reshape(-1).view(torch.uint8)
        if not torch.equal(memory.look(slot).reshape(-1).view(torch.uint8), before):
            return spec.name
    return ""


#: The most lines about the functions that a candidate replaced, which may be all of a module.
_MOST_CHANGES = 12


def changed_state(changed: Sequence[str]) -> str:
    """The things that the kernel changed for others, one line each; '' when all is as it was."""
    return "\n".join(map(brief, changed[:_MOST_CHANGES]))


def findings(
    seen: Iterable[protocol.CheckerFinding], before: Sequence[Finding]
) -> tuple[Finding, ...]:
    """The findings of the calls before and of this one, each code and place once: the first, unless
    a later one is an error and the first is not."""
    known: dict[tuple[str, str, str], Finding] = {}
    for finding in (*before, *(Finding.model_validate(asdict(one)) for one in seen)):
        key = (finding.code, finding.place, finding.also)
        if known.setdefault(key, finding).severity != "error" and finding.severity == "error":
            known[key] = finding
    return tuple(known.values())


def with_caveat(known: tuple[Finding, ...], caveat: str) -> tuple[Finding, ...]:
    """The findings with a note, said once, on what the evaluator's own tolerance does not know."""
    if not caveat or any(finding.message == caveat for finding in known):
        return known
    return (*known, Finding(code="tolerance", severity="note", message=caveat))


def samples(timed: Timed, calls: int) -> list[float]:
    """The microseconds of as many calls as were asked for."""
    if len(timed.samples) != calls:
        raise ValueError(f"it timed {len(timed.samples)} calls, expected {calls}")
    return list(timed.samples)
