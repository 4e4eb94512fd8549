"""HIP C++ for AMD (ROCm, or PyPI's clang for code objects) and, through nvcc, for NVIDIA."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from portkern.errors import BackendUnavailable
from portkern.isa import venue as object_venue
from portkern.simt.execute import emulate
from portkern.simt.execute.build import ProgramSource
from portkern.simt.execute.options import CHECKERS, UNMODELLED
from portkern.simt.torch_extension import module
from portkern.spec import abi
from portkern.spec.backend import (
    NO_OBJECTS,
    Artifact,
    Backend,
    Build,
    Kernel,
    Missing,
    Ready,
    Venue,
    Venues,
)
from portkern.spec.candidate import Candidate
from portkern.spec.file_build import FileBuild, FileObject, FirstHeaders
from portkern.spec.op import Signature
from portkern.spec.target import Target
from portkern.toolchain import host, source_tree
from portkern.toolchain.native_library import load_library
from portkern.toolchain.torch_device import TorchDevice

from ..cuda import CudaBackend, gpu, nvcc, source
from ..gpu import INCLUDE as PORTABLE
from . import clang, first_headers, objects, rocm, whole_file

TYPES = source.TYPES | {"bfloat16": "__hip_bfloat16"}
_HEADERS = {"float16": "hip/hip_fp16.h", "bfloat16": "hip/hip_bf16.h"}
_ON_NVIDIA = Path(__file__).parent / "include" / "nvidia"


class HipBackend(Backend):
    """``.hip`` files with the C entry point that :mod:`portkern.spec.abi` describes."""

    name: ClassVar[str] = "hip"
    languages: ClassVar[Mapping[str, str]] = {".hip": "hip"}
    usual_target = "gfx942"
    modules = "torch-hip"
    shared: ClassVar = {"portkern.backends.gpu": {".cu": "hip"}}
    thread_knobs = ("BLOCK", "THREADS")
    companions: ClassVar[tuple[str, ...]] = ("hip",)
    preload: ClassVar[tuple[str, ...]] = ("torch",)
    checkers: ClassVar[Mapping[str, str]] = CHECKERS
    object_checkers: ClassVar[Mapping[str, str]] = object_venue.CHECKERS
    unmodelled: ClassVar[tuple[str, ...]] = UNMODELLED
    turns: ClassVar[Mapping[str, str]] = {"block": "threads per block"}
    matrix_units = "author"

    def supports(self, target: Target) -> bool:
        return target.vendor == "amd" or CudaBackend().supports(target)

    def probe(self, target: Target) -> Ready | Missing:
        if target.vendor == "nvidia":
            compiler = nvcc.find()
            if isinstance(compiler, Missing):
                return compiler
            return Ready({"nvcc": compiler.version, "host compiler": compiler.host})
        hipcc, fallback = rocm.find(), clang.find()
        if isinstance(hipcc, rocm.Hipcc):
            return Ready({"hipcc": hipcc.version})
        return fallback if isinstance(fallback, Missing) else Ready(dict(fallback.versions))

    def venues(self, target: Target) -> Venues:
        on_nvidia = target.vendor == "nvidia"
        hardware = gpu.hardware(target, nvcc.find()) if on_nvidia else _amd_hardware(target)
        return Venues(hardware, emulate.venue(target), _executor(target))

    def prepare(self, request: Build) -> Sequence[Path]:
        if request.candidate.style == "module":
            return module.prepare(request)
        return (
            *emulate.prepare(request, "hip"),
            *object_venue.prepare(request),
            *_headers(request),
        )

    def runs(self, artifact: Artifact, venue: Venue) -> bool | Missing:
        if venue.kind == "object":
            return objects.runs(artifact)
        return emulate.runs(artifact) if venue.kind == "emulator" else True

    def executes(self, candidate: Candidate) -> bool | Missing:
        if candidate.style == "module":
            return Missing("extensions of PyTorch are emulated: their host code is torch's")
        return True

    def builds(self, request: Build) -> bool | Missing:
        of_module = request.candidate.style == "module"
        return (module.unmodelled(request) or True) if of_module else True

    def builds_with(self, candidate: Candidate) -> tuple[str, ...]:
        return self.preload if candidate.style == "module" else ()

    def build(self, request: Build, workdir: Path) -> Artifact:
        if request.candidate.style == "module":
            return module.build(request, workdir)
        # A library names its entry; a code object has no host code, so only the text can tell.
        if not request.runnable and not source.defines_entry(request):
            raise source.no_entry(request, ".hip", "hipStream_t")
        artifact = self._compile(request, workdir)
        if request.runnable and not source.exports(artifact.path, request.candidate.entry):
            raise source.no_entry(request, ".hip", "hipStream_t")
        if request.emulated:
            name, text = f"{request.signature.name}.hip", request.candidate.source
            emulate.build_beside(
                ProgramSource(text, name, "hip", _prelude(request), search=(PORTABLE,)),
                request,
                workdir,
            )
        return artifact

    def _compile(self, request: Build, workdir: Path) -> Artifact:
        tree = source_tree.write(request.candidate, workdir)
        if request.target.vendor == "nvidia":
            compiler = nvcc.find()
            if isinstance(compiler, Missing):
                raise BackendUnavailable(str(compiler))
            text = source.numbered(request, _prelude(request), ".hip", tree)
            flags = [*tree.nvcc_flags, "-I", str(_ON_NVIDIA)]
            return nvcc.build(compiler, request, text, workdir, flags)
        hipcc, fallback = rocm.find(), clang.find()
        text = source.numbered(request, _prelude(request), ".hip", tree)
        file = source.write(request, text, workdir, ".hip")
        if isinstance(hipcc, rocm.Hipcc):
            artifact = rocm.build(hipcc, request, file, workdir, tree.flags)
        elif isinstance(fallback, Missing):
            raise BackendUnavailable(str(fallback))
        else:
            artifact = clang.build(fallback, request, file, workdir, tree.flags)
        if request.executed:
            objects.build_beside(fallback, request, file, tree.flags)
        return artifact

    def build_file(self, request: FileBuild, workdir: Path) -> FileObject:
        return whole_file.build(request, workdir)

    def precompile(self, request: FileBuild, first: FirstHeaders) -> Path | None:
        compiler = clang.find()
        if isinstance(compiler, Missing) or isinstance(rocm.find(), rocm.Hipcc):
            return None
        return first_headers.made(compiler, request, first)

    def declaration(self, signature: Signature, language: str) -> str:
        return abi.declaration(signature, signature.name, TYPES, stream="hipStream_t")

    def load(self, artifact: Artifact, request: Build, venue: Venue) -> Kernel:
        if request.candidate.style == "module":
            return module.load(artifact, request, venue)
        if venue.kind == "emulator":
            return emulate.load(artifact, request, venue, "hip")
        if venue.kind == "object":
            return objects.load(artifact, request, venue.sanitize)
        return load_library(artifact, request, TorchDevice(venue.device))


def _prelude(request: Build) -> str:
    """HIP's headers, ``scalar_t`` and the entry's prototype."""
    used = (_HEADERS[d] for d in sorted(source.dtypes(request)) if d in _HEADERS)
    headers = ["hip/hip_runtime.h", *used]
    return abi.prelude(
        request.signature,
        request.candidate.entry,
        request.dtype,
        TYPES,
        include="\n".join(f"#include <{h}>" for h in headers),
        stream="hipStream_t",
    )


def _headers(request: Build) -> Sequence[Path]:
    """Where HIP's headers are precompiled, if they are, or are worth it by now."""
    compiler = clang.find()
    if request.target.vendor != "amd" or isinstance(compiler, Missing):
        return ()
    sides: Sequence[clang.Side] = ("device", "host") if request.executed else ("device",)
    used = [clang.headers(compiler, request.target, side) for side in sides]
    for each in used:
        each.prepare()
    return [each.file.parent for each in used if each.file.exists()]


def _executor(target: Target) -> Venue | Missing:
    if target.vendor != "amd":
        return NO_OBJECTS
    fallback = clang.find()  # which compiles the host code, also where hipcc is
    return fallback if isinstance(fallback, Missing) else object_venue.venue(target)


def _amd_hardware(target: Target) -> Venue | Missing:
    device = host.gpu_for(target)
    if device is None:
        return Missing(f"no AMD {target.name} GPU here")
    hipcc = rocm.find()
    if isinstance(hipcc, Missing):
        return hipcc
    if gpu.torch_runtime("hip") is None:
        return Missing("the installed torch is not a ROCm build", "install torch for ROCm")
    return Venue("hardware", device.name, f"cuda:{device.index}")
