"""Compiles a CUDA or HIP source as host code: a library of kernels, a program with main(), or an
extension of PyTorch."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from shutil import which

from portkern.errors import BuildError, ConfigError
from portkern.simt.diagnostics import Diagnostic, Severity
from portkern.simt.execute import runtime_library
from portkern.simt.execute.machine import Language, macros
from portkern.simt.execute.options import Mode
from portkern.simt.execute.runtime_library import INCLUDE, Toolbox
from portkern.simt.translate import rewrite
from portkern.simt.translate.unmodelled import unmodelled
from portkern.spec.target import Target
from portkern.toolchain.run_tool import run_tool

COMPILE_TIMEOUT_S = 180.0


class UnmodelledSource(BuildError):
    """The source uses what the executor has no model of; ``found`` names each with its line."""

    def __init__(self, found: Sequence[Diagnostic], *, log: str = "") -> None:
        super().__init__("; ".join(map(str, found)), log=log)
        self.found = tuple(found)


@dataclass(frozen=True)
class Source:
    """``text`` of a file called ``name``; ``prelude`` goes before its first line. ``search`` are
    folders of quoted includes, ``defines`` macros."""

    text: str
    name: str
    language: Language
    prelude: str = ""
    search: tuple[Path, ...] = ()
    defines: tuple[str, ...] = ()


def build_library(source: Source, target: Target, mode: Mode, workdir: Path) -> Path:
    """A shared library of the kernels and host functions in ``source``.

    Raises Unmodelled for what the executor cannot run and BuildError for what is no C++.
    """
    box = runtime_library.ready()
    rewritten = rewrite.rewrite(source.text, source.name, library=True)
    _refuse(rewritten.found)
    file = workdir / f"{Path(source.name).stem}-{mode}.cpp"
    file.write_text(source.prelude + rewritten.text, encoding="utf-8")
    object_ = _compile(box, file, rewritten.text, source, target, mode, includes=source.search)
    library = file.with_suffix(".so")
    run_tool(
        [*_linker(box), "-shared", object_, box.runtime, "-o", library],
        timeout_s=COMPILE_TIMEOUT_S,
        cwd=workdir,
    )
    return library


def build_program(
    path: Path,
    out: Path,
    *,
    target: Target | None = None,
    language: Language | None = None,
    mode: Mode = "fast",
    defines: Sequence[str] = (),
    search: Sequence[Path] = (),
) -> Path:
    """The executable of a source file with main(), as ``out``. Its facts are ``target``'s (H100's
    when None). :mod:`portkern.simt.execute.program` runs it."""
    box, out = runtime_library.ready(), out.absolute()
    source = Source("", path.name, language or language_of(path), "", tuple(search), tuple(defines))
    object_ = _compile_tree(box, path, out, source, target, mode)
    extra = ["-fsanitize=address"] if mode == "asan" else []
    run_tool(
        [
            *_linker(box),
            *extra,
            object_,
            box.runtime,
            f"-Wl,-rpath,{box.folder}",
            "-lpthread",
            "-o",
            out,
        ],
        timeout_s=runtime_library.BUILD_TIMEOUT_S,
    )
    return out


def build_extension(
    path: Path,
    out: Path,
    *,
    target: Target | None = None,
    language: Language | None = None,
    mode: Mode = "fast",
    defines: Sequence[str] = (),
    search: Sequence[Path] = (),
) -> Path:
    """The library ``out`` of a source file with PYBIND11_MODULE, which
    :func:`portkern.simt.torch_extension.bindings.load` opens. TORCH_EXTENSION_NAME is the file's
    name unless ``defines`` has it. Facts as in :func:`build_program`; "asan" needs a program of
    its own."""
    if mode == "asan":
        raise ConfigError("An extension is built with mode 'fast' or 'check', got 'asan'")
    box, out = runtime_library.ready(), out.absolute()
    source = Source("", path.name, language or language_of(path), "", tuple(search), tuple(defines))
    object_ = _compile_tree(box, path, out, source, target, mode)
    run_tool(
        [*_linker(box), "-shared", object_, box.runtime, "-o", out],
        timeout_s=runtime_library.BUILD_TIMEOUT_S,
    )
    return out


def language_of(path: Path) -> Language:
    return "hip" if path.suffix == ".hip" else "cuda"


def _compile_tree(
    box: Toolbox, path: Path, out: Path, source: Source, target: Target | None, mode: Mode
) -> Path:
    """The object file of ``path``, rewritten with what it includes into a folder beside ``out``."""
    folder = out.with_name(f"{out.name}.src")
    tree = rewrite.rewrite_tree(path, folder, search=source.search, library=False)
    _refuse(tree.found)
    includes = [*tree.includes, path.parent, *source.search]
    written = [part for part in folder.rglob("*") if part.is_file() and part.suffix != ".o"]
    everything = "".join(part.read_text(encoding="utf-8", errors="replace") for part in written)
    return _compile(box, tree.main, everything, source, target, mode, includes=includes)


def _compile(
    box: Toolbox,
    file: Path,
    text: str,
    source: Source,
    target: Target | None,
    mode: Mode,
    includes: Sequence[Path],
) -> Path:
    """The object file of ``file``; ``text`` is all that it and its local includes hold."""
    object_ = file.with_suffix(".o")
    named: Mapping[str, str] = macros(target, source.language) if target else {}
    defines = [f"-D{name}={value}" for name, value in named.items()]
    defines += [f"-D{define}" for define in source.defines]
    folders = [part for folder in (*includes, INCLUDE) for part in ("-I", str(folder))]
    torch = runtime_library.TORCH in text and source.language == "cuda"  # these headers are CUDA's
    if torch and not any(define.startswith("TORCH_EXTENSION_NAME=") for define in source.defines):
        defines.append("-DTORCH_EXTENSION_NAME=" + re.sub(r"\W", "_", Path(source.name).stem))
    headers = box.headers(source.language, mode, torch=torch)
    flags = [*box.flags(mode), *defines, *folders, *headers]
    amd = source.language == "hip" and (target is None or target.vendor == "amd")
    flags += _further_headers(text, amd=amd)
    argv = [*box.compiler.argv, *flags, "-x", "c++", "-c", str(file), "-o", str(object_)]
    try:
        run_tool(argv, timeout_s=COMPILE_TIMEOUT_S, cwd=file.parent)
    except BuildError as error:
        found = unmodelled(error.log, source.name)
        if found:
            raise UnmodelledSource(found, log=error.log) from error
        raise
    return object_


# What few sources use is left out of the headers that all include.
_FURTHER = {
    "simt::ptx::": "simt/ptx.h",
    "simt::ext_vector": "simt/ext_vector.h",
    "__builtin_amdgcn_": "simt/mfma.h",
}


def _further_headers(text: str, *, amd: bool) -> list[str]:
    used = [header for word, header in _FURTHER.items() if word in text]
    if amd and "simt/ptx.h" in used:
        used.remove("simt/ptx.h")  # an AMD GPU has no PTX: its use is an error of the compiler
    return [part for header in used for part in ("-include", header)]


def _refuse(found: Sequence[Diagnostic]) -> None:
    errors = [one for one in found if one.severity is Severity.ERROR]
    if errors:
        raise UnmodelledSource(errors)


@cache
def _fast_linker() -> tuple[str, ...]:
    """gold links a kernel in 50 ms, bfd in 120."""
    return ("-fuse-ld=gold",) if which("ld.gold") else ()


def _linker(box: Toolbox) -> list[str]:
    if box.compiler.name == "zig":
        # The checked build's callbacks are the runtime's, not zig's.
        return [sys.executable, "-m", "ziglang", "c++", "-O2", "-fno-sanitize=all"]
    return [*box.compiler.argv, *_fast_linker()]
