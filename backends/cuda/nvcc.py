"""NVIDIA's compiler: where it is and what it makes. The hip backend builds with it too."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from portkern.errors import ToolError
from portkern.spec.backend import Artifact, Build, Missing, Recipe
from portkern.spec.target import Target
from portkern.toolchain.run_tool import package_dir, run_tool

from ..gpu import INCLUDE as PORTABLE
from . import ptxas, source

REMEDY = "pip install 'portkern[cuda]' or put nvcc on PATH"
BUILD_S = 300.0
#: The static runtime: torch's own libcudart may be of another version than this nvcc's.
LIBRARY = ("-shared", "-Xcompiler", "-fPIC", "-cudart", "static")
COMMON = ("-O3", "-std=c++17")
#: Headers of ours that kernels may include, such as ``portkern/portable.h``.
INCLUDES = (Path(__file__).parent / "include", PORTABLE)
#: Headers that Hopper alone has, such as ``portkern/hopper.h``.
HOPPER = Path(__file__).parent / "include" / "hopper"


@dataclass(frozen=True)
class Nvcc:
    """A CUDA compiler that starts here, with the host compiler that it calls."""

    path: Path
    version: str
    host: str


def find() -> Nvcc | Missing:
    """The first of PATH, ``$CUDA_HOME`` and PyPI's packages; asked once per setting of these."""
    return _find(os.environ.get("PATH", ""), os.environ.get("CUDA_HOME", ""))


def arch(target: Target) -> str:
    """``90a`` for sm_90: from Hopper on, wgmma, tcgen05 and the like exist only with the ``a``,
    and an artifact is built for one architecture anyway."""
    number = target.arch.removeprefix("sm_")
    return f"{number}a" if int(number) >= 90 else number


def hopper_macros(target: Target) -> tuple[str, ...]:
    """The macros which say that kernels may use wgmma and TMA, where nvcc or the SIMT executor
    builds them."""
    return ("PORTKERN_HOPPER=1",) if arch(target) == "90a" else ()


def build(
    nvcc: Nvcc, request: Build, text: str, workdir: Path, flags: Sequence[str] = ()
) -> Artifact:
    """Compile ``text``: to a shared library when it is to run here, to a cubin otherwise (which
    halves the time: the host compiler stays out of it). Raises BuildError."""
    # nvcc knows a language by its suffix, and .hip is none of its own
    path = source.write(request, text, workdir, ".cu")
    output = path.with_suffix(".so" if request.runnable else ".cubin")
    # No --split-compile: it saves seconds, and one source gets other registers, at times spills, in
    # every second build (nvcc 13.5).
    number = arch(request.target)
    log = run_tool(
        [
            nvcc.path,
            *(LIBRARY if request.runnable else ["-cubin"]),
            "-gencode",
            f"arch=compute_{number},code=sm_{number}",
            *flags,  # first what a kernel brings: it may have headers of ours as they were
            *(flag for folder in (*INCLUDES, HOPPER) for flag in ("-I", folder)),
            *(f"-D{macro}" for macro in hopper_macros(request.target)),
            "-DPORTKERN_CLUSTERS=1",
            *COMMON,
            "-lineinfo",
            "-Xptxas",
            "-v",
            "--keep",
            "--keep-dir",
            workdir,
            path,
            "-o",
            output,
        ],
        whose="foreign",
        timeout_s=BUILD_S,
        cwd=workdir,
        env={"TMPDIR": str(workdir)},
    )
    ptx = path.with_suffix(".ptx")
    declared = ptx.read_text() if ptx.exists() else ""
    kind = "shared library" if request.runnable else "cubin"
    return Artifact(output, kind, ptxas.resources(log, declared), log)


def recipe(target: Target) -> Recipe:
    """The flags that :func:`build` gives nvcc, for a text that has all headers in it."""
    number = arch(target)
    macros = (*hopper_macros(target), "PORTKERN_CLUSTERS=1")
    code = ("-gencode", f"arch=compute_{number},code=sm_{number}")
    return Recipe("nvcc", (*LIBRARY, *code, *(f"-D{m}" for m in macros), *COMMON), ".cu")


@lru_cache
def _find(path: str, cuda_home: str) -> Nvcc | Missing:
    host = shutil.which("g++", path=path)
    for candidate in _candidates(path, cuda_home):
        version = _version(candidate)
        if version is None:
            continue
        if host is None:
            return Missing("no host compiler for nvcc: 'g++' is not on PATH", "install g++")
        return Nvcc(candidate, version, host)
    return Missing("no CUDA compiler: 'nvcc' is not on PATH, in $CUDA_HOME or from PyPI", REMEDY)


def _candidates(path: str, cuda_home: str) -> Iterator[Path]:
    if on_path := shutil.which("nvcc", path=path):
        yield Path(on_path)
    if cuda_home:
        yield Path(cuda_home) / "bin" / "nvcc"
    yield from (root / "bin" / "nvcc" for root in pypi_roots())


def pypi_roots() -> list[Path]:
    """Where NVIDIA's packages install themselves (``nvidia/cu13``), newest first."""
    nvidia = package_dir("nvidia")
    return sorted(nvidia.glob("cu[0-9]*"), reverse=True) if nvidia else []


def _version(nvcc: Path) -> str | None:
    if not os.access(nvcc, os.X_OK):
        return None
    try:
        answer = run_tool([nvcc, "--version"], whose="own", timeout_s=20, error=ToolError)
    except ToolError:
        return None  # an nvcc that does not start is not an nvcc
    match = re.search(r"release [\d.]+, V([\d.]+)", answer)
    return match[1] if match else None
