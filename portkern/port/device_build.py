"""A HIP or CUDA file becomes a real object for a GPU, and its kernels are held against the limits.

What this machine lacks is told apart from what is wrong with the code: the first is not the
port's fault. Objects are kept by their content and by that of every header they included.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Literal

from portkern.errors import BackendUnavailable, BuildError, BuildTimeout, ConfigError
from portkern.evaluator.jailed_compilers import JailedCompilers
from portkern.port import absent_headers
from portkern.records import atomic_write
from portkern.spec import registry
from portkern.spec.backend import Missing
from portkern.spec.file_build import FileBuild, FileBuilder, FileObject, FirstHeaders, KernelObject
from portkern.spec.foreign_text import json_value
from portkern.spec.occupancy import Occupancy, occupancy
from portkern.spec.safe_name import real_path
from portkern.spec.target import AmdLimits, NvidiaLimits, Target
from portkern.toolchain.compiler_log import ERROR, CompilerMessage, messages
from portkern.toolchain.run_tool import cache_root
from portkern.toolchain.source_view import SourceView

#: ``machine``: a header or a tool is not here; ``code``: the compiler rejects what is written;
#: ``link``: device code of another file is called; ``time``: the compiler did not come to an end.
Cause = Literal["machine", "code", "link", "time"]
_UNDEFINED = re.compile(r"undefined (?:\w+ )?symbol: ([^\n]+)")
_FOLDER = "port-objects"


@dataclass(frozen=True)
class KernelResources:
    """Registers of a thread (``sgprs``: of a wave, on AMD), bytes of a block (``lds``, which is
    shared memory) or of a thread (``scratch``). ``occupancy`` is at a block of ``threads``, without
    dynamic LDS; ``exceeded`` says which limits no launch can keep, ``warnings`` what costs time."""

    kernel: str
    symbol: str
    vgprs: int
    sgprs: int | None
    agprs: int
    lds_bytes: int
    scratch_bytes: int
    vgpr_spills: int
    sgpr_spills: int
    threads: int
    wave: int
    occupancy: Occupancy
    exceeded: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def spills(self) -> int:
        return self.vgpr_spills + self.sgpr_spills


@dataclass(frozen=True)
class DeviceBuilt:
    """``kernels`` are those that the object has: a template that nothing launches has none.
    ``relocatable``: it needed device code of other files.
    ``rejected`` are functions that had to be left out, and why; ``not_whole`` is what the compiler
    says of the whole file where something was; ``remark`` is how the host's code was read."""

    object: Path
    kernels: tuple[KernelResources, ...]
    log: str = ""
    reused: bool = False
    rejected: Mapping[str, NotBuilt] = field(default_factory=dict)
    not_whole: str = ""
    remark: str = ""
    relocatable: bool = False


@dataclass(frozen=True)
class NotBuilt:
    """``line`` is the file's own, 0 when the reason stands elsewhere; ``header`` is what is
    absent, if that is the reason."""

    reason: str
    log: str = ""
    line: int = 0
    cause: Cause = "code"
    header: str = ""


def build(
    file: Path,
    target: Target,
    *,
    include: Sequence[Path] = (),
    defines: Sequence[str] = (),
    workdir: Path,
    compilers: JailedCompilers | None = None,
    timeout_s: float = 120.0,
    standard: str = "c++17",
    further: Sequence[Path] = (),
    cache: bool = True,
    first: FirstHeaders | None = None,
) -> DeviceBuilt | NotBuilt:
    """``include`` and ``defines`` as :meth:`portkern.port.library.Library.settings` has them,
    ``further`` as :class:`FileBuild`, ``first`` are headers that may be precompiled;
    without ``compilers`` the one that is asked sees the file's folder and those of ``include``.

    Raises ConfigError for a target that is not a GPU of AMD's or NVIDIA's.
    """
    if not isinstance(target.limits, AmdLimits | NvidiaLimits):
        raise ConfigError(f"Objects are built for GPUs, got {target.name}; try gfx942 or sm_90")
    backend = registry.load("hip" if isinstance(target.limits, AmdLimits) else "cuda")
    probe = backend.probe(target)
    if isinstance(probe, Missing) or not isinstance(backend, FileBuilder):
        return NotBuilt(str(probe), cause="machine")
    request = FileBuild(
        real_path(file),
        target,
        tuple(real_path(folder) for folder in include),
        tuple(defines),
        standard,
        timeout_s,
        tuple(real_path(source) for source in further),
    )
    store = _Store(request, probe.toolchain) if cache else None
    known = store.get() if store else None
    if known is not None:
        return _built(known, request, reused=True)
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        with ExitStack() as own:
            chosen = compilers or own.enter_context(
                JailedCompilers(SourceView.of([file, *further], include))
            )
            made = chosen.file(backend.name, request, workdir, first)
    except BuildError as error:
        return _not_built(error, request)
    except (BackendUnavailable, OSError) as error:
        return NotBuilt(str(error), cause="machine")
    if store:
        store.put(made)
    return _built(made, request)


def _built(made: FileObject, request: FileBuild, *, reused: bool = False) -> DeviceBuilt:
    kernels = tuple(_resources(kernel, request.target) for kernel in made.kernels)
    linked = bool(request.further)
    return DeviceBuilt(made.object, kernels, made.log, reused, relocatable=linked)


def _resources(kernel: KernelObject, target: Target) -> KernelResources:
    limits = target.limits
    assert isinstance(limits, AmdLimits | NvidiaLimits)
    amd = isinstance(limits, AmdLimits)
    most = limits.lds_block_bytes if isinstance(limits, AmdLimits) else limits.smem_block_bytes
    threads = min(kernel.threads, limits.threads_block)
    waves = occupancy(
        target,
        registers=kernel.vgprs,
        shared_bytes=kernel.lds_bytes,
        threads=threads,
        agprs=kernel.agprs,
    )
    exceeded: list[str] = []
    if kernel.lds_bytes > most:
        exceeded.append(
            f"{kernel.lds_bytes} bytes of {'LDS' if amd else 'shared memory'}, and a block of "
            f"{target.name} has at most {most}"
        )
    if kernel.threads > limits.threads_block:
        exceeded.append(
            f"{kernel.threads} threads per block, and {target.name} has {limits.threads_block}"
        )
    warnings: list[str] = []
    if kernel.vgpr_spills:
        where = "VGPRs spilled to scratch memory" if amd else "registers spilled to local memory"
        warnings.append(f"{kernel.vgpr_spills} {where}")
    elif kernel.scratch_bytes:
        warnings.append(f"{kernel.scratch_bytes} bytes of scratch memory per thread")
    if kernel.sgpr_spills:
        warnings.append(f"{kernel.sgpr_spills} SGPRs spilled")
    return KernelResources(
        kernel.name,
        kernel.symbol,
        kernel.vgprs,
        kernel.sgprs,
        kernel.agprs,
        kernel.lds_bytes,
        kernel.scratch_bytes,
        kernel.vgpr_spills,
        kernel.sgpr_spills,
        kernel.threads,
        kernel.wave,
        waves,
        tuple(exceeded),
        tuple(warnings),
    )


def _not_built(error: BuildError, request: FileBuild) -> NotBuilt:
    log = error.log
    if isinstance(error, BuildTimeout):
        return NotBuilt(f"{error}; timeout_s= allows more", log, cause="time")
    undefined = _UNDEFINED.search(log)
    if undefined is not None:
        reason = (
            f"{undefined[1].strip()} is defined in another file, which needs relocatable device "
            "code (-fgpu-rdc), and no build file says which files are linked together"
        )
        return NotBuilt(reason, log, cause="link")
    errors = [message for message in messages(log) if message.kind == ERROR]
    if not errors:
        return NotBuilt(str(error), log)
    first = errors[0]
    own = next((e for e in errors if Path(e.file).name == request.file.name), None)
    line = first.line if Path(first.file).name == request.file.name else (own.line if own else 0)
    header = absent_headers.named(first.text)
    if header:
        absent = absent_headers.reason(header, request.target)
        return NotBuilt(absent.reason, log, line, absent.cause, header)
    place = "" if own is first else f" ({Path(first.file).name}:{first.line})"
    return NotBuilt(f"{words_of(first)}{place}", log, line)


def words_of(message: CompilerMessage) -> str:
    """The words of a compiler's message, without the place."""
    return re.sub(r"^\S+?:\d+(?::\d+)?: ", "", message.text)


class _Store:
    """Objects by what they were made from. A header that was not there when the object was made,
    and would now be taken instead of another, is not noticed."""

    def __init__(self, request: FileBuild, toolchain: object) -> None:
        parts = [
            version("portkern"),
            _headers_digest(),
            *((str(source), _sum(source)) for source in (request.file, *request.further)),
            request.target.arch,
            request.target.warp,
            list(map(str, request.include)),
            request.defines,
            request.standard,
            sorted(dict(toolchain).items()) if isinstance(toolchain, dict) else str(toolchain),
        ]
        key = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]
        self.folder = cache_root() / _FOLDER
        self.note, self.object = self.folder / f"{key}.json", self.folder / f"{key}.hsaco"

    def get(self) -> FileObject | None:
        """The object that is kept; None for one that is absent, damaged, or made from headers that
        have changed."""
        try:
            known = json_value(self.note.read_text(encoding="utf-8"))
            headers = {Path(name): digest for name, digest in known["headers"].items()}
            if any(_sum(path) != digest for path, digest in headers.items()):
                return None
            if _sum(self.object) != known["object"]:
                return None
            kernels = tuple(KernelObject(**facts) for facts in known["kernels"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        return FileObject(self.object, kernels, tuple(headers), "")

    def put(self, made: FileObject) -> None:
        """A cache that cannot be written is none."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            aside = self.object.with_suffix(f".{made.object.stat().st_ino}")
            shutil.copyfile(made.object, aside)
            aside.replace(self.object)
            note = {
                "object": _sum(self.object),
                "headers": {str(path): _sum(path) for path in made.headers},
                "kernels": [asdict(kernel) for kernel in made.kernels],
            }
            atomic_write.write(self.note, json.dumps(note))
        except OSError:
            return


@lru_cache
def _headers_digest() -> str:
    """A digest of the headers that come with portkern, and of the code that builds with them."""
    digest = hashlib.sha256()
    for folder in ("hip", "cuda", "gpu"):
        root = Path(str(files("portkern.backends"))) / folder
        for path in sorted(root.rglob("*")):
            if path.suffix in (".py", ".h") and "kernels" not in path.parts:
                digest.update(path.read_bytes())
    return digest.hexdigest()


def _sum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
