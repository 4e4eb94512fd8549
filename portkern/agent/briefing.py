"""The part of a prompt that describes a task's target and how its kernels are judged. Of the
data that are there it takes what an author in this language, whose kernels end in this place,
can act on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from portkern.agent.operator_kind import adds_up, has_products
from portkern.agent.task import Task
from portkern.spec import lanes
from portkern.spec.op import PRECISIONS, Workload
from portkern.spec.target import MatrixInstruction, Target

#: Limits of a target that say how it combines others, which a kernel's author cannot act on.
_NOT_TOLD = ("vendor", "unit", "device_kind", "topology")
_UNITS = {"nvidia": "SM", "amd": "CU", "google": "TensorCore"}
#: The names that instruction sets have for dtypes.
_DTYPES = {
    "float64": "f64",
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "int8": "i8",
}
#: What products of float32 may be taken in.
_ALLOWED = {
    "strict": frozenset[str](),
    "allow_tf32": frozenset({"tf32", "xf32"}),
    "allow_reduced": frozenset({"tf32", "xf32", "f16", "bf16"}),
}
#: Limits of features.
_LIMITS = {"cluster_max": "clusters", "tmem_sm_bytes": "tmem"}
#: Features whose names say little.
_WORDS = dict.fromkeys(("lds_dword", "lds_dwordx3", "lds_dwordx4"), "copies from memory to LDS")
#: What hints may need of the operator: products of matrices; outputs that several blocks add to.
OF_OPERATORS = frozenset({"products", "sums"})
#: The peak by dtype that arithmetic in it is held to.
_PEAKS = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}


@dataclass(frozen=True)
class MatrixLine:
    """``calls`` for those who write the instruction out, empty where a compiler chooses it, and so
    are ``lanes``: by shapes which elements a lane holds."""

    name: str
    inputs: str
    sums: str
    shapes: Sequence[str]
    calls: Sequence[str] = ()
    lanes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class BriefedSizes:
    what: Literal["timed", "checked", "meant"]
    lines: Sequence[str]


def facts(task: Task) -> dict[str, object]:
    """The facts that the templates ``_system``, ``_target`` and ``_task`` need."""
    target = task.target
    lines = matrix(task)
    turns = {} if task.language in task.backend.dialects else task.backend.turns
    return {
        "kernel_form": "entry",
        "sizes": sizes(task),
        "precision": PRECISIONS[task.op.precision],
        "size": size(target),
        "limits": limits(task),
        "ridge": ridge(task),
        "matrix": lines,
        "no_matrix": bool(target.features.matrix)
        and has_products(task.op)
        and not lines
        and task.backend.matrix_units != "nobody",
        "hints": target.hints_for(task.language, without=without(task)),
        "knobs": {what: target.knobs[knob] for knob, what in turns.items() if knob in target.knobs},
        "unmodelled": unmodelled(task),
        "watched": {name: _checker(task, name) for name in task.checkers},
    }


def limits(task: Task) -> dict[str, object]:
    """The target's limits, without those of features that kernels cannot use."""
    known = task.target.limits.model_dump(exclude_none=True)
    gone = {name for name, feature in _LIMITS.items() if feature in task.unmodelled}
    return {
        k.replace("_", " ").replace("unit", str(known.get("unit"))): v
        for k, v in known.items()
        if v and k not in {*_NOT_TOLD, *gone}
    }


def size(target: Target) -> list[str]:
    """How much there is of it, of a product."""
    parts = []
    if target.multiprocessors:
        parts.append(f"{target.multiprocessors} {_UNITS.get(target.vendor, 'unit')}s")
    if target.memory_gb:
        parts.append(f"{target.memory_gb:g} GB of memory")
    dies = target.features.extras.get("xcds")
    in_each = f" in each of {dies} XCDs" if dies else ""
    if target.l2_bytes:
        parts.append(f"{target.l2_bytes / 2**20:g} MB of L2 cache{in_each}")
    if target.llc_bytes:
        parts.append(f"{target.llc_bytes / 2**20:g} MB of last-level cache")
    return parts


def sizes(task: Task) -> list[BriefedSizes]:
    """The sizes that kernels are timed and checked on; where only small ones are checked, also
    those that the kernel is written for."""
    sets = list(task.workloads.values())
    checked = [work for several in sets for work in several]
    if task.ends == "hardware":
        told = [
            BriefedSizes("timed", _dims(sets[-1])),
            BriefedSizes("checked", _dims(checked[: -len(sets[-1])])),
        ]
    else:
        known = {work.name for work in checked}
        typical = task.op.workloads.get("typical", ())
        meant = _dims([work for work in typical if work.name not in known])
        told = (
            [BriefedSizes("checked", _dims(checked)), BriefedSizes("meant", meant)]
            if task.ends in ("emulator", "object")
            else [BriefedSizes("meant", [*_dims(checked), *meant])]
        )
    return [each for each in told if each.lines]


def _checker(task: Task, name: str) -> str:
    known = task.backend.object_checkers if task.ends == "object" else task.backend.checkers
    return known.get(name, "")


def _dims(several: Sequence[Workload]) -> list[str]:
    return [" ".join(f"{axis}={n}" for axis, n in work.dims.items()) for work in several]


def ridge(task: Task) -> str:
    """Flops per byte of memory above which arithmetic is the limit; empty where no peaks are known
    for the dtype."""
    peaks = task.target.peaks
    memory, arithmetic = peaks.get("memory"), peaks.get(_PEAKS.get(task.dtype, ""))
    if memory is None or arithmetic is None:
        return ""
    return f"{1000 * arithmetic.value / memory.value:.0f}"


def inputs(task: Task) -> set[str]:
    """The dtypes that products may take their factors in: those of the operator's tensors, and
    what its precision allows in their place."""
    dtypes = {tensor.resolve(task.dtype) for tensor in task.op.signature.inputs}
    known = {_DTYPES[name] for name in dtypes if name in _DTYPES}
    return known | _ALLOWED[task.op.precision] if "f32" in known else known


def without(task: Task) -> set[str]:
    """Features of targets that are of no use to this task, or not to be had."""
    features = task.target.features
    used = {line.name for line in matrix(task)}
    used |= {"products"} if has_products(task.op) else set()
    used |= {"sums"} if adds_up(task.op) else set()
    return {*task.unmodelled, *features.mma, "fp8", "xf32", *OF_OPERATORS} - used - inputs(task)


def matrix(task: Task) -> list[MatrixLine]:
    """The instructions that take the operator's tensors as they are or as its precision allows;
    none where it has no products."""
    if task.backend.matrix_units == "nobody" or not has_products(task.op):
        return []
    accepted = inputs(task)
    return [
        _line(each, spelled=task.backend.matrix_units == "author")
        for each in task.target.features.matrix
        if each.inputs in accepted and each.name not in task.unmodelled
    ]


def _line(each: MatrixInstruction, *, spelled: bool) -> MatrixLine:
    if not spelled:
        return MatrixLine(each.name, each.inputs, each.sums, each.shapes)
    shapes: dict[str, list[str]] = {}
    for shape in each.shapes:
        shapes.setdefault(str(lanes.of(each, shape) or ""), []).append(shape)
    held = {", ".join(alike): text for text, alike in shapes.items() if text}
    return MatrixLine(each.name, each.inputs, each.sums, each.shapes, each.calls, held)


def unmodelled(task: Task) -> list[str]:
    """Features that the target has and a kernel may not use, because it is judged where they are
    not modelled."""
    features = task.target.features
    has = {*features.mma, *features.async_copy}
    if getattr(task.target.limits, "cluster_max", None):
        has.add("clusters")
    return list(dict.fromkeys(_WORDS.get(name, name) for name in task.unmodelled if name in has))
