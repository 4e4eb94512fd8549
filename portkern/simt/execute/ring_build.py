"""The compiler of ``arithmetic=ring``: clang, whose code for the host gets its floating-point
operations replaced before it becomes an object file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from portkern.errors import BuildError, ToolError
from portkern.simt.translate.ring_code import with_ring
from portkern.spec.backend import Missing
from portkern.toolchain.compilers import Compiler
from portkern.toolchain.run_tool import package_dir, run_tool

#: A rounding mode that is not known keeps the compiler from computing with constants; what it puts
#: together to vectors would only be taken apart again.
_FLAGS = (
    *("-O1", "-g0", "-fwrapv", "-frounding-math", "-fno-vectorize", "-fno-slp-vectorize"),
    *("-ffp-contract=on", "-Wno-everything", "-fbracket-depth=1024", "-DSIMT_RING=1"),
)


_OPERATION = re.compile(r"simt_ring_\w+")


@dataclass(frozen=True)
class RingCompiler:
    """``argv`` starts clang for C++ with the headers of this machine's C++ library."""

    argv: tuple[str, ...]

    @property
    def flags(self) -> tuple[str, ...]:
        return _FLAGS

    def object(
        self,
        argv: Sequence[str | Path],
        source: Path,
        to: Path,
        *,
        timeout_s: float,
        cwd: Path | None = None,
        whose: Literal["own", "foreign"] = "foreign",
    ) -> None:
        """Compiles ``source`` with the flags ``argv`` to the object file ``to``. Raises BuildError
        for what the compiler rejects and for operations that elements do not have."""
        assembly = to.with_suffix(".ll")
        made: list[str | Path] = ["-S", "-emit-llvm", source, "-o", assembly]
        run_tool([*self.argv, *argv, *made], whose=whose, timeout_s=timeout_s, cwd=cwd)
        code = assembly.read_text("utf-8")
        if whose == "foreign":
            _refuse_named(code)
        assembly.write_text(with_ring(code), encoding="utf-8")
        last: list[str | Path] = [
            "-Wno-everything",
            "-fPIC",
            "-O1",
            "-x",
            "ir",
            "-c",
            assembly,
            "-o",
            to,
        ]
        run_tool([*self.argv, *last], whose=whose, timeout_s=timeout_s, cwd=cwd)


def _refuse_named(code: str) -> None:
    """Raises BuildError for code that names an operation on elements by itself, which it could tell
    another result than the one that it writes."""
    if named := set(_OPERATION.findall(code)) - _of_headers():
        raise BuildError(f"The program names an operation of arithmetic=ring ({min(named):.60})")


@cache
def _of_headers() -> frozenset[str]:
    """The operations that the executor's headers call."""
    header = Path(__file__).parents[1] / "include" / "simt" / "ring.h"
    return frozenset(_OPERATION.findall(header.read_text("utf-8")))


@cache
def find(host: Compiler) -> RingCompiler | Missing:
    """A clang whose objects link with those of ``host``."""
    if host.name == "clang++":
        return RingCompiler(host.argv)
    zig = package_dir("ziglang")
    if zig is None or not host.name.endswith("g++"):
        return Missing(
            f"arithmetic=ring needs clang beside {host.name}", "pip install ziglang, with g++"
        )
    # The driver by itself: zig's own would bring another C++ library.
    argv = [str(zig / "zig"), "clang", "--driver-mode=g++", "-nostdinc"]
    folders = _headers(host)
    own = [folder for folder in folders if "/gcc/" in folder]
    for folder in (str(zig / "lib" / "include"), *(f for f in folders if f not in own)):
        argv += ["-isystem", folder]
    for folder in own:  # g++'s own, of which clang brings most
        argv += ["-idirafter", folder]
    return RingCompiler(tuple(argv))


def _headers(host: Compiler) -> list[str]:
    """The folders of headers that g++ looks into."""
    log = run_tool(
        [*host.argv, "-E", "-v", "-x", "c++", "/dev/null"],
        whose="own",
        timeout_s=60,
        error=ToolError,
    )
    listed = log.partition("#include <...>")[2].partition("End of search list")[0]
    return [line.strip() for line in listed.splitlines()[1:] if line.strip()]
