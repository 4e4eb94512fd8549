"""The executor's native library, built once per machine from the C++ in ``runtime/``."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from portkern.errors import BackendUnavailable, ToolError
from portkern.spec.backend import Missing
from portkern.toolchain import host
from portkern.toolchain.compilers import Compiler, compiler
from portkern.toolchain.make_once import make_once
from portkern.toolchain.run_tool import cache_root, run_tool

SOURCES = Path(__file__).parent / "runtime"
TABLES = Path(__file__).parent / "tables"
BUILD_S = 600.0
#: Half conversions and fused multiply-add, by which the models are exact.
_NEEDS = {"avx2", "fma", "f16c"}
_FLAGS = (
    "-std=c++17",
    "-O2",
    "-ftree-vectorize",
    "-g1",
    "-fPIC",
    "-Wall",
    "-Wextra",
    "-fwrapv",
    "-fno-math-errno",
    "-fno-trapping-math",
    # Each rounding is an instruction's own.
    "-ffp-contract=off",
)


def find() -> Compiler | Missing:
    """The compiler for it, or why object code cannot be run on this machine."""
    if platform.machine() != "x86_64" or not host.cpu_flags() >= _NEEDS:
        return Missing("AMD object code is run on x86-64 with AVX2, FMA and F16C alone")
    return compiler("x86_64")


def ready() -> Path:
    """The library's file, built if need be. Raises BackendUnavailable where it cannot be."""
    found = find()
    if isinstance(found, Missing):
        raise BackendUnavailable(f"The executor of AMD object code: {found}")
    path = cache_root() / "isa" / version(found) / "libportkern_isa.so"
    make_once(path, lambda to: _build(found, to))
    return path


@cache
def load() -> ctypes.CDLL:
    """Raises BackendUnavailable."""
    library = ctypes.CDLL(str(ready()))
    for name in ("isa_table", "isa_decode", "isa_code"):
        getattr(library, name).restype = ctypes.c_void_p
    library.isa_name.restype = library.isa_encoding.restype = ctypes.c_char_p
    library.isa_count.restype = ctypes.c_uint64
    return library


@cache
def version(found: Compiler) -> str:
    """Changes with the executor's own code and with what builds it."""
    seen = hashlib.sha256(f"{found.name} {found.version} {host.cpu_name()} {_FLAGS}".encode())
    for file in sorted([*SOURCES.iterdir(), *TABLES.iterdir()]):
        seen.update(file.name.encode() + file.read_bytes())
    return seen.hexdigest()[:16]


def _build(found: Compiler, library: Path) -> None:
    zig = found.name == "zig"
    march = "-mcpu=x86_64_v3" if zig else "-march=x86-64-v3"
    work = Path(tempfile.mkdtemp(dir=library.parent))

    def compiled(source: Path) -> Path:
        to = work / f"{source.stem}.o"
        argv: list[str | Path] = [*found.argv, *_FLAGS, march, "-c", source, "-o", to]
        run_tool(argv, whose="own", timeout_s=BUILD_S, error=ToolError)
        return to

    try:
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            objects = list(pool.map(compiled, sorted(SOURCES.glob("*.cpp"))))
        argv: list[str | Path] = [*found.argv, "-shared", *objects, "-o", library]
        run_tool(argv, whose="own", timeout_s=BUILD_S, error=ToolError)
    finally:
        shutil.rmtree(work, ignore_errors=True)
