"""The parts that all emulated kernels share, made once per machine: the runtime and precompiled
headers."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from portkern.errors import BackendUnavailable, ToolError
from portkern.simt.execute import ring_build
from portkern.simt.execute.machine import WIDTHS, Language, macros
from portkern.simt.execute.options import Mode
from portkern.simt.execute.ring_build import RingCompiler
from portkern.simt.translate import ring_code
from portkern.spec.backend import Missing
from portkern.spec.target import Target
from portkern.toolchain import host
from portkern.toolchain.compilers import Compiler, compiler
from portkern.toolchain.make_once import make_once
from portkern.toolchain.run_tool import cache_root, run_tool

HERE = Path(__file__).parents[1]
INCLUDE, RUNTIME = HERE / "include", HERE / "runtime"
UMBRELLA: Mapping[Language, str] = {"cuda": "cuda_runtime.h", "hip": "hip/hip_runtime.h"}
TORCH = "torch/extension.h"  # takes four times as long to read as an umbrella
BUILD_TIMEOUT_S = 600.0  # zig builds a C++ library of its own the first time

_COMMON = (
    "-std=c++17",
    "-fPIC",
    "-w",
    "-UNDEBUG",
    "-fno-strict-aliasing",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=fast",
    "-fstack-clash-protection",
    # What nobody calls is left out of a program, with what it would take from the system.
    "-ffunction-sections",
    "-fdata-sections",
    "-fcheck-new",  # a kernel's new returns null where the heap is full
)
# A kernel is inlined into the loop over its threads, though -fPIC lets others replace it.
_GCC = ("-fno-gnu-unique", "-fno-semantic-interposition")
# Wrapping is what a GPU does; the checked build must see the overflow instead.
_MODES: Mapping[Mode, tuple[str, ...]] = {
    "fast": ("-O2", "-g1", "-fwrapv"),
    "kernel": ("-O1", "-g1", "-fwrapv"),
    "check": (
        "-g1",
        "-DSIMT_CHECK=1",
        "-U__SANITIZE_THREAD__",  # nothing in a source may depend on who looks on
        "-fsanitize=thread",
        "-fsanitize-recover=all",
        "-fsanitize=signed-integer-overflow,integer-divide-by-zero,shift-exponent,bounds,alignment",
    ),
    "asan": (
        "-O1",
        "-g1",
        "-fwrapv",
        "-fsanitize=address,bounds,shift-exponent",
        "-fsanitize-recover=all",
        "-fno-omit-frame-pointer",
    ),
    "cover": ("-O1", "-g1", "-fwrapv", "-DSIMT_COVER=1", "--coverage"),
}
#: Parts of the runtime that compute with a program's numbers.
_ON_NUMBERS = frozenset({"blas.cpp"})
# Compilers drop what is done to memory that is freed next.
_KEEPS_HEAP = ("-fno-builtin-malloc", "-fno-builtin-free")
# What our headers inline must be inlined, or an access's place is in them.
_GCC_CHECK = (
    "-O1",
    *_KEEPS_HEAP,
    "-finline-small-functions",
    "-fno-sanitize=object-size",
    "--param=tsan-distinguish-volatile=1",
    "--param=tsan-instrument-func-entry-exit=0",
)
_CLANG_CHECK = (
    "-O2",
    *_KEEPS_HEAP,
    "-mllvm",
    "-tsan-distinguish-volatile=1",
    "-mllvm",
    "-tsan-instrument-func-entry-exit=0",
)


@dataclass(frozen=True)
class Toolbox:
    """A compiler with the runtime built by it. ``folder`` holds the precompiled headers. ``ring``
    compiles what computes with numbers, where they are elements of a ring."""

    compiler: Compiler
    folder: Path
    ring: RingCompiler | None = None

    @property
    def runtime(self) -> Path:
        return self.folder / "libportkern_simt.so"

    @property
    def gcc(self) -> bool:
        return self.compiler.name.endswith("g++") and "clang" not in self.compiler.name

    def flags(self, mode: Mode) -> list[str]:
        if self.ring is not None:
            return [*_COMMON, *self.ring.flags]
        extra: tuple[str, ...] = _GCC if self.gcc else ()
        if mode == "check":
            extra += _GCC_CHECK if self.gcc else _CLANG_CHECK
        if mode == "cover" and self.gcc:  # before calls are counted a small kernel would be gone
            extra += ("-fno-early-inlining",)
        return [*_COMMON, *_MODES[mode], *extra, *self._march()]

    def _march(self) -> tuple[str, ...]:
        """Fused multiply-add and half conversions in hardware, as GPUs have them."""
        if platform.machine() != "x86_64" or not {"fma", "f16c", "avx2"} <= host.cpu_flags():
            return ()
        return ("-mcpu=x86_64_v3",) if self.compiler.name == "zig" else ("-march=x86-64-v3",)

    def headers(
        self,
        language: Language,
        mode: Mode,
        target: Target | None = None,
        *,
        torch: bool = False,
    ) -> list[str]:
        """The flags that include the language's headers, precompiled at their first use; with
        ``torch``, an extension's as well. The width of the ``target``'s warp, where its compiler
        names it, is part of them: they ask for it, and a compiler takes none that were precompiled
        without a macro that they ask for."""
        known = macros(target, language) if target else {}
        widths = {name: known[name] for name in WIDTHS if name in known}
        included = [UMBRELLA[language], *([TORCH] if torch else [])]
        name = f"{language}-torch-{mode}" if torch else f"{language}-{mode}"
        if self.compiler.name == "zig" or self.ring:  # zig's driver makes no precompiled headers
            defines = [f"-D{macro}={width}" for macro, width in widths.items()]
            return [*defines, *(part for header in included for part in ("-include", header))]
        name = "-".join([name, *dict.fromkeys(widths.values())])
        suffix = ".gch" if self.gcc else ".pch"
        header = self.folder / name / "kernel.h"
        made = Path(f"{header}{suffix}")
        lines = [f"#define {macro} {width}\n" for macro, width in widths.items()]
        lines += [f"#include <{name}>\n" for name in included]
        make_once(made, lambda to: _precompile(self, header, to, lines, mode))
        return ["-include", str(header)] if self.gcc else ["-include-pch", str(made)]


def find() -> Toolbox | Missing:
    """The compiler of this machine, its runtime not yet built."""
    host_compiler = compiler(platform.machine().replace("arm64", "aarch64"))
    if isinstance(host_compiler, Missing):
        return host_compiler
    return Toolbox(host_compiler, cache_root() / "simt" / _digest(host_compiler))


def ready(mode: Mode = "fast") -> Toolbox:
    """The toolbox with its runtime. Raises BackendUnavailable when there is no compiler."""
    box = find()
    if isinstance(box, Missing):
        raise BackendUnavailable(f"The SIMT executor: {box}")
    if mode == "ring":
        ring = ring_build.find(box.compiler)
        if isinstance(ring, Missing):
            raise BackendUnavailable(str(ring))
        box = replace(box, folder=box.folder.with_name(f"{box.folder.name}-ring"), ring=ring)
    make_once(box.runtime, lambda to: _build_runtime(box, to))
    return box


_OF_RING = (Path(ring_build.__file__), Path(ring_code.__file__))


@cache
def _digest(host_compiler: Compiler) -> str:
    """The digest of the executor's sources and the compiler: a runtime that others built is not
    used."""
    seen = hashlib.sha256(
        f"{host_compiler.name} {host_compiler.version} {host.cpu_name()}".encode()
    )
    for file in sorted([*RUNTIME.rglob("*"), *INCLUDE.rglob("*"), Path(__file__), *_OF_RING]):
        if file.is_file() and "__pycache__" not in file.parts:
            seen.update(file.name.encode() + file.read_bytes())
    return seen.hexdigest()[:16]


def _build_runtime(box: Toolbox, library: Path) -> None:
    work = Path(tempfile.mkdtemp(dir=box.folder))
    argv = [
        *box.compiler.argv,
        "-std=c++17",
        "-O2",
        "-g1",
        "-fPIC",
        "-Wall",
        "-Wextra",
        *box._march(),
        "-I",
        str(INCLUDE),
    ]

    def compile_(source: Path) -> Path:
        target = work / f"{source.stem}.o"
        if box.ring is not None and source.name in _ON_NUMBERS:
            flags = [*box.flags("ring"), "-I", str(INCLUDE)]
            box.ring.object(flags, source, target, timeout_s=BUILD_TIMEOUT_S, whose="own")
            return target
        run_tool(
            [*argv, "-c", source, "-o", target],
            whose="own",
            timeout_s=BUILD_TIMEOUT_S,
            error=ToolError,
        )
        return target

    try:
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            objects = list(pool.map(compile_, sorted(RUNTIME.glob("*.cpp"))))
        run_tool(
            [
                *box.compiler.argv,
                "-shared",
                f"-Wl,-soname,{box.runtime.name}",
                # A program that has a function of one of its names does not stand in for it.
                "-Wl,-Bsymbolic-functions",
                *objects,
                "-lpthread",
                "-ldl",
                "-o",
                library,
            ],
            whose="own",
            timeout_s=BUILD_TIMEOUT_S,
            error=ToolError,
        )
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _precompile(box: Toolbox, header: Path, to: Path, lines: Sequence[str], mode: Mode) -> None:
    header.write_text("".join(lines), encoding="utf-8")
    argv = [*box.compiler.argv, *box.flags(mode), "-I", str(INCLUDE), "-x", "c++-header"]
    run_tool([*argv, header, "-o", to], whose="own", timeout_s=BUILD_TIMEOUT_S, error=ToolError)
