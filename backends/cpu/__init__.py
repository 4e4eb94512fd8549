"""Host processors: C++ with OpenMP as a shared library, and Numba."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from portkern import abi, host
from portkern.backend import (
    Artifact,
    Backend,
    Build,
    Call,
    Device,
    Kernel,
    Missing,
    Ready,
    Venue,
    Venues,
)
from portkern.candidate import Candidate
from portkern.device import TorchDevice
from portkern.errors import BackendUnavailable, BuildError, ToolError
from portkern.native import load_library
from portkern.target import Target
from portkern.toolchain import package_dir, package_version, run_tool

from .elf import defines

HARNESS = Path(__file__).parent / "harness.h"
TYPES = {
    "float32": "float", "float16": "half_t", "bfloat16": "bf16_t", "float64": "double",
    "int64": "int64_t", "int32": "int32_t", "int16": "int16_t", "int8": "int8_t",
    "uint8": "uint8_t", "bool": "bool",
}  # fmt: skip
# No -ffast-math: it breaks NaN and infinity, and linking it changes the process's rounding mode.
FLAGS = ("-std=c++17", "-O3", "-fPIC", "-Wall", "-fno-math-errno", "-fno-trapping-math")
BUILD_TIMEOUT_S = 300.0
#: Any file's time will do, as long as build and load agree: Numba's cache trusts it.
SOURCE_TIME = 1_000_000_000


@dataclass(frozen=True)
class Compiler:
    """``argv`` starts it; ``cross`` says that it compiles for a machine that is not this one."""

    name: str
    argv: tuple[str, ...]
    cross: bool = False

    @property
    def version(self) -> str:
        return _first_line(self.argv)

    @property
    def linker(self) -> list[str]:
        """zig's C++ driver would compile its C++ library from source for each -mcpu: 47 s."""
        return ["cc" if argument == "c++" else argument for argument in self.argv]

    @property
    def openmp(self) -> tuple[str, ...]:
        """clang often comes without an OpenMP runtime: then its kernels use one thread."""
        parallel = self.cross or _has_openmp(self.name, self.argv)
        return ("-fopenmp",) if parallel else ("-fopenmp-simd",)

    def march(self, target: Target) -> str:
        if self.name != "zig":
            return f"-march={target.march}"
        # zig spells x86-64-v3 as x86_64_v3 and writes Arm's versions as features.
        arm = {"armv8.2-a": "generic+v8_2a"}
        return f"-mcpu={arm.get(str(target.march), str(target.march).replace('-', '_'))}"


class CpuBackend(Backend):
    name = "cpu"
    languages: ClassVar[Mapping[str, str]] = {".cpp": "c++", ".py": "numba"}
    preload = ("torch",)

    def supports(self, target: Target) -> bool:
        return target.vendor == "cpu"

    def probe(self, target: Target) -> Ready | Missing:
        found = compiler(machine(target))
        if isinstance(found, Missing):
            return found
        openmp = "" if found.openmp == ("-fopenmp",) or found.cross else ", no OpenMP: one thread"
        parts = {"c++": found.version + openmp}
        numba = package_version("numba")
        return Ready(parts | ({"numba": numba} if numba else {}))

    def venues(self, target: Target) -> Venues:
        emulator = Missing("no emulator: this CPU runs it or it does not")
        if not host.runs_here(target):
            return Venues(_why_not_here(target), emulator)
        environment = numba_environment(target) | {
            # Two OpenMP runtimes live in a worker (torch's and the kernel's): threads that spin
            # after a parallel region would steal the other's cores.
            "OMP_WAIT_POLICY": "passive"
        }
        return Venues(Venue("hardware", host.cpu_name(), "cpu", environment), emulator)

    def environment(self, target: Target) -> Mapping[str, str]:
        return numba_environment(target)

    def accepts(self, candidate: Candidate, dtype: str) -> bool | Missing:
        if candidate.language == "numba" and dtype in ("float16", "bfloat16"):
            return Missing(f"Numba has no {dtype} arithmetic on CPUs", "write it in C++")
        return True

    def build(self, request: Build, workdir: Path) -> Artifact:
        if request.candidate.language == "numba":
            return _build_numba(request, workdir)
        return _build_cpp(request, workdir)

    def load(self, artifact: Artifact, request: Build, venue: Venue) -> Kernel:
        device = TorchDevice("cpu")
        if artifact.kind == "numba":
            return _load_numba(artifact, request, device)
        return load_library(artifact, request, device)


def machine(target: Target) -> str:
    return "aarch64" if target.family == "arm" else "x86_64"


@lru_cache
def compiler(wanted: str) -> Compiler | Missing:
    """The first compiler here whose code runs on ``wanted`` (``x86_64``, ``aarch64``)."""
    here = platform.machine().replace("arm64", "aarch64")
    native = wanted == here
    names = ("g++", "clang++") if native else (f"{wanted}-linux-gnu-g++",)
    for name in names:
        if path := shutil.which(name):
            return Compiler(name, (path,), cross=not native)
    if package_dir("ziglang"):
        argv = (sys.executable, "-m", "ziglang", "c++", "-target", f"{wanted}-linux-gnu")
        return Compiler("zig", argv, cross=not native)
    return Missing(
        f"no C++ compiler for {wanted}: {' or '.join(names)} is not on PATH",
        "install g++, or 'pip install ziglang'",
    )


@lru_cache
def _first_line(argv: tuple[str, ...]) -> str:
    try:
        log = run_tool([*argv, "--version"], timeout_s=60, error=ToolError)
    except ToolError as error:
        return f"unknown version ({error})"
    return log.partition("\n")[0]


@lru_cache
def _has_openmp(name: str, argv: tuple[str, ...]) -> bool:
    if name != "clang++":
        return name != "zig"  # g++ brings libgomp, zig brings no runtime
    try:
        library = run_tool([*argv, "-print-file-name=libomp.so"], timeout_s=60, error=ToolError)
    except ToolError:
        return False
    return Path(library.strip()).is_absolute()  # clang echoes the bare name when it finds none


def _why_not_here(target: Target) -> Missing:
    here = platform.machine()
    if machine(target) != here.replace("arm64", "aarch64"):
        return Missing(f"this CPU is {here}", f"run on {target.title}")
    lacking = sorted(set(target.cpu_flags) - host.cpu_flags())
    return Missing(f"this CPU has no {' '.join(lacking)}", f"run on {target.title}")


def _build_cpp(request: Build, workdir: Path) -> Artifact:
    found = compiler(machine(request.target))
    if isinstance(found, Missing):
        raise BackendUnavailable(str(found))
    signature, entry = request.signature, request.candidate.entry
    prelude = abi.prelude(
        signature, entry, request.dtype, TYPES, include=f'#include "{HARNESS.name}"'
    )
    file = workdir / f"{entry}.cpp"
    line = f'#line 1 "{signature.name}.cpp"\n'
    file.write_text(prelude + line + request.candidate.source, encoding="utf-8")
    artifact = file.with_suffix(".o")
    env = _zig_caches(found, workdir)
    compile_ = [*found.argv, *FLAGS, found.march(request.target), *found.openmp, "-c"]
    log = run_tool(
        [*compile_, "-I", HARNESS.parent, file, "-o", artifact],
        timeout_s=BUILD_TIMEOUT_S, cwd=workdir, env=env,
    )  # fmt: skip
    if not defines(artifact, entry):
        wanted = abi.prototype(signature, entry, TYPES)
        raise BuildError(f"The source defines no C function {entry!r}; expected {wanted}", log=log)
    if found.cross:
        return Artifact(artifact, "object", log=log)
    library = file.with_suffix(".so")
    link = [*found.linker, *found.openmp, "-shared", "-Wl,-z,defs"]
    argv = [*link, str(artifact), "-o", str(library)]
    log += run_tool(argv, timeout_s=BUILD_TIMEOUT_S, cwd=workdir, env=env)
    return Artifact(library, "shared library", log=log)


def _zig_caches(found: Compiler, workdir: Path) -> dict[str, str]:
    """zig caches what it compiles; the jail lets it write beneath ``workdir`` only."""
    if found.name != "zig":
        return {}
    return {
        name: os.environ.get(name, str(workdir / "zig"))
        for name in ("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR")
    }


def numba_environment(target: Target) -> dict[str, str]:
    """What makes Numba compile for ``target`` rather than for the whole of this CPU.

    Numba reads both when it is imported. Empty features are those that the name implies.
    """
    return {"NUMBA_CPU_NAME": str(target.march), "NUMBA_CPU_FEATURES": ""}


def _import_numba(target: Target) -> Any:
    if package_version("numba") is None:
        raise BackendUnavailable("Numba is not installed; pip install 'portkern[numba]'")
    here = platform.machine().replace("arm64", "aarch64")
    if machine(target) != here:
        raise BackendUnavailable(f"Numba compiles for the machine it runs on, {here}")
    if "numba" not in sys.modules:
        os.environ.update(numba_environment(target))
    import numba

    compiled_for = getattr(numba.core.config, "CPU_NAME")  # noqa: B009 - set at import
    if compiled_for != target.march:
        raise BackendUnavailable(
            f"Numba was imported for {compiled_for or 'this CPU'}, expected {target.march}; "
            f"set NUMBA_CPU_NAME={target.march} NUMBA_CPU_FEATURES= before it is imported"
        )
    return numba


def _build_numba(request: Build, workdir: Path) -> Artifact:
    _import_numba(request.target)
    path = workdir / f"{request.candidate.entry}.py"
    path.write_text(request.candidate.source, encoding="utf-8")
    os.utime(path, (SOURCE_TIME, SOURCE_TIME))
    from numba.core.errors import NumbaError

    try:
        _compile(_entry(path, request), request)
    except NumbaError as error:
        raise BuildError(f"Numba rejected {request.candidate.entry!r}", log=str(error)) from error
    return Artifact(path, "numba")


def _compile(function: Any, request: Build) -> None:
    """Compile for the request's types now, and keep the code in __pycache__ beside the source."""
    import numba

    if not isinstance(function, numba.core.dispatcher.Dispatcher):
        return  # a plain function that calls jitted ones: they compile when it runs
    function.enable_caching()
    tensors = (*request.signature.inputs, *request.signature.outputs)
    arrays = [
        numba.types.Array(getattr(numba.types, t.resolve(request.dtype)), len(t.shape), "C")
        for t in tensors
    ]
    scalars = [
        getattr(numba.types, s.dtype.replace("bool", "boolean")) for s in request.signature.scalars
    ]
    function.compile((*arrays, *scalars))


def _entry(path: Path, request: Build) -> Any:
    """The function of that name in the module at ``path``; raises BuildError without one."""
    name = request.candidate.entry
    spec = importlib.util.spec_from_file_location(f"portkern_candidate_{name}", path)
    assert spec is not None and spec.loader is not None  # the suffix is .py
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # Numba's cache finds a function's globals by their module
    try:
        spec.loader.exec_module(module)
    except (SyntaxError, NameError, ImportError, AttributeError) as error:
        raise BuildError(f"{path.name} cannot be imported: {error}") from error
    if not callable(getattr(module, name, None)):
        raise BuildError(f"The source defines no function {name!r}; expected {_call(request)}")
    return getattr(module, name)


def _call(request: Build) -> str:
    signature = request.signature
    names = [t.name for t in (*signature.inputs, *signature.outputs)]
    names += [s.name for s in signature.scalars]
    return f"def {request.candidate.entry}({', '.join(names)})"


def _load_numba(artifact: Artifact, request: Build, device: TorchDevice) -> Kernel:
    import numpy

    _import_numba(request.target)
    function = _entry(artifact.path, request)
    _compile(function, request)
    # A Python float is a float64 to Numba and would pull the kernel's arithmetic with it.
    kinds = {
        s.name: getattr(numpy, s.dtype.replace("bool", "bool_")) for s in request.signature.scalars
    }

    def launch(call: Call) -> Sequence[Any]:
        arrays = [tensor.numpy() for tensor in (*call.inputs, *call.outputs)]
        function(*arrays, *(kind(call.scalars[name]) for name, kind in kinds.items()))
        return call.outputs

    opened: Device = device
    return Kernel(opened, launch)
