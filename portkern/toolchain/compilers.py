"""The C++ compilers that may be here: g++, clang++, a cross g++, and zig's clang from PyPI."""

from __future__ import annotations

import platform
import shutil
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from portkern.errors import ToolError
from portkern.spec.backend import Missing
from portkern.spec.target import Target
from portkern.toolchain.run_tool import package_dir, run_tool


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
    def link(self) -> list[str]:
        """The beginning of the command that makes a shared library of an object file."""
        if self.name != "zig":
            return [*self.argv, *self.openmp, "-shared", "-Wl,-z,defs"]
        # Its driver would first compile a C library of its own, for 15 s in an empty cache. The
        # process that loads the kernel has one.
        return [sys.executable, "-m", "ziglang", "ld.lld", "-shared"]

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
        log = run_tool([*argv, "--version"], whose="own", timeout_s=60, error=ToolError)
    except ToolError as error:
        return f"unknown version ({error})"
    return log.partition("\n")[0]


@lru_cache
def _has_openmp(name: str, argv: tuple[str, ...]) -> bool:
    if name != "clang++":
        return name != "zig"  # g++ brings libgomp, zig brings no runtime
    try:
        library = run_tool(
            [*argv, "-print-file-name=libomp.so"], whose="own", timeout_s=60, error=ToolError
        )
    except ToolError:
        return False
    return Path(library.strip()).is_absolute()  # clang echoes the bare name when it finds none
