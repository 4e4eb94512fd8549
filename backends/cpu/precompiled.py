"""The header that stands before every C++ kernel, read by the compiler once per target: reading
what it includes takes three quarters of a small kernel's compilation."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from portkern.errors import ToolError
from portkern.toolchain.compilers import Compiler
from portkern.toolchain.make_once import make_once
from portkern.toolchain.run_tool import cache_root, run_tool

TIMEOUT_S = 120.0


def prepare(compiler: Compiler, header: Path, flags: Sequence[str]) -> Sequence[Path]:
    """The folder that :func:`include` needs to read; none where nothing is precompiled."""
    if not _able(compiler):
        return ()
    made = _made(compiler, header, flags)

    def compile_(to: Path) -> None:
        umbrella = made.with_suffix("")
        umbrella.write_text(f'#include "{header.name}"\n', encoding="utf-8")
        argv = [*compiler.argv, *flags, "-I", str(header.parent), "-x", "c++-header"]
        run_tool([*argv, umbrella, "-o", to], whose="own", timeout_s=TIMEOUT_S, error=ToolError)

    with suppress(ToolError, OSError):  # the kernel's own compilation reads the header, or says why
        make_once(made, compile_)
    return (made.parent,) if made.exists() else ()


def include(compiler: Compiler, header: Path, flags: Sequence[str]) -> list[str]:
    """The arguments with which the compiler begins with the header as it was precompiled with
    these flags. Empty if it was not: sources include the header themselves, which then has no
    effect."""
    made = _made(compiler, header, flags)
    return ["-include", str(made.with_suffix(""))] if _able(compiler) and made.exists() else []


def _able(compiler: Compiler) -> bool:
    """zig's driver makes no precompiled headers, clang wants to be told of each by another flag."""
    return compiler.name == "g++"


def _made(compiler: Compiler, header: Path, flags: Sequence[str]) -> Path:
    """g++ itself makes sure that it was another g++ or other flags that made it."""
    parts = [*compiler.argv, compiler.version, *flags, str(header), header.read_text("utf-8")]
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    return cache_root() / "headers" / digest / "kernel.h.gch"
