"""Host processors: C++ with OpenMP as a shared library, Numba, and functions of tensors."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from portkern.errors import BackendUnavailable, BuildError
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
from portkern.spec.op import Signature
from portkern.spec.target import Target
from portkern.toolchain import elf, host, source_tree, torch_extension, torch_module
from portkern.toolchain.compilers import Compiler, compiler, machine
from portkern.toolchain.native_library import load_library
from portkern.toolchain.run_tool import package_version, run_tool
from portkern.toolchain.torch_device import TorchDevice

from . import functions, jit, precompiled

HARNESS = Path(__file__).parent / "harness.h"
#: ``portkern/rows.h`` and others that kernels may include.
INCLUDE = Path(__file__).parent / "include"
TYPES = {
    "float32": "float",
    "float16": "half_t",
    "bfloat16": "bf16_t",
    "float64": "double",
    "int64": "int64_t",
    "int32": "int32_t",
    "int16": "int16_t",
    "int8": "int8_t",
    "uint8": "uint8_t",
    "bool": "bool",
}
# No -ffast-math: it breaks NaN and infinity, and a library linked with it flushes subnormals
# to zero in the whole process.
FLAGS = ("-std=c++17", "-O3", "-fPIC", "-Wall", "-fno-math-errno", "-fno-trapping-math")
BUILD_TIMEOUT_S = 300.0


class CpuBackend(Backend):
    name = "cpu"
    languages: ClassVar[Mapping[str, str]] = {".cpp": "c++", ".py": "numba"}
    usual_target = "x86_64"
    modules = "torch-c++"
    host_memory = True
    marks: ClassVar[tuple[str, ...]] = ("numba",)
    companions: ClassVar[tuple[str, ...]] = ("c++",)
    preload = ("torch",)

    def supports(self, target: Target) -> bool:
        return target.vendor == "cpu"

    def probe(self, target: Target) -> Ready | Missing:
        chosen = compiler(machine(target))
        if isinstance(chosen, Missing):
            return chosen
        openmp = "" if chosen.openmp == ("-fopenmp",) or chosen.cross else ", no OpenMP: one thread"
        parts = {"c++": chosen.version + openmp}
        numba = package_version("numba")
        return Ready(parts | ({"numba": numba} if numba else {}))

    def venues(self, target: Target) -> Venues:
        emulator = Missing("no emulator: this CPU runs it or it does not")
        if not host.runs_here(target):
            return Venues(_why_not_here(target), emulator)
        environment = jit.environment(target) | {
            # Two OpenMP runtimes live in a worker (torch's and the kernel's): threads that spin
            # after a parallel region would steal the other's cores.
            "OMP_WAIT_POLICY": "passive"
        }
        return Venues(Venue("hardware", host.cpu_name(), "cpu", environment), emulator)

    def environment(self, target: Target) -> Mapping[str, str]:
        return jit.environment(target)

    def accepts(self, candidate: Candidate, dtype: str) -> bool | Missing:
        if _compiled_by_numba(candidate) and dtype in ("float16", "bfloat16"):
            return Missing(f"Numba has no {dtype} arithmetic on CPUs", "write it in C++")
        return True

    def builds(self, request: Build) -> bool | Missing:
        if request.candidate.style == "module":
            return torch_extension.missing() or True
        return jit.builds(request.target) if _compiled_by_numba(request.candidate) else True

    def builds_with(self, candidate: Candidate) -> tuple[str, ...]:
        return () if candidate.language == "c++" else self.preload

    def build(self, request: Build, workdir: Path) -> Artifact:
        if _compiled_by_numba(request.candidate):
            return jit.build(request, workdir)
        if request.candidate.style == "module":
            return _build_module(request, workdir)
        if request.candidate.language == "numba":
            return functions.build(request, workdir)
        return _build_cpp(request, workdir)

    def recipe(self, target: Target) -> Recipe | None:
        flags = (*FLAGS, f"-march={target.march}", "-fopenmp", "-shared")
        return Recipe("c++", flags, ".cpp") if target.march else None

    def declaration(self, signature: Signature, language: str) -> str:
        if language != "c++":
            return super().declaration(signature, language)
        return abi.declaration(signature, signature.name, TYPES)

    def prepare(self, request: Build) -> Sequence[Path]:
        found = compiler(machine(request.target))
        if request.candidate.style == "module" and not isinstance(found, Missing):
            return torch_extension.prepare(found, found.march(request.target))
        if request.candidate.language != "c++" or isinstance(found, Missing):
            return ()
        return precompiled.prepare(found, HARNESS, _flags(found, request.target))

    def load(self, artifact: Artifact, request: Build, venue: Venue) -> Kernel:
        device = TorchDevice("cpu")
        if request.candidate.style == "module":
            _install(request, Path("torch-extensions").absolute())
            return torch_module.load(artifact, request, device)
        if artifact.kind == "numba":
            return jit.load(artifact, request, device)
        if artifact.kind == "python":
            return functions.load(artifact, request, device)
        return load_library(artifact, request, device)


def _install(request: Build, folder: Path) -> None:
    chosen = compiler(machine(request.target))
    if isinstance(chosen, Missing):
        raise BackendUnavailable(str(chosen))
    torch_extension.install(chosen, chosen.march(request.target), folder)


def _build_module(request: Build, workdir: Path) -> Artifact:
    """The source as it is; that its extensions can be built is seen where they can run."""
    artifact = torch_module.write(request, workdir)
    if request.runnable:
        _install(request, workdir / "torch-extensions")
        torch_module.import_class(artifact.path, request.candidate.entry)
    return artifact


def _compiled_by_numba(candidate: Candidate) -> bool:
    """A Python function that returns its outputs is called with tensors, as it is."""
    return candidate.language == "numba" and candidate.style == "dps"


def _why_not_here(target: Target) -> Missing:
    here = platform.machine()
    if machine(target) != here.replace("arm64", "aarch64"):
        return Missing(f"this CPU is {here}", f"run on {target.title}")
    lacking = sorted(set(target.cpu_flags) - host.cpu_flags())
    return Missing(f"this CPU has no {' '.join(lacking)}", f"run on {target.title}")


def _build_cpp(request: Build, workdir: Path) -> Artifact:
    chosen = compiler(machine(request.target))
    if isinstance(chosen, Missing):
        raise BackendUnavailable(str(chosen))
    signature, entry = request.signature, request.candidate.entry
    prelude = abi.prelude(
        signature, entry, request.dtype, TYPES, include=f'#include "{HARNESS.name}"'
    )
    # The compiler shows lines of the file that #line names: it must be the author's own.
    own, file = workdir / f"{signature.name}.cpp", workdir / f"{entry}.unit.cpp"
    own.write_text(request.candidate.source, encoding="utf-8")
    line = f'#line 1 "{own.name}"\n'
    tree = source_tree.write(request.candidate, workdir)
    file.write_text(prelude + line + request.candidate.source + tree.after, encoding="utf-8")
    artifact = file.with_suffix(".o")
    env = _zig_caches(chosen, workdir)
    flags = _flags(chosen, request.target)
    # A kernel of another day brings the harness of that day.
    other = HARNESS.name in request.candidate.companions.texts
    before = () if other else precompiled.include(chosen, HARNESS, flags)
    compile_ = [*chosen.argv, *flags, *before, "-c"]
    log = run_tool(
        [*compile_, *tree.flags, "-I", HARNESS.parent, "-I", INCLUDE, file, "-o", artifact],
        whose="foreign",
        timeout_s=BUILD_TIMEOUT_S,
        cwd=workdir,
        env=env,
    )
    if not elf.defines(artifact, entry):
        wanted = abi.prototype(signature, entry, TYPES)
        raise BuildError(f"The source defines no C function {entry!r}; expected {wanted}", log=log)
    if chosen.cross:
        return Artifact(artifact, "object", log=log)
    library = file.with_suffix(".so")
    argv = [*chosen.link, str(artifact), "-o", str(library)]
    log += run_tool(argv, whose="foreign", timeout_s=BUILD_TIMEOUT_S, cwd=workdir, env=env)
    return Artifact(library, "shared library", log=log)


def _flags(chosen: Compiler, target: Target) -> list[str]:
    return [*FLAGS, chosen.march(target), *chosen.openmp]


def _zig_caches(chosen: Compiler, workdir: Path) -> dict[str, str]:
    """zig caches what it compiles; the jail lets it write beneath ``workdir`` only."""
    if chosen.name != "zig":
        return {}
    return {
        name: os.environ.get(name, str(workdir / "zig"))
        for name in ("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR")
    }
