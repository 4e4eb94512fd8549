"""Precompiled headers of the libraries that many files begin with: PyTorch's, for one target each.

They take as long as one build to make, and spare each other build nine tenths of its time.
Templates that they instantiate are instantiated in them, once.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from portkern.errors import BuildError, PortkernError
from portkern.spec.file_build import FileBuild, FirstHeaders
from portkern.toolchain import make_rule
from portkern.toolchain.make_once import make_once
from portkern.toolchain.run_tool import cache_root, package_version, run_tool

from . import clang, whole_file
from .precompiled import BUILD_S, FIRST, environment, without_code

_NAME = "first.pch"
#: About 150 MB each: those that were used last are kept, and those that compilers may be reading.
#: Where there are so many of these, no more are made.
_MOST_KEPT, _MOST_READ, _READ_S = 16, 64, 3600.0
#: What could not be made is tried again by later processes, after a day where the compiler said so.
_FAILED: set[Path] = set()
_FAILED_S = 86400.0


def home() -> Path:
    return cache_root() / "hip-first"


def made(compiler: clang.Clang, request: FileBuild, first: FirstHeaders) -> Path | None:
    """The file for what is built. None where it cannot be made, where a header in it asks for a
    macro that the file defines before it, and where a folder of the file's own has another header
    by one of the names that they include."""
    alone = replace(request, include=first.include, defines=first.defines, further=())
    file = _place(compiler, alone, first.names)
    if file in _FAILED:
        return None
    try:
        make_once(file, lambda to: _try(compiler, alone, first.names, to))
    except (BuildError, PortkernError, OSError):  # a cache may be full, read-only or locked
        _FAILED.add(file)
        return None
    own = [folder for folder in request.include if folder not in first.include]
    given = {define.partition("=")[0] for define in {*request.defines} - {*first.defines}}
    try:
        os.utime(file.parent)  # it was used
        headers = tuple(make_rule.prerequisites(file.with_suffix(".d")))
        differs = _shadowed(headers, own, first.include)
        differs = differs or _asked(headers, frozenset({*first.macros, *given}))
    except OSError:  # another process has just removed it, or a folder cannot be read
        return None
    return None if differs else file


def _place(compiler: clang.Clang, alone: FileBuild, names: Sequence[str]) -> Path:
    whole = (compiler, package_version("torch"), alone.target.arch, alone.standard)
    parts = (*whole, alone.include, alone.defines, names, clang.digest(compiler))
    mark = hashlib.sha256(repr(parts).encode()).hexdigest()[:24]
    return home() / mark / _NAME


def _try(compiler: clang.Clang, alone: FileBuild, names: Sequence[str], to: Path) -> None:
    """Makes it, unless the compiler has lately refused to. Raises BuildError."""
    failed = to.parent / "failed"
    if failed.is_file() and time.time() - failed.stat().st_mtime < _FAILED_S:
        raise BuildError("These headers could not be precompiled")
    os.utime(to.parent)
    _forget()
    if len(list(home().glob(f"*/{_NAME}"))) >= _MOST_READ:
        raise BuildError(f"{home()} has {_MOST_READ} precompiled headers that may be read now")
    try:
        _make(compiler, alone, names, to)
    except BuildError:
        failed.touch()
        raise


def _make(compiler: clang.Clang, alone: FileBuild, names: Sequence[str], to: Path) -> None:
    folder = to.parent
    source, listed = folder / FIRST, folder / "first.d"
    text = "#include <hip/hip_runtime.h>\n" + "".join(f"#include <{name}>\n" for name in names)
    source.write_text(text, encoding="utf-8")
    with tempfile.TemporaryDirectory() as box:
        argv = without_code(list(map(str, whole_file.line(compiler, alone, listed))))
        argv += ["-Xclang", "-emit-pch", "-Xclang", "-fpch-instantiate-templates"]
        place = Path(box)
        run_tool(
            [*argv, str(source), "-o", str(to)],
            whose="own",
            timeout_s=BUILD_S,
            cwd=place,
            env=environment(place),
        )


def _forget() -> None:
    """Removes those that were not used for longest, and files in their places."""
    folders = sorted((used, folder) for folder in home().iterdir() if (used := _used(folder)))
    for number, (used, folder) in enumerate(reversed(folders)):
        with suppress(OSError):
            if not folder.is_dir():
                folder.unlink()
            elif number >= _MOST_KEPT and time.time() - used > _READ_S:
                for file in folder.iterdir():
                    file.unlink(missing_ok=True)
                folder.rmdir()


def _used(folder: Path) -> float:
    """When it was used last; 0 where another process has removed it."""
    try:
        return folder.stat().st_mtime
    except OSError:
        return 0.0


def _shadowed(headers: Iterable[Path], own: Iterable[Path], include: Sequence[Path]) -> bool:
    """Whether a folder that the file's headers are looked for in first has one of these."""
    roots = sorted(include, key=lambda folder: -len(folder.parts))
    names = {name for header in headers for name in _names(header, roots)}
    there = [folder for folder in own if folder.is_dir()]
    return any(entry.name in names for folder in there for entry in folder.iterdir())


def _names(header: Path, roots: Sequence[Path]) -> tuple[str, ...]:
    """The words that the name of a header may begin with as an #include has it."""
    root = next((root for root in roots if header.is_relative_to(root)), None)
    if root is not None:
        return header.relative_to(root).parts[:1]
    return header.name, header.parent.name


@lru_cache(maxsize=256)
def _asked(headers: tuple[Path, ...], macros: frozenset[str]) -> bool:
    """Whether one of these headers has the name of one of the macros."""
    if not macros:
        return False
    name = re.compile(rb"\b(?:%s)\b" % b"|".join(map(re.escape, map(str.encode, sorted(macros)))))
    return any(name.search(header.read_bytes()) for header in headers if header.is_file())
