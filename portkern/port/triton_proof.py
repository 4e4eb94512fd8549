"""Shows that a library's Triton kernels do on a target what they do on the original's GPU.

Both are run in Triton's interpreter, which knows no number of warps: on NVIDIA's GPU as the library
has them, and on the target with what the library itself does there and with the configurations that
compile for it.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from portkern.port.kernel_port import ProofLine
from portkern.port.library import Library
from portkern.port.proof import Outcome
from portkern.port.proof.guesses import Guess, unsettled
from portkern.port.triton_answers import (
    Answer,
    coverage,
    differs,
    formed,
    of_original,
    problem,
    worth,
)
from portkern.port.triton_case import Grid, Scalar, TritonCase, launches
from portkern.port.triton_host import calls_of
from portkern.port.triton_infer import Constant, Inference
from portkern.port.triton_library import (
    TritonOutcome,
    TritonResult,
    inferred,
    signature_with,
)
from portkern.port.triton_source import Setting, TritonConfig, TritonKernel
from portkern.port.triton_worker import WorkerRequest, answers
from portkern.spec.foreign_text import python_tree
from portkern.spec.safe_name import short
from portkern.spec.target import Target

#: The worker's, found by name: the core imports no backend.
_WORKER = "portkern.backends.triton.library_interpreter"
_ORIGINAL = "sm_90"
_SEED = 17
#: The most ways of a kernel's launches and its configurations' block sizes, together.
_MOST_WAYS = 16
_EACH_S = 20
_LEAST_COVERED = 0.8

Settings = tuple[tuple[str, Setting], ...]
#: The number of a launch in the kernel's file, and the settings of a configuration.
Way = tuple[int, Settings]


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
    """``runs`` are numbers of requests: by target, way, and whether backwards."""

    cases: Mapping[Way, TritonCase]
    guesses: Sequence[Guess]
    by_target: Mapping[str, list[Way]]
    runs: dict[tuple[str, Way, bool], int] = field(default_factory=dict)

    @property
    def firsts(self) -> list[Way]:
        """The first way of each launch."""
        firsts: dict[int, Settings] = {}
        for launch, settings in self.cases:
            firsts.setdefault(launch, settings)
        return [*firsts.items()]


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
        made |= {number: formed(answer, "written") for number, answer in said.items()}
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
    try:
        cases, guesses = _cases(python_tree(file.read_text("utf-8", "replace")), kernel, types)
    except (SyntaxError, RecursionError, ValueError, OverflowError) as error:
        return f"its launches cannot be read: {short(str(error))[1:-1]}"
    by_target = {
        target.name: [way for way in cases if way[1] in _of_compiled(kernel, target, compiled)]
        or list(cases)
        for target in targets
    }
    plan = _Planned(cases, guesses, by_target)
    wanted = [(_ORIGINAL, way, False) for way in cases]
    wanted += [(_ORIGINAL, way, True) for way in plan.firsts]
    wanted += [(name, way, False) for name, own in by_target.items() for way in own]
    for target_name, way, backwards in wanted:
        plan.runs[target_name, way, backwards] = len(requests)
        place = len(requests), str(kernel.path), kernel.name, kernel.line, target_name
        requests.append(_run(place, types, cases[way], dict(way[1]), backwards))
    return plan


def _cases(
    module: ast.Module, kernel: TritonKernel, types: Inference
) -> tuple[dict[Way, TritonCase], list[Guess]]:
    configs = kernel.configs or (TritonConfig({}, {}),)
    settings = list(dict.fromkeys(map(_settings, configs)))
    found = launches(module, kernel.name, _MOST_WAYS)
    every = [(number, chosen) for number in range(len(found)) for chosen in settings]
    cases = {way: found[way[0]].case(types, dict(way[1]), kernel) for way in every[:_MOST_WAYS]}
    guesses = [guess for case in cases.values() for guess in case.guesses]
    count = len(settings) * max(len(calls_of(module, kernel.name)), 1)
    if count > _MOST_WAYS:
        guesses.append(Guess(f"{count} launches and block settings", f"{_MOST_WAYS} of them"))
    return cases, guesses


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
    place: tuple[int, str, str, int, str],
    types: Inference,
    case: TritonCase,
    settings: Mapping[str, Setting],
    backwards: bool,
) -> _Run:
    signature = {
        name: kind
        for name, kind in signature_with(types, TritonConfig(settings, {})).items()
        if name not in case.constants
    }
    return _Run(*place, signature, case.constants, case.scalars, case.grid, backwards)


# ---- what it came to


def _judged(
    plan: _Planned | str, target: str, made: Mapping[int, Mapping[str, object]]
) -> ProofLine:
    if isinstance(plan, str):
        return ProofLine(outcome=Outcome.UNPROVEN, why=plan)
    over = {"unknown": "the time for this library was over"}
    said = {key: made.get(number, over) for key, number in plan.runs.items()}
    covered = coverage([answer for key, answer in said.items() if key[0] == _ORIGINAL])
    outcome, why = _outcome(plan, target, said)
    inputs = str(next(iter(plan.cases.values())))
    if outcome is Outcome.PROVEN:
        ways = len(plan.by_target[target])
        parts = [f"{ways} of {len(plan.cases)} launches and block settings"] if ways > 1 else []
        if covered and covered.lines < _LEAST_COVERED * covered.lines_total:
            parts.append(f"its inputs reached {covered.lines} of {covered.lines_total} lines")
        base = said[_ORIGINAL, plan.firsts[0], False]
        outcome, why = worth(base) or (outcome, "; ".join(parts))
    line = ProofLine(outcome=outcome, why=why, inputs=inputs, coverage=covered)
    if outcome is Outcome.PROVEN and (assumed := unsettled(plan.guesses)):
        return line.model_copy(update={"outcome": Outcome.UNPROVEN, "why": assumed})
    return line


def _outcome(
    plan: _Planned, target: str, said: Mapping[tuple[str, Way, bool], Answer]
) -> tuple[Outcome, str]:
    for way in plan.firsts:
        if said_of := of_original(said[_ORIGINAL, way, False], said[_ORIGINAL, way, True]):
            return Outcome.UNPROVEN, said_of
    firsts = dict(plan.firsts)
    for way in plan.by_target[target]:
        original = said[_ORIGINAL, (way[0], firsts[way[0]]), False]
        before, after = said[_ORIGINAL, way, False], said[target, way, False]
        where = f"on {target}{_named(way)}"
        if found := problem(before):
            return Outcome.UNPROVEN, f"the original{_named(way)}: {found}"
        if found := problem(after):
            return Outcome.UNPROVEN, f"{where}: {found}"
        if found := differs(before, after):
            return Outcome.WRONG, f"{where}: {found}"
        if found := differs(original, before):
            why = "the original's own result depends on its configuration, on these inputs"
            return Outcome.UNPROVEN, f"{why}:{_named(way)}, {found}"
    return Outcome.PROVEN, ""


def _named(way: Way) -> str:
    launch = f" launch {way[0] + 1}" if way[0] else ""
    return launch + "".join(f" {name}={value}" for name, value in way[1])
