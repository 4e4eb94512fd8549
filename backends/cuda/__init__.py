"""CUDA C++ through nvcc, or NVRTC where there is no host compiler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from portkern.errors import BackendUnavailable
from portkern.simt.execute import emulate
from portkern.simt.execute.build import ProgramSource
from portkern.simt.execute.options import CHECKERS, UNMODELLED
from portkern.simt.torch_extension import module
from portkern.spec import abi
from portkern.spec.backend import (
    Artifact,
    Backend,
    Build,
    Kernel,
    Missing,
    Ready,
    Recipe,
    Venue,
    Venues,
)
from portkern.spec.candidate import Candidate
from portkern.spec.file_build import FileBuild, FileObject
from portkern.spec.op import Signature
from portkern.spec.target import Target
from portkern.toolchain import source_tree
from portkern.toolchain.native_library import load_library
from portkern.toolchain.torch_device import TorchDevice

from . import gpu, nvcc, nvrtc, source, whole_file

OLDEST = 75  # the first architecture that nvcc 13 compiles for


class CudaBackend(Backend):
    """``.cu`` files with the C entry point that :mod:`portkern.spec.abi` describes."""

    name: ClassVar[str] = "cuda"
    languages: ClassVar[Mapping[str, str]] = {".cu": "cuda"}
    usual_target = "sm_90"
    modules = "torch-cuda"
    shared: ClassVar = {"portkern.backends.gpu": {".cu": "cuda"}}
    thread_knobs = ("BLOCK", "THREADS")
    companions: ClassVar[tuple[str, ...]] = ("cuda",)
    preload: ClassVar[tuple[str, ...]] = ("torch",)
    device_memory = True
    checkers: ClassVar[Mapping[str, str]] = CHECKERS
    unmodelled: ClassVar[tuple[str, ...]] = UNMODELLED
    turns: ClassVar[Mapping[str, str]] = {"block": "threads per block"}
    matrix_units = "author"

    def supports(self, target: Target) -> bool:
        return target.vendor == "nvidia" and int(target.arch.removeprefix("sm_")) >= OLDEST

    def probe(self, target: Target) -> Ready | Missing:
        compiler = nvcc.find()
        if isinstance(compiler, nvcc.Nvcc):
            return Ready({"nvcc": compiler.version, "host compiler": compiler.host})
        fallback = nvrtc.find()
        if isinstance(fallback, nvrtc.Nvrtc):
            return Ready({"nvrtc": fallback.version})
        return compiler

    def venues(self, target: Target) -> Venues:
        return Venues(gpu.hardware(target, nvcc.find()), emulate.venue(target))

    def prepare(self, request: Build) -> Sequence[Path]:
        if request.candidate.style == "module":
            return module.prepare(request)
        return emulate.prepare(request, "cuda")

    def runs(self, artifact: Artifact, venue: Venue) -> bool | Missing:
        return emulate.runs(artifact) if venue.kind == "emulator" else True

    def builds(self, request: Build) -> bool | Missing:
        of_module = request.candidate.style == "module"
        return (module.unmodelled(request) or True) if of_module else True

    def builds_with(self, candidate: Candidate) -> tuple[str, ...]:
        return self.preload if candidate.style == "module" else ()

    def build(self, request: Build, workdir: Path) -> Artifact:
        if request.candidate.style == "module":
            return module.build(request, workdir)
        # A library names its entry; a cubin has no host code, so only the text can tell.
        if not request.runnable and not source.defines_entry(request):
            raise source.no_entry(request, ".cu", "cudaStream_t")
        artifact = self._compile(request, workdir)
        if request.emulated:
            name, prelude = f"{request.signature.name}.cu", source.prelude(request)
            emulated = ProgramSource(
                request.candidate.source,
                name,
                "cuda",
                prelude,
                search=(*nvcc.INCLUDES, nvcc.HOPPER),
                defines=nvcc.hopper_macros(request.target),
            )
            emulate.build_beside(emulated, request, workdir)
        return artifact

    def _compile(self, request: Build, workdir: Path) -> Artifact:
        compiler = nvcc.find()
        if isinstance(compiler, Missing):
            return self._build_with_nvrtc(request, workdir, compiler)
        tree = source_tree.write(request.candidate, workdir)
        text = source.numbered(request, source.prelude(request), ".cu", tree)
        artifact = nvcc.build(compiler, request, text, workdir, tree.nvcc_flags)
        if request.runnable and not source.exports(artifact.path, request.candidate.entry):
            raise source.no_entry(request, ".cu", "cudaStream_t")
        return artifact

    def _build_with_nvrtc(self, request: Build, workdir: Path, why: Missing) -> Artifact:
        fallback = nvrtc.find()
        if isinstance(fallback, Missing):
            raise BackendUnavailable(str(why))
        return nvrtc.build(fallback, request, workdir)

    def build_file(self, request: FileBuild, workdir: Path) -> FileObject:
        return whole_file.build(request, workdir)

    def recipe(self, target: Target) -> Recipe | None:
        return nvcc.recipe(target) if self.supports(target) else None

    def declaration(self, signature: Signature, language: str) -> str:
        return abi.declaration(signature, signature.name, source.TYPES, stream="cudaStream_t")

    def load(self, artifact: Artifact, request: Build, venue: Venue) -> Kernel:
        if request.candidate.style == "module":
            return module.load(artifact, request, venue)
        if venue.kind == "emulator":
            return emulate.load(artifact, request, venue, "cuda")
        return load_library(artifact, request, TorchDevice(venue.device))
