"""A library's ``@triton.jit`` functions compiled for AMD targets, over their configurations.

The library is imported, and so all of it happens in the jail: a process there imports and
compiles, and answers in lines of JSON. Nothing is run; whether results are right is not asked.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from portkern.errors import WorkerError
from portkern.evaluator.jailed_process import JailedProcesses, readable
from portkern.port import source_text
from portkern.port.library import Library
from portkern.port.triton_infer import Constant, Inference, infer
from portkern.port.triton_source import TritonConfig, TritonKernel
from portkern.sandbox import session
from portkern.spec.occupancy import Occupancy, occupancy
from portkern.spec.target import AmdLimits, Target
from portkern.worker.protocol import Execute

#: The worker's, found by name: the core imports no backend.
_WORKER = "portkern.backends.triton.library_functions"
#: A kernel without configurations of its own is compiled as Triton would by default.
_DEFAULT = TritonConfig({}, {"num_warps": 4})
#: How often a new process goes on after one whose compiler crashed, or did not come to an end.
_MOST_CRASHES = 50


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
class _Request:
    number: int
    path: str
    kernel: str
    target: str
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
    """Every kernel, for every target, over at most so many of its configurations each;
    ``timeout_s`` is for all together, ``each_s`` the processor time of one compilation.

    Raises WorkerError where this machine cannot contain a worker.
    """
    asked: list[tuple[TritonKernel, TritonConfig, Target, Inference]] = []
    answers: list[TritonResult] = []
    known: dict[str, Mapping[str, Inference]] = {}
    for kernel in library.triton if kernels is None else kernels:
        types = known.setdefault(str(kernel.path), _inferred(library.root / kernel.path))
        for target in targets:
            for config in kernel.configs[:most_configs] or (_DEFAULT,):
                answer = _without_compiling(kernel, config, target, types)
                if isinstance(answer, TritonResult):
                    answers.append(answer)
                else:
                    asked.append((kernel, config, target, answer))
    requests = [_request(n, *parts) for n, parts in enumerate(asked)]
    made = _run(library.root, requests, timeout_s, each_s) if requests else {}
    for request, (kernel, config, target, inference) in zip(requests, asked, strict=True):
        said = made.get(request.number, {"unknown": "the time for this library was over"})
        answers.append(_result(said, kernel, config, target, inference))
    order = {(str(k.path), k.name): n for n, k in enumerate(library.triton)}
    return tuple(sorted(answers, key=lambda a: (order.get((a.path, a.kernel), 0), a.target)))


def _inferred(file: Path) -> Mapping[str, Inference]:
    source = source_text.read(file)
    if isinstance(source, source_text.Unreadable):
        return {}
    try:
        return infer(source.text)
    except (SyntaxError, ValueError, RecursionError):
        return {}


def _without_compiling(
    kernel: TritonKernel, config: TritonConfig, target: Target, types: Mapping[str, Inference]
) -> TritonResult | Inference:
    """What needs no compiler to be known; else what it is compiled for."""

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


def _request(
    number: int, kernel: TritonKernel, config: TritonConfig, target: Target, types: Inference
) -> _Request:
    constants = dict(types.constants)
    constants |= {name: True for name in kernel.heuristics if name in constants}
    signature = dict(types.signature)
    for name, value in config.values.items():
        if name in constants or name in signature:
            constants[name] = value
            signature.pop(name, None)
    path = str(kernel.path)
    return _Request(number, path, kernel.name, target.name, signature, constants, config.knobs)


# ---- the process in the jail ---------------------------------------------------------------------


def _run(
    root: Path, requests: Sequence[_Request], timeout_s: float, each_s: int
) -> dict[int, dict[str, object]]:
    """What the worker said of each. One that crashes the compiler is named; the rest goes on."""
    answers: dict[int, dict[str, object]] = {}
    top, until = _top(root), time.monotonic() + timeout_s
    with readable(top) as seen, tempfile.TemporaryDirectory(prefix="portkern-triton-") as place:
        Path(place).chmod(0o755)
        file = Path(place) / "requests.json"
        try:
            with JailedProcesses((seen, Path(place))) as processes:
                for _ in range(_MOST_CRASHES):
                    wanted = [r.number for r in requests if r.number not in answers]
                    left_s = until - time.monotonic()
                    if not wanted or left_s <= 0:
                        break
                    inside = seen / root.relative_to(top)
                    _write(file, inside, requests, wanted, each_s)
                    outcome = processes.run(_execute(file, requests[0].target, left_s)).program
                    began = _read(outcome.output, answers)
                    if outcome.status is None:
                        break
                    if began is None:
                        if outcome.status != 0:
                            reason = outcome.output.strip().splitlines()[-1:] or ["it said nothing"]
                            raise WorkerError(f"Triton's process ended: {reason[0][:300]}")
                        break
                    late = outcome.status == -signal.SIGPROF
                    crash = f"the compiler crashed (status {outcome.status})"
                    why = (
                        f"its compilation took more than {each_s} s of processor time"
                        if late
                        else crash
                    )
                    answers[began] = {"unknown" if late else "error": why}
        finally:
            session.close_servers()
    return answers


def _execute(file: Path, target: str, timeout_s: float) -> Execute:
    argv = (sys.executable, "-m", _WORKER, str(file))
    return Execute(argv, str(file.parent), target, "hip", (), timeout_s)


def _write(
    file: Path, root: Path, requests: Sequence[_Request], wanted: Sequence[int], each_s: int
) -> None:
    asked: dict[str, object] = {
        "root": str(root),
        "each_s": each_s,
        "wanted": wanted,
        "requests": [asdict(r) for r in requests],
    }
    file.write_text(json.dumps(asked), encoding="utf-8")
    file.chmod(0o644)


def _top(root: Path) -> Path:
    """The folder that the library is imported from: above its outermost package."""
    top = root
    while (top / "__init__.py").is_file() and top != top.parent:
        top = top.parent
    # All of an environment is not the library's; its packages can be read in the jail anyway.
    return top if os.access(top, os.R_OK) else root


def _read(output: str, answers: dict[int, dict[str, object]]) -> int | None:
    """The request that was begun and not answered."""
    began: int | None = None
    for said in _lines(output):
        number, begins = said.get("number"), said.get("begins")
        if isinstance(begins, int):
            began = begins
        elif isinstance(number, int):
            answers.setdefault(number, said)
            began = None
    return began


def _lines(output: str) -> Iterator[dict[str, object]]:
    for line in output.splitlines():
        if line.startswith('{"'):
            try:
                said = json.loads(line)
            except ValueError:
                continue
            if isinstance(said, dict):
                yield said


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
    used = _resources(facts, target)
    limits = target.limits
    outcome, why = TritonOutcome.COMPILED, ""
    if isinstance(limits, AmdLimits) and used.lds_bytes > limits.lds_block_bytes:
        outcome = TritonOutcome.REFUSED
        why = (
            f"{used.lds_bytes} bytes of LDS, and a block of {target.name} has at most "
            f"{limits.lds_block_bytes}: a smaller tile, or fewer num_stages"
        )
    return TritonResult(*place, outcome, why, used, assumed, types.signature)


def _resources(facts: Mapping[str, object], target: Target) -> TritonResources:
    def number(name: str) -> int:
        value = facts.get(name)
        return value if isinstance(value, int) else 0

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
