"""The launches of a plan, made in the executor of AMD's instructions: what a library carries is
held against the formula before it is written. A worker executes the code objects, in the jail."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from portkern.evaluator import compare, reference
from portkern.isa import runtime_library
from portkern.sandbox.message import brief
from portkern.sandbox.session import Answered, Session
from portkern.spec.launch_plan import LaunchPlan
from portkern.spec.op import Op, Workload
from portkern.worker.protocol import Replay

if TYPE_CHECKING:
    import torch

#: Seconds of all launches of a plan.
_RUN_S = 600.0


def wrong(plan: LaunchPlan, op: Op, work: Workload, dtype: str) -> str:
    """How the results of the launches differ from the formula's on random inputs, or why they end;
    '' where they are right."""
    import torch

    case = reference.make_case(op, work, dtype, "normal")
    outputs = [
        torch.empty(spec.sizes(work.dims), dtype=getattr(torch, spec.resolve(dtype)))
        for spec in op.signature.outputs
    ]
    scalars = op.signature.scalar_values(work.scalars)
    numbers = tuple(float(scalars[one.name]) for one in op.signature.scalars)
    problem, made = execute(plan, [*case.inputs, *outputs], numbers)
    if problem:
        return problem
    results = made[len(case.inputs) :]
    return compare.compare(actual=results, case=case, precision=op.precision).problem


def execute(
    plan: LaunchPlan, tensors: list[torch.Tensor], numbers: tuple[float, ...]
) -> tuple[str, list[torch.Tensor]]:
    """Why the launches came to no end, and the call's tensors as these left them."""
    import torch

    library = runtime_library.ready().parent
    with Session(("torch",), {}, reads=[library]) as worker:
        objects = {
            digest: worker.memory.put(torch.frombuffer(bytearray(data), dtype=torch.uint8))
            for digest, data in plan.binaries.items()
        }
        slots = tuple(map(worker.memory.put, tensors))
        asked = Replay(objects, json.dumps(plan.document), slots, numbers)
        outcome = worker.ask(asked, timeout_s=_RUN_S)
        if not isinstance(outcome, Answered):
            return f"the executor of objects {brief(str(outcome))}", []
        return brief(outcome.reply.problem), [*map(worker.memory.take, slots)]
