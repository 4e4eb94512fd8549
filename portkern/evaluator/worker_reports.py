"""What a worker says of one call, held against what it was given and what lies in the shared
memory.

It may say anything: whatever JSON can express is answered with a value or a ValueError.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from portkern.evaluator.reference import Case
from portkern.records.record import Finding
from portkern.sandbox.shared_memory import SharedMemory, Slot
from portkern.spec.op import Op


@dataclass(frozen=True)
class Slots:
    """Where one call's tensors lie in the shared memory: ``after`` are the inputs once it is over,
    ``guards`` the bytes around the outputs, which were ``margins`` before."""

    inputs: list[Slot]
    outputs: list[Slot]
    results: list[Slot]
    after: list[Slot]
    guards: list[Slot]
    margins: list[Any]


def collect(
    op: Op, memory: SharedMemory, slots: Slots, claimed: Mapping[str, Any]
) -> list[Any] | str:
    """The output tensors, or what is wrong with their form."""
    described = claimed.get("outputs")
    if not isinstance(described, list) or len(described) != len(op.signature.outputs):
        expected = len(op.signature.outputs)
        return f"the kernel returned {_brief(described)} outputs, expected {expected}"
    for spec, claim, slot in zip(op.signature.outputs, described, slots.results, strict=True):
        got = {key: claim.get(key) if isinstance(claim, dict) else None for key in _FORM}
        if got != {key: slot[key] for key in _FORM}:
            return (
                f"output {spec.name!r} is {_brief(got['dtype'])}{_brief(got['shape'])}, "
                f"expected {slot['dtype']}{slot['shape']}"
            )
        odd = oddity(op, claim)
        if odd:
            return f"output {spec.name!r} {odd}"
    return [memory.take(slot) for slot in slots.results]


_FORM = ("shape", "dtype")
_BRIEF = 100


def _brief(claim: Any) -> str:
    text = str(claim)
    return text if len(text) <= _BRIEF else f"{text[:_BRIEF]}…"


def oddity(op: Op, claim: Mapping[str, Any]) -> str:
    """What is wrong with where an output of the right shape and dtype lies."""
    if "type" in claim:
        return f"is a {_brief(claim['type'])}, expected a torch.Tensor"
    if "attributes" in claim:
        return f"has attributes of its own, {_brief(claim['attributes'])}, expected a plain tensor"
    if "owes" in claim:
        owed = _brief(claim["owes"])
        return f"has work left for whoever looks at it ({owed}), expected a plain tensor"
    if "device" in claim:
        return f"is on {_brief(claim['device'])}, expected the device of the inputs"
    if "input" in claim:
        names = [spec.name for spec in op.signature.inputs]
        number = claim["input"]
        which = names[number] if type(number) is int and 0 <= number < len(names) else "?"
        return f"lies in the memory of the input {which!r}, expected a tensor of its own"
    if "strides" in claim:
        return f"has the strides {_brief(claim['strides'])}, expected it contiguous"
    return ""


def written_outside(op: Op, memory: SharedMemory, slots: Slots) -> str:
    """What was written around the outputs; '' when nothing was."""
    for spec, slot, margins in zip(op.signature.outputs, slots.guards, slots.margins, strict=True):
        written = memory.take(slot) != margins
        before, behind = (int(side.sum()) for side in written.chunk(2))
        if before or behind:
            return (
                f"the kernel wrote outside of its output {spec.name!r}: "
                f"{before} bytes before it and {behind} behind it"
            )
    return ""


def changed_input(op: Op, memory: SharedMemory, slots: Slots, case: Case) -> str:
    """The name of the first input whose bytes differ after the call; '' when none does."""
    import torch

    for spec, tensor, slot in zip(op.signature.inputs, case.inputs, slots.after, strict=True):
        before = tensor.contiguous().reshape(-1).view(torch.uint8)
        if not torch.equal(memory.take(slot).reshape(-1).view(torch.uint8), before):
            return spec.name
    return ""


#: Whoever replaces all functions of a module is told so in a few lines.
_MOST_CHANGES = 12


def changed_state(claimed: Mapping[str, Any]) -> str:
    """What the kernel changed for others, one line each; '' when it is all as it was."""
    told = claimed.get("changed")
    if not isinstance(told, list):
        return f"the worker tells of no state but of {_brief(told)}"
    return "\n".join(_brief(one) for one in told[:_MOST_CHANGES])


def findings(claimed: Mapping[str, Any], before: Sequence[Finding]) -> tuple[Finding, ...]:
    """Those of the calls before and this one's, each code and place once."""
    known = {(one.code, one.place, one.also): one for one in before}
    listed = claimed.get("findings", [])
    if not isinstance(listed, list) or not all(isinstance(said, dict) for said in listed):
        raise ValueError(f"its findings are {_brief(listed)}, expected a list of them")
    for said in listed:
        one = Finding.model_validate({k: said[k] for k in Finding.model_fields if k in said})
        known.setdefault((one.code, one.place, one.also), one)
    return tuple(known.values())


def seconds(claimed: Mapping[str, Any]) -> float:
    """For the record alone: no verdict rests on it."""
    told = claimed.get("seconds", 0.0)
    return float(told) if _is_number(told) else 0.0


def samples(claimed: Mapping[str, Any], calls: int) -> list[float]:
    """Microseconds of as many calls."""
    told = claimed.get("samples")
    if not isinstance(told, list) or len(told) != calls or not all(map(_is_number, told)):
        raise ValueError(f"it timed {_brief(told)}, expected {calls} numbers")
    return [float(one) for one in told]


def method(claimed: Mapping[str, Any]) -> str:
    """How it says that it measures."""
    return _brief(claimed.get("method", ""))


def _is_number(told: Any) -> bool:
    return type(told) in (int, float) and 0 <= told < 1e18  # and so no NaN
