"""Makes the launches of a plan in the executor of AMD's instructions. The code objects are a
stranger's, so that a worker does it, which has nothing else."""

from __future__ import annotations

import ctypes
import struct
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from portkern.errors import BuildError, LaunchError
from portkern.isa.executor import LaunchBuffer, ObjectProgram
from portkern.isa.finding import ObjectRan
from portkern.sandbox.shared_memory import SharedMemoryView
from portkern.spec.foreign_text import json_value
from portkern.worker.protocol import Replay, Replayed

if TYPE_CHECKING:
    import torch

#: Instructions of all waves, after which a launch of these small sizes is given up.
_LIMIT = 1 << 28
#: What temporaries hold before they are written.
_UNWRITTEN = 0xA5


def replay(asked: Replay, memory: SharedMemoryView) -> Replayed:
    tensors = [memory.tensor(slot) for slot in asked.tensors]
    try:
        with tempfile.TemporaryDirectory(dir=Path.cwd()) as place:
            programs = {}
            for number, (digest, slot) in enumerate(asked.objects.items()):
                path = Path(place) / f"{number}.hsaco"
                path.write_bytes(memory.tensor(slot).numpy().tobytes())
                programs[digest] = ObjectProgram(path)
        execute(json_value(asked.plan), programs, tensors, asked.numbers)
    except (LaunchError, BuildError) as error:
        return Replayed(str(error)[:1000] or type(error).__name__)
    except (LookupError, TypeError, ValueError) as error:
        return Replayed(f"the plan is not one: {type(error).__name__}: {error}"[:1000])
    return Replayed()


def execute(
    plan: Mapping[str, Any],
    programs: Mapping[str, ObjectProgram],
    tensors: Sequence[torch.Tensor],
    numbers: Sequence[float],
) -> None:
    """Makes the launches on the call's own tensors, which are contiguous and lie on the host, with
    its scalars. Raises LaunchError for a scalar of another value than the plan's, for what cannot
    be launched, and for an access outside the tensors or a kernel that does not end."""
    import torch

    if any(numbers[number] != value for number, value in plan["fixed"]):
        raise LaunchError(f"the plan is of {plan['fixed']}, got the scalars {[*numbers]}")
    temporaries = [
        torch.full((max(size, 1),), _UNWRITTEN, dtype=torch.uint8) for size in plan["temporaries"]
    ]
    memory = {"given": tensors, "temporary": temporaries}
    buffers = [
        LaunchBuffer(x.data_ptr(), x.numel() * x.element_size()) for x in (*tensors, *temporaries)
    ]
    for step in plan["steps"]:
        if "zero" in step:
            kind, number, offset = step["zero"]
            whole = memory[kind][number]
            if offset + step["bytes"] > whole.numel() * whole.element_size():
                raise LaunchError("a step makes memory zero that is not its tensor's")
            ctypes.memset(whole.data_ptr() + offset, 0, step["bytes"])
            continue
        try:
            ran = _launch(programs[step["binary"]], step, memory, numbers, buffers)
        except (ValueError, OverflowError, struct.error) as error:  # numbers that others claim
            raise LaunchError(f"{step['name']} cannot be launched: {error}") from error
        if not ran.clean:
            said = "; ".join(map(str, ran.findings[:2])) or "it does not end"
            raise LaunchError(f"{step['name']}: {said}")


def _launch(
    program: ObjectProgram,
    step: Mapping[str, Any],
    memory: Mapping[str, Sequence[torch.Tensor]],
    numbers: Sequence[float],
    buffers: Sequence[LaunchBuffer],
) -> ObjectRan:
    explicit = program.object.kernel(step["name"]).explicit
    values = [_packed(one, memory, numbers) for one in step["arguments"]]
    if len(values) > len(explicit):
        raise ValueError(f"it takes {len(explicit)} arguments, the plan has {len(values)}")
    # Behind them stand the addresses of scratch memory that no kernel with a plan asks for.
    values += [bytes(one.size) for one in explicit[len(values) :]]
    return program.run(
        step["name"],
        [value[: one.size] for value, one in zip(values, explicit, strict=True)],
        tuple(step["grid"]),
        (step["threads"], 1, 1),
        buffers=buffers,
        dynamic_lds_bytes=step["shared"],
        limit=_LIMIT,
    )


def _packed(
    argument: Sequence[Any], memory: Mapping[str, Sequence[torch.Tensor]], numbers: Sequence[float]
) -> bytes:
    kind, what, offset = argument
    if kind == "value":
        return bytes.fromhex(what)
    if kind == "scalar":
        return struct.pack("<f", numbers[what])
    return struct.pack("<Q", memory[kind][what].data_ptr() + offset)
