"""The ways to CPUs and to OpenCL: each kernel's source, written and proven, as a port's result."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from portkern.errors import BackendUnavailable, ConfigError, PortkernError
from portkern.port import reading
from portkern.port.emit import cpu, opencl
from portkern.port.emit.context import Context
from portkern.port.emit.emitted import Emitted
from portkern.port.emit.limits import Refused
from portkern.port.emit_proof import EmittedFile, EmittedProver
from portkern.port.kernel_port import NOT_ASKED, Coverage, KernelPort, ProofLine, Resources
from portkern.port.library import Library, SourceFile
from portkern.port.proof import KernelProof, Limits, Outcome, ProofSource
from portkern.port.proof.case import Case, read_cases
from portkern.port.proof.element import element_of
from portkern.port.proof.infer import SCALES, propose
from portkern.port.proof.texts import SourceTexts
from portkern.port.request import PortRequest
from portkern.port.result import FileResult, PortResult
from portkern.port.syntax import Kernel
from portkern.records import atomic_write

WAYS = ("cpu", "opencl")
_WRITTEN = re.compile(r"-?\d+|true|false")
#: A file that is done, how many there are, and a line about it.
Done = Callable[[int, int, str], None]


def run(request: PortRequest, show: Done = lambda *_: None) -> PortResult:
    """Writes ``<kernel>.cpp``, or ``<kernel>.cl`` and its launcher, below ``request.out`` where the
    source lies below the library. Raises ConfigError for a place that has no kernels."""
    began = time.monotonic()
    avoid = (*request.avoid, request.out)
    read = reading.read(request.path, avoid=avoid, include=request.include)
    files = [file for file in (*read.sources, *read.headers) if file.kernels]
    if not files:
        raise ConfigError(f"No kernels in {request.path}: give a CUDA or HIP file, or a folder")
    cases = read_cases(request.case) if request.case else {}
    ports: list[KernelPort] = []
    with ThreadPoolExecutor(max(request.jobs, 1)) as pool:
        asked = [(file, way) for file in files for way in request.emitted]
        made = pool.map(lambda item: _ported(request, read, item[0], item[1], cases), asked)
        for done, ((file, way), own) in enumerate(zip(asked, made, strict=True), 1):
            ports += own
            proven = sum(port.proven for port in own)
            text = f"{file.path} → {way}: {proven} of {len(own)} proven"
            show(done, len(asked), f"[{done}/{len(asked)}] {text}")
    return PortResult(
        name=read.root.name if request.path.is_dir() else request.path.name,
        root=read.root,
        tree=request.out,
        to=", ".join(request.emitted),
        targets=request.emitted,
        files=tuple(FileResult(str(file.path), len(file.kernels), 0) for file in files),
        ports=tuple(ports),
        problems=tuple(map(str, read.problems)),
        seconds=time.monotonic() - began,
    )


def _ported(
    request: PortRequest, read: Library, file: SourceFile, way: str, cases: Mapping[str, Case]
) -> list[KernelPort]:
    """Every kernel of one source."""
    texts = SourceTexts(_source(request, read, file))
    context = Context(texts)
    folder = request.out / file.path.parent
    emitted: list[EmittedFile] = []
    ports: dict[tuple[str, int], KernelPort] = {}
    for kernel in texts.own.kernels:
        made = emit(kernel, texts, context, way, cases.get(kernel.name))
        if isinstance(made, Refused):
            line = ProofLine(outcome=Outcome.NEEDS_HUMAN, why=str(made))
            ports[kernel.name, kernel.line] = _port(file, kernel, way, line, str(made))
        else:
            emitted.append(EmittedFile(made, write(made, way, folder)))
    for kernel, line, reason, lacking in _proofs(request, texts, way, cases, emitted):
        ports[kernel.name, kernel.line] = _port(file, kernel, way, line, reason, lacking=lacking)
    return list(ports.values())


def _source(request: PortRequest, read: Library, file: SourceFile) -> ProofSource:
    include, defines = read.settings(file.path)
    folders = tuple(folder.resolve() for folder in (*request.include, *include))
    hip = re.search(r"\bhip/hip_|hipLaunchKernel|\bhipMalloc", file.text) is not None
    return ProofSource(
        read.root / file.path,
        "hip" if hip else "cuda",
        include=tuple(dict.fromkeys(folders)),
        defines=tuple(dict.fromkeys((*request.defines, *defines))),
    )


def emit(
    kernel: Kernel, texts: SourceTexts, context: Context, way: str, case: Case | None = None
) -> Emitted | Refused:
    given = template_arguments(kernel, texts, case)
    if way == "cpu":
        return cpu.emit(kernel, texts, context, given)
    return opencl.emit(kernel, texts, context, given)


def template_arguments(
    kernel: Kernel, texts: SourceTexts, case: Case | None = None
) -> list[tuple[str, ...]]:
    """One list for each instance that the text launches, as far as it spells them; else one."""
    if not kernel.template:
        return []
    given = [
        launch.template_arguments
        for launch in texts.own.launches
        if launch.kernel == kernel.name
        and len(launch.template_arguments) == len(kernel.template)
        and all(_WRITTEN.fullmatch(a) or element_of(a, {}) for a in launch.template_arguments)
    ]
    proposed = case or propose(kernel, texts, SCALES[0], warp=32)
    if not given and isinstance(proposed, Case):
        given = [proposed.template]
    return list(dict.fromkeys(given))


def write(emitted: Emitted, way: str, folder: Path) -> Path:
    """The file that is built or launched."""
    name = emitted.kernel.name
    if way == "cpu":
        atomic_write.write(folder / cpu.HEADER, cpu.template())
        atomic_write.write(folder / f"{name}.cpp", emitted.text)
        return folder / f"{name}.cpp"
    atomic_write.write(folder / f"{name}.cl", emitted.text)
    atomic_write.write(folder / f"{name}.py", opencl.launcher(emitted))
    return folder / f"{name}.py"


def _proofs(
    request: PortRequest,
    texts: SourceTexts,
    way: str,
    cases: Mapping[str, Case],
    emitted: Sequence[EmittedFile],
) -> list[tuple[Kernel, ProofLine, str, bool]]:
    """Each with why it is not built, and whether this machine lacks what builds it."""
    kernels = [file.emitted.kernel for file in emitted]
    if not request.prove or not emitted:
        return [(kernel, ProofLine(outcome=NOT_ASKED), "", False) for kernel in kernels]
    limits = Limits(run_s=min(request.timeout_s, Limits.run_s), build_s=request.timeout_s)
    with tempfile.TemporaryDirectory(prefix="portkern-port-") as name:
        workdir = Path(name)
        workdir.chmod(0o755)  # in the jail, root's processes are nobody's
        try:
            with EmittedProver(texts, way, cases, workdir, limits) as prover:
                proofs = list(prover.prove(emitted))
                failed = prover.not_built
        except BackendUnavailable as error:
            line = ProofLine(outcome=Outcome.UNPROVEN, why=str(error))
            return [(kernel, line, str(error), True) for kernel in kernels]
        except PortkernError as error:
            line = ProofLine(outcome=Outcome.UNPROVEN, why=str(error))
            return [(kernel, line, "", False) for kernel in kernels]
    return [
        (kernel, _line(proof), failed.get(kernel.name, ""), False)
        for kernel, proof in zip(kernels, proofs, strict=True)
    ]


def _line(proof: KernelProof) -> ProofLine:
    return ProofLine(
        outcome=str(proof.outcome),
        why=proof.why,
        inputs=proof.inputs,
        coverage=Coverage(**asdict(proof.coverage)) if proof.coverage else None,
        findings=tuple(map(str, proof.findings)),
        original_findings=tuple(map(str, proof.original_findings)),
    )


def _port(
    file: SourceFile,
    kernel: Kernel,
    way: str,
    proof: ProofLine,
    not_built: str,
    *,
    lacking: bool = False,
) -> KernelPort:
    return KernelPort(
        key="",
        path=file.path.as_posix(),
        line=kernel.line,
        kernel=kernel.name,
        target=way,
        width=0,
        resources=None if not_built else Resources(),
        not_built=not_built,
        lacking=lacking,
        proof=proof,
    )
