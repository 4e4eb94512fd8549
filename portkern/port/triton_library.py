"""A library's ``@triton.jit`` functions compiled for AMD targets, over their configurations.

The library is imported, and so all of it happens in the jail: a process there imports and
compiles, and answers in lines of JSON. Nothing is run; whether results are right is not asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from portkern.port import source_text
from portkern.port.library import Library
from portkern.port.triton_infer import Constant, Inference, infer
from portkern.port.triton_source import TritonConfig, TritonKernel
from portkern.port.triton_worker import WorkerRequest, answers
from portkern.spec.occupancy import Occupancy, occupancy
from portkern.spec.target import AmdLimits, Target

#: The worker's, found by name: the core imports no backend.
_WORKER = "portkern.backends.triton.library_functions"
#: A kernel without configurations of its own is compiled as Triton would by default.
_DEFAULT = TritonConfig({}, {"num_warps": 4})


class TritonOutcome(StrEnum):
    COMPILED = "compiled"
    REFUSED = "refused"  # by the target's data: no launch with these knobs can run
    FAILED = "does not compile"
    HELPER = "called by other kernels"
    UNKNOWN = "not compiled"


@dataclass(frozen=True)
class TritonResources:
    vgprs: int
    agprs: int
    sgprs: int
    spills: int
    lds_bytes: int
    threads: int
    occupancy: Occupancy


@dataclass(frozen=True)
class TritonResult:
    """One kernel and configuration on one target. ``assumed`` parts of the signature had no more
    than a name to go by: a failure may be theirs."""

    kernel: str
    path: str
    line: int
    target: str
    config: TritonConfig
    outcome: TritonOutcome
    why: str = ""
    resources: TritonResources | None = None
    assumed: tuple[str, ...] = ()
    signature: Mapping[str, str] | None = None


@dataclass(frozen=True)
class _Request(WorkerRequest):
    signature: Mapping[str, str]
    constants: Mapping[str, Constant]
    knobs: Mapping[str, int]


def compile_all(
    library: Library,
    targets: Sequence[Target],
    *,
    most_configs: int = 8,
    timeout_s: float = 600.0,
    each_s: int = 30,
    kernels: Sequence[TritonKernel] | None = None,
) -> tuple[TritonResult, ...]:
    """Compiles every kernel for every target, over at most so many of its configurations each;
    ``timeout_s`` is for all together, ``each_s`` the processor time of one compilation.

    Raises WorkerError where this machine cannot contain a worker.
    """
    asked: list[tuple[TritonKernel, TritonConfig, Target, Inference]] = []
    made: list[TritonResult] = []
    known: dict[str, Mapping[str, Inference]] = {}
    for kernel in library.triton if kernels is None else kernels:
        types = known.setdefault(str(kernel.path), inferred(library.root / kernel.path))
        for target in targets:
            configs = kernel.configs[:most_configs] or (_DEFAULT,)
            for config in (*configs, *ported(configs, target)):
                answer = _without_compiling(kernel, config, target, types)
                if isinstance(answer, TritonResult):
                    made.append(answer)
                else:
                    asked.append((kernel, config, target, answer))
    requests = [_request(n, *parts) for n, parts in enumerate(asked)]
    said = answers(_WORKER, library.root, requests, timeout_s, each_s)
    for request, (kernel, config, target, inference) in zip(requests, asked, strict=True):
        answer_of = said.get(request.number, {"unknown": "the time for this library was over"})
        made.append(_result(answer_of, kernel, config, target, inference))
    order = {(str(k.path), k.name): n for n, k in enumerate(library.triton)}
    return tuple(sorted(made, key=lambda a: (order.get((a.path, a.kernel), 0), a.target)))


def inferred(file: Path) -> Mapping[str, Inference]:
    """The inferred types and constants of each function of a source; of none where it cannot be
    read."""
    source = source_text.read(file)
    if isinstance(source, source_text.UnreadableSource):
        return {}
    try:
        return infer(source.text)
    except (SyntaxError, ValueError, RecursionError):
        return {}


def _without_compiling(
    kernel: TritonKernel, config: TritonConfig, target: Target, types: Mapping[str, Inference]
) -> TritonResult | Inference:
    """The result of a kernel that needs no compiler to be known; else the types and constants to
    compile it for."""

    def answer(outcome: TritonOutcome, why: str) -> TritonResult:
        place = (kernel.name, str(kernel.path), kernel.line, target.name)
        return TritonResult(*place, config, outcome, why)

    if kernel.helper:
        return answer(TritonOutcome.HELPER, "compiled as part of the kernels that call it")
    refusal = refused(config, target)
    if refusal:
        return answer(TritonOutcome.REFUSED, refusal)
    if kernel.name not in types:
        return answer(TritonOutcome.UNKNOWN, "its source cannot be read")
    return types[kernel.name]


def refused(config: TritonConfig, target: Target) -> str:
    """Why no launch with these knobs can run on the target, from its data alone; '' if one may."""
    limits = target.limits
    if not isinstance(limits, AmdLimits) or target.warp is None:
        return f"{target.name} is not AMD's; Triton libraries are compiled for gfx targets"
    warps = config.knobs.get("num_warps", 4)
    if warps * target.warp > limits.threads_block:
        most = limits.threads_block // target.warp
        return (
            f"num_warps={warps} is {warps * target.warp} threads on waves of {target.warp}, and "
            f"{target.name} has {limits.threads_block} per block: at most num_warps={most}"
        )
    if warps < 1 or warps & (warps - 1):
        return f"num_warps={warps}, expected a power of two"
    if config.knobs.get("num_ctas", 1) != 1:
        return f"num_ctas={config.knobs['num_ctas']}: {target.name} has no clusters of blocks"
    if config.knobs.get("num_stages", 1) < 1:
        return f"num_stages={config.knobs['num_stages']}, expected 1 or more on AMD"
    return ""


def ported(configs: Sequence[TritonConfig], target: Target) -> tuple[TritonConfig, ...]:
    """The configurations to add on a target: those that no launch there can have, with the
    nearest knobs that one can, unless that is among them already."""
    limits = target.limits
    if not isinstance(limits, AmdLimits) or target.warp is None:
        return ()
    most = limits.threads_block // target.warp
    made: list[TritonConfig] = []
    for config in configs:
        knobs = dict(config.knobs)
        knobs["num_warps"] = min(knobs.get("num_warps", 4), most)
        knobs |= {"num_ctas": 1} if "num_ctas" in knobs else {}
        if "num_stages" in knobs:
            knobs["num_stages"] = max(knobs["num_stages"], 1)
        other = TritonConfig(config.values, knobs)
        if refused(config, target) and other not in (*configs, *made):
            made += [] if refused(other, target) else [other]
    return tuple(made)


def _request(
    number: int, kernel: TritonKernel, config: TritonConfig, target: Target, types: Inference
) -> _Request:
    constants, signature = constants_with(kernel, types, config), signature_with(types, config)
    path = str(kernel.path)
    place = number, path, kernel.name, kernel.line, target.name
    return _Request(*place, signature, constants, config.knobs)


def constants_with(
    kernel: TritonKernel, types: Inference, config: TritonConfig
) -> dict[str, Constant]:
    """The constants of the kernel, with the values that a configuration gives."""
    constants = dict(types.constants)
    constants |= {name: True for name in kernel.heuristics if name in constants}
    known = constants.keys() | types.signature.keys()
    return constants | {n: value for n, value in config.values.items() if n in known}


def signature_with(types: Inference, config: TritonConfig) -> dict[str, str]:
    """The types of parameters without those that a configuration makes constants."""
    return {name: kind for name, kind in types.signature.items() if name not in config.values}


def _result(
    said: Mapping[str, object],
    kernel: TritonKernel,
    config: TritonConfig,
    target: Target,
    types: Inference,
) -> TritonResult:
    place = (kernel.name, str(kernel.path), kernel.line, target.name, config)
    assumed = tuple(a for a in types.assumed if a.split("=")[0] not in config.values)
    if "unknown" in said:
        return TritonResult(*place, TritonOutcome.UNKNOWN, str(said["unknown"]), assumed=assumed)
    facts = said.get("resources")
    if not isinstance(facts, dict):
        why = str(said.get("error", "no answer"))
        outcome = TritonOutcome.FAILED
        if why.startswith(("ModuleNotFoundError", "ImportError", "SystemExit")):
            outcome, why = TritonOutcome.UNKNOWN, f"the library cannot be imported: {why}"
        return TritonResult(*place, outcome, why, assumed=assumed, signature=types.signature)
    used = resources(facts, target)
    why = too_large(used.lds_bytes, target)
    outcome = TritonOutcome.REFUSED if why else TritonOutcome.COMPILED
    return TritonResult(*place, outcome, why, used, assumed, types.signature)


def too_large(lds_bytes: int, target: Target) -> str:
    """Why no block of the target has so much LDS, or ''."""
    limits = target.limits
    if not isinstance(limits, AmdLimits) or lds_bytes <= limits.lds_block_bytes:
        return ""
    return (
        f"{lds_bytes} bytes of LDS, and a block of {target.name} has at most "
        f"{limits.lds_block_bytes}: a smaller tile, or fewer num_stages"
    )


def resources(facts: Mapping[str, object], target: Target) -> TritonResources:
    def number(name: str) -> int:
        value = facts.get(name)
        return value if type(value) is int and 0 <= value < 1 << 32 else 0

    waves = occupancy(
        target,
        registers=number("vgprs"),
        shared_bytes=number("lds_bytes"),
        threads=max(number("threads"), 1),
        agprs=number("agprs"),
    )
    return TritonResources(
        number("vgprs"),
        number("agprs"),
        number("sgprs"),
        number("spills"),
        number("lds_bytes"),
        number("threads"),
        waves,
    )
