"""Shows that a library's Triton kernels do on a target what they do on the original's GPU.

Both are run in Triton's interpreter, which knows no number of warps: on NVIDIA's GPU as the library
has them, and on the target with what the library itself does there and with the configurations that
compile for it.
"""

from __future__ import annotations

import ast
import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from portkern.port.kernel_port import Coverage, ProofLine
from portkern.port.library import Library
from portkern.port.proof import Outcome
from portkern.port.proof.compare import Judged, differing
from portkern.port.proof.element import ELEMENTS
from portkern.port.proof.recording import Content
from portkern.port.triton_case import Grid, LaunchText, Scalar, TritonCase, propose
from portkern.port.triton_infer import Constant, Inference
from portkern.port.triton_library import (
    TritonOutcome,
    TritonResult,
    constants_with,
    inferred,
    signature_with,
)
from portkern.port.triton_source import Setting, TritonConfig, TritonKernel
from portkern.port.triton_worker import WorkerRequest, answers
from portkern.sandbox.message import FormError, read
from portkern.spec.target import Target

#: The worker's, found by name: the core imports no backend.
_WORKER = "portkern.backends.triton.library_interpreter"
_ORIGINAL = "sm_90"
_SEED = 17
_MOST_SETTINGS = 4
_EACH_S = 20
_LEAST_COVERED = 0.8

Settings = tuple[tuple[str, Setting], ...]
Answer = Mapping[str, Any]


@dataclass(frozen=True)
class _Run(WorkerRequest):
    signature: Mapping[str, str]
    constants: Mapping[str, Constant]
    scalars: Mapping[str, Scalar]
    grid: Grid
    backwards: bool
    seed: int = _SEED


@dataclass
class _Planned:
    """``runs`` are numbers of requests: by target, settings, and whether backwards."""

    case: TritonCase
    settings: list[Settings]
    by_target: Mapping[str, list[Settings]]
    runs: dict[tuple[str, Settings, bool], int] = field(default_factory=dict)


Place = tuple[str, int]


def prove(
    library: Library,
    targets: Sequence[Target],
    kernels: Sequence[TritonKernel],
    compiled: Sequence[TritonResult],
    *,
    timeout_s: float,
) -> dict[tuple[Place, str], ProofLine]:
    """The proofs of the kernels, by a kernel's path and line, and target. Raises WorkerError
    where this machine cannot contain a worker."""
    plans: dict[Place, _Planned | str] = {}
    requests: list[_Run] = []
    for kernel in kernels:
        plans[_place(kernel)] = _planned(library, kernel, targets, compiled, requests)
    made: dict[int, dict[str, object]] = {}
    # A library is imported once by a process, and what it does then follows from the target.
    for name in (_ORIGINAL, *(target.name for target in targets)):
        own = [request for request in requests if request.target == name]
        said = answers(_WORKER, library.root, own, timeout_s, _EACH_S)
        made |= {number: _formed(answer) for number, answer in said.items()}
    return {
        (place, target.name): _judged(plan, target.name, made)
        for place, plan in plans.items()
        for target in targets
    }


def _place(kernel: TritonKernel) -> Place:
    return str(kernel.path), kernel.line


# ---- what is run


def _planned(
    library: Library,
    kernel: TritonKernel,
    targets: Sequence[Target],
    compiled: Sequence[TritonResult],
    requests: list[_Run],
) -> _Planned | str:
    """The requests of a kernel, which are added to all; or why it has none."""
    file = library.root / kernel.path
    types = inferred(file).get(kernel.name)
    if types is None:
        return "its source cannot be read"
    launch = LaunchText(ast.parse(file.read_text("utf-8", "replace")), kernel.name)
    configs = kernel.configs or (TritonConfig({}, {}),)
    settings = list(dict.fromkeys(_settings(config) for config in configs))[:_MOST_SETTINGS]
    by_target = {
        target.name: [s for s in settings if s in _of_compiled(kernel, target, compiled)]
        or settings
        for target in targets
    }
    plan = _Planned(propose(launch, types), settings, by_target)
    wanted = [(_ORIGINAL, s, False) for s in settings] + [(_ORIGINAL, settings[0], True)]
    wanted += [(name, s, False) for name, own in by_target.items() for s in own]
    for target_name, chosen, backwards in wanted:
        plan.runs[target_name, chosen, backwards] = len(requests)
        requests.append(
            _run(len(requests), kernel, types, plan.case, launch, target_name, chosen, backwards)
        )
    return plan


def _settings(config: TritonConfig) -> Settings:
    return tuple(sorted(config.values.items()))


def _of_compiled(
    kernel: TritonKernel, target: Target, compiled: Sequence[TritonResult]
) -> set[Settings]:
    return {
        _settings(result.config)
        for result in compiled
        if (result.path, result.line, result.target) == (*_place(kernel), target.name)
        and result.outcome is TritonOutcome.COMPILED
    }


def _run(
    number: int,
    kernel: TritonKernel,
    types: Inference,
    case: TritonCase,
    launch: LaunchText,
    target: str,
    settings: Settings,
    backwards: bool,
) -> _Run:
    config = TritonConfig(dict(settings), {})
    constants = constants_with(kernel, types, config)
    signature = signature_with(types, config)
    scalars = {name: value for name, value in case.scalars.items() if name in signature}
    grid = launch.sizes({**scalars, **constants})
    place = (number, str(kernel.path), kernel.name, target)
    return _Run(*place, signature, constants, scalars, grid, backwards)


# ---- what it came to


def _judged(
    plan: _Planned | str, target: str, made: Mapping[int, Mapping[str, object]]
) -> ProofLine:
    if isinstance(plan, str):
        return ProofLine(outcome=Outcome.UNPROVEN, why=plan)
    over = {"unknown": "the time for this library was over"}
    said = {key: made.get(number, over) for key, number in plan.runs.items()}
    first = plan.settings[0]
    coverage = _coverage([answer for key, answer in said.items() if key[0] == _ORIGINAL])
    outcome, why = _outcome(plan, target, said)
    if outcome is Outcome.PROVEN:
        base = said[_ORIGINAL, first, False]
        settings = len(plan.by_target[target])
        parts = [f"{settings} of {len(plan.settings)} block settings"] if settings > 1 else []
        if coverage and coverage.lines < _LEAST_COVERED * coverage.lines_total:
            parts.append(f"its inputs reached {coverage.lines} of {coverage.lines_total} lines")
        if not plan.case.launch:
            parts.append("its launch is not in its file")
        why = "; ".join(parts)
        outcome, why = _worth(base) or (outcome, why)
    return ProofLine(outcome=outcome, why=why, inputs=str(plan.case), coverage=coverage)


def _outcome(
    plan: _Planned, target: str, said: Mapping[tuple[str, Settings, bool], Answer]
) -> tuple[Outcome, str]:
    first = plan.settings[0]
    original = said[_ORIGINAL, first, False]
    if problem := _problem(original):
        return Outcome.UNPROVEN, f"in Triton's interpreter: {problem}"
    if not original["written"]:
        return Outcome.UNPROVEN, "it wrote no buffer on these inputs"
    back = said[_ORIGINAL, first, True]
    if differs := _problem(back) or _differs(original, back):
        why = "the original's own result depends on the order of its programs, on these inputs"
        return Outcome.UNPROVEN, f"{why}: {differs}"
    for settings in plan.by_target[target]:
        before, after = said[_ORIGINAL, settings, False], said[target, settings, False]
        where = f"on {target}{_named(settings)}"
        if problem := _problem(before):
            return Outcome.UNPROVEN, f"the original{_named(settings)}: {problem}"
        if problem := _problem(after):
            return Outcome.UNPROVEN, f"{where}: {problem}"
        if differs := _differs(before, after):
            return Outcome.WRONG, f"{where}: {differs}"
        if differs := _differs(original, before):
            why = "the original's own result depends on its configuration, on these inputs"
            return Outcome.UNPROVEN, f"{why}:{_named(settings)}, {differs}"
    return Outcome.PROVEN, ""


@dataclass(frozen=True)
class _Written:
    """The contents that an interpreter wrote to one buffer; ``places`` is a digest, ``values``
    base64."""

    type: str
    count: int
    places: str
    values: str

    def __post_init__(self) -> None:
        if self.type not in ELEMENTS or self.count < 0:
            raise FormError(f"{self.count} of {self.type!r:.40} were not written")
        base64.b64decode(self.values, validate=True)


def _formed(answer: Mapping[str, object]) -> dict[str, object]:
    """The answer of the library's process, if it has the form of one; else why it is unknown."""
    if problem := _problem(answer):
        return {"unknown": problem}
    try:
        written = read(dict[str, _Written], answer.get("written"))
        lines = {n: read(tuple[int, ...], answer.get(n)) for n in ("lines", "all_lines")}
    except ValueError as error:
        return {"unknown": f"its process answered in no form that is known: {error}"}
    return {"written": {name: asdict(own) for name, own in written.items()}, **lines}


def _named(settings: Settings) -> str:
    return "".join(f" {name}={value}" for name, value in settings)


def _problem(answer: Answer) -> str:
    return str(answer.get("error") or answer.get("unknown") or "")


def _differs(left: Answer, right: Answer) -> str:
    """How, or '' where they wrote the same but for the rounding of sums."""
    for number, name in enumerate(sorted({*left["written"], *right["written"]})):
        a, b = left["written"].get(name), right["written"].get(name)
        if a is None or b is None:
            return f"'{name}' is written by one of them alone"
        if (a["count"], a["places"]) != (b["count"], b["places"]):
            if a["count"] != b["count"]:
                return f"{b['count']} elements of '{name}' are written, expected {a['count']}"
            return f"other elements of '{name}' are written"
        found = differing(number, name, ELEMENTS[a["type"]], _content(a), _content(b))
        if found is not None and found.kind is not Judged.ROUNDED:
            return str(found)
    return ""


def _content(written: Answer) -> Content:
    data = base64.b64decode(written["values"])
    return Content(len(data), hashlib.sha256(data).hexdigest(), data)


def _worth(answer: Answer) -> tuple[Outcome, str] | None:
    """The outcome where a result is mostly not finite, for such values agree with anything."""
    for name, written in answer["written"].items():
        element = ELEMENTS[written["type"]]
        values = element.values(_content(written).data or b"")
        if element.is_float and np.isfinite(values).mean() < 0.5:
            return Outcome.UNPROVEN, f"most of '{name}' is not finite on these inputs"
    return None


def _coverage(said: Sequence[Answer]) -> Coverage | None:
    lines = {line for answer in said for line in answer.get("lines", ())}
    total = {line for answer in said for line in answer.get("all_lines", ())}
    if not total:
        return None
    return Coverage(lines=len(lines), lines_total=len(total), branches=0, branches_total=0)
