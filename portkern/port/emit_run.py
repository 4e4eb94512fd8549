"""The ways to CPUs and to OpenCL: each kernel's source, written and proven, as a port's result."""

from __future__ import annotations

import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from portkern.cuda_source.syntax import SourceKernel
from portkern.cuda_source.tree import TooLong
from portkern.errors import BackendUnavailable, ConfigError, PortkernError
from portkern.port import reading
from portkern.port.emit import cpu, opencl
from portkern.port.emit.context import EmitContext
from portkern.port.emit.emitted import Emitted
from portkern.port.emit.limits import RefusedEmission
from portkern.port.emit_program import EmittedFile
from portkern.port.emit_proof import EmittedProver
from portkern.port.kernel_port import (
    NOT_ASKED,
    Coverage,
    KernelPort,
    PortFile,
    PortResources,
    ProofLine,
)
from portkern.port.key import Keys
from portkern.port.library import Library, SourceFile
from portkern.port.pool import pool
from portkern.port.proof import KernelProof, Outcome, ProofLimits, ProofSource
from portkern.port.proof.case import ProofCase, read_cases
from portkern.port.proof.element import element_of
from portkern.port.proof.infer import SCALES, propose
from portkern.port.proof.texts import SourceTexts
from portkern.port.proving import CASES
from portkern.port.request import PortRequest
from portkern.port.result import FileResult, PortResult
from portkern.records import atomic_write
from portkern.spec.safe_name import real_path

WAYS = ("cpu", "opencl")
_WRITTEN = re.compile(r"-?\d+|true|false")
#: A file that is done, how many there are, and a line about it.
Done = Callable[[int, int, str], None]


def run(request: PortRequest, folder: Path, show: Done = lambda *_: None) -> PortResult:
    """Writes ``<kernel>.cpp``, or ``<kernel>.cl`` and its launcher, below ``request.out`` where the
    source lies below the library, and what is known into ``folder``, from where it goes on. Raises
    ConfigError for a place that has no kernels."""
    began = time.monotonic()
    avoid = (*request.avoid, request.out, folder)
    read = reading.read(request.path, avoid=avoid, include=request.include)
    files = [file for file in (*read.sources, *read.headers) if file.kernels]
    if not files:
        raise ConfigError(f"No kernels in {request.path}: give a CUDA or HIP file, or a folder")
    records = PortFile(folder)
    emitting = _Emitting(request, read, files, folder)
    known: dict[str, list[KernelPort]] = {}
    for port in () if request.fresh else records.read()[0]:
        known.setdefault(port.key, []).append(port)
    ports: list[KernelPort] = []
    reused = 0
    asked = [(file, way) for file in files for way in request.emitted]
    with pool(request.jobs) as threads:
        made = threads.map(lambda item: emitting.ported(item[0], item[1], known), asked)
        for done, ((file, way), own) in enumerate(zip(asked, made, strict=True), 1):
            ports += own
            if own and own[0].key in known:
                reused += len(own)
            else:
                records.append(own)
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
        reused=reused,
        seconds=time.monotonic() - began,
    )


class _Emitting:
    """All kernels of a library, file by file."""

    def __init__(
        self, request: PortRequest, read: Library, files: Sequence[SourceFile], folder: Path
    ) -> None:
        self._request, self._read, self._folder = request, read, folder
        self._cases = read_cases(request.case) if request.case else {}
        self._keys = Keys(read, {}, request)
        #: Files that define a kernel, by the folder that it is written to.
        self._named = Counter(
            (file.path.parent, name)
            for file in files
            for name in {kernel.name for kernel in file.kernels}
        )

    def ported(
        self, file: SourceFile, way: str, known: Mapping[str, list[KernelPort]]
    ) -> list[KernelPort]:
        """Ports every kernel of one source. What was written before is written again: it costs
        little."""
        request = self._request
        texts = SourceTexts(_source(request, self._read, file))
        context = EmitContext(texts)
        key = self._keys.of_emitted(file.path, texts.whole, way)
        emitted: list[EmittedFile] = []
        ports: dict[tuple[str, int], KernelPort] = {}
        for kernel in texts.own.kernels:
            made = emit(kernel, texts, context, way, self._cases.get(kernel.name))
            if isinstance(made, Emitted) and any(
                e.emitted.kernel.name == kernel.name for e in emitted
            ):
                made = RefusedEmission("a second kernel of this name in its file", kernel.line)
            if isinstance(made, RefusedEmission):
                line = ProofLine(outcome=Outcome.NEEDS_HUMAN, why=str(made))
                ports[kernel.name, kernel.line] = _port(file, kernel, way, line, str(made), key)
            else:
                place = self._place(file, kernel.name)
                emitted.append(EmittedFile(made, write(made, way, place)))
        if key in known:
            return known[key]
        keep = self._folder / CASES / file.path
        for kernel, line, reason, lacking in _proofs(
            request, texts, way, self._cases, emitted, keep
        ):
            ports[kernel.name, kernel.line] = _port(
                file, kernel, way, line, reason, key, lacking=lacking
            )
        return list(ports.values())

    def _place(self, file: SourceFile, name: str) -> Path:
        """A folder of the file's own where another file beside it has such a kernel."""
        folder = self._request.out / file.path.parent
        shared = self._named[file.path.parent, name] > 1
        return folder / file.path.stem if shared else folder


def _source(request: PortRequest, read: Library, file: SourceFile) -> ProofSource:
    include, defines = read.settings(file.path)
    folders = tuple(real_path(folder) for folder in (*request.include, *include))
    hip = re.search(r"\bhip/hip_|hipLaunchKernel|\bhipMalloc", file.text) is not None
    return ProofSource(
        read.root / file.path,
        "hip" if hip else "cuda",
        include=tuple(dict.fromkeys(folders)),
        defines=tuple(dict.fromkeys((*request.defines, *defines))),
        whole=(read.root, *request.include),
    )


def emit(
    kernel: SourceKernel,
    texts: SourceTexts,
    context: EmitContext,
    way: str,
    case: ProofCase | None = None,
) -> Emitted | RefusedEmission:
    given = template_arguments(kernel, texts, case)
    if way == "cpu":
        return cpu.emit(kernel, texts, context, given)
    return opencl.emit(kernel, texts, context, given)


def template_arguments(
    kernel: SourceKernel, texts: SourceTexts, case: ProofCase | None = None
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
    if not given and isinstance(proposed, ProofCase):
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
    cases: Mapping[str, ProofCase],
    emitted: Sequence[EmittedFile],
    keep: Path,
) -> list[tuple[SourceKernel, ProofLine, str, bool]]:
    """The proofs of all, each with why it is not built, and whether this machine lacks what builds
    it."""
    kernels = [file.emitted.kernel for file in emitted]
    if not request.prove or not emitted:
        return [(kernel, ProofLine(outcome=NOT_ASKED), "", False) for kernel in kernels]
    limits = ProofLimits(run_s=min(request.timeout_s, ProofLimits.run_s), build_s=request.timeout_s)
    with tempfile.TemporaryDirectory(prefix="portkern-port-") as name:
        workdir = Path(name)
        workdir.chmod(0o755)  # in the jail, root's processes are nobody's
        try:
            with EmittedProver(texts, way, cases, workdir, limits, keep) as prover:
                proofs = list(prover.prove(emitted))
                failed = prover.not_built
        except BackendUnavailable as error:
            line = ProofLine(outcome=Outcome.UNPROVEN, why=str(error))
            return [(kernel, line, str(error), True) for kernel in kernels]
        except (PortkernError, TooLong) as error:
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
        counterexample=str(proof.counterexample or ""),
        command=proof.command,
    )


def _port(
    file: SourceFile,
    kernel: SourceKernel,
    way: str,
    proof: ProofLine,
    not_built: str,
    key: str,
    *,
    lacking: bool = False,
) -> KernelPort:
    return KernelPort(
        key=key,
        path=file.path.as_posix(),
        line=kernel.line,
        kernel=kernel.name,
        target=way,
        width=0,
        resources=None if not_built else PortResources(),
        not_built=not_built,
        lacking=lacking,
        proof=proof,
    )
