"""Compiles a CUDA or HIP source as host code: a library of kernels, a program with main(), or an
extension of PyTorch."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from shutil import which

from portkern.cuda_source.assembler import statements
from portkern.errors import BuildError, ConfigError
from portkern.simt.diagnostics import Diagnostic, Severity
from portkern.simt.execute import runtime_library
from portkern.simt.execute.compile_options import (
    COMPILE_TIMEOUT_S,
    CompileOptions,
    UnmodelledSource,
    language_of,
)
from portkern.simt.execute.machine import WIDTHS, Language, macros
from portkern.simt.execute.options import Mode
from portkern.simt.execute.runtime_library import INCLUDE, Toolbox
from portkern.simt.translate import rewrite
from portkern.simt.translate.includes import includes_device_code
from portkern.simt.translate.unmodelled import undefined, unmodelled
from portkern.spec.target import Target
from portkern.toolchain.run_tool import run_tool
from portkern.toolchain.source_tree import SourceTree

__all__ = [
    "COMPILE_TIMEOUT_S",
    "HOST_SUFFIXES",
    "CompileOptions",
    "ProgramSource",
    "UnmodelledSource",
    "build_extension",
    "build_library",
    "build_program",
    "language_of",
]

#: Files of C++ for the host.
HOST_SUFFIXES = frozenset([".cpp", ".cc", ".cxx", ".c++", ".C"])


@dataclass(frozen=True)
class ProgramSource:
    """``text`` of a file called ``name``; ``prelude`` goes before its first line. ``search`` are
    folders of includes, ``defines`` macros. ``tree`` holds what is to be rewritten with
    it."""

    text: str
    name: str
    language: Language
    prelude: str = ""
    search: tuple[Path, ...] = ()
    defines: tuple[str, ...] = ()
    tree: SourceTree | None = None


_FAST = CompileOptions()


def build_library(source: ProgramSource, target: Target, mode: Mode, workdir: Path) -> Path:
    """A shared library of the kernels and host functions in ``source``.

    Raises Unmodelled for what the executor cannot run and BuildError for what is not C++.
    """
    box = runtime_library.ready()
    tree = source.tree
    with_kernels = includes_device_code(source.text, source.search)
    if tree is not None and (tree.search or with_kernels):
        object_ = _compile_unit(box, source, tree, target, mode, workdir)
    else:
        rewritten = rewrite.rewrite(source.text, source.name, library=True)
        _refuse(rewritten.diagnostics)
        file = workdir / f"{Path(source.name).stem}-{mode}.cpp"
        file.write_text(source.prelude + rewritten.text, encoding="utf-8")
        made, text = file.with_suffix(".o"), rewritten.text
        object_ = _compile(box, file, text, source, target, mode, made, includes=source.search)
    library = workdir / f"{Path(source.name).stem}-{mode}.so"
    run_tool(
        [*_linker(box), "-shared", object_, box.runtime, "-o", library],
        whose="foreign",
        timeout_s=COMPILE_TIMEOUT_S,
        cwd=workdir,
    )
    return library


def build_program(
    path: Path, out: Path, options: CompileOptions = _FAST, *, further: Sequence[Path] = ()
) -> Path:
    """The executable of source files of which one has main(), as ``out``, which
    :mod:`portkern.simt.execute.program` runs; with ``options.objects`` a library, whose main()
    :mod:`portkern.worker.object_program` calls. Of the ``further`` files, those of HOST_SUFFIXES
    are the host's own C++ and see no names of the device."""
    box, out = runtime_library.ready(options.mode), out.absolute()
    options = replace(options, language=options.language or language_of(path, *further))
    objects = [_compile_tree(box, path, out, options)]
    for n, file in enumerate(further):
        part = out.with_name(f"{out.name}-{n}")
        compile_ = _compile_host if is_host(file) else _compile_tree
        objects.append(compile_(box, file, part, options))
    if options.statements:
        _list_statements(objects, listing(out))
    extra = [*_LINKED.get(options.mode, ()), *_openmp(box, _joined([path, *further]))]
    extra += _reached(out, "main") if options.objects else ["-Wl,--gc-sections"]
    libraries: list[str | Path] = [box.runtime, f"-Wl,-rpath,{box.folder}", "-lpthread"]
    try:
        run_tool(
            [*_linker(box), *extra, *objects, *libraries, "-o", out],
            whose="foreign",
            timeout_s=runtime_library.BUILD_TIMEOUT_S,
        )
    except BuildError as error:
        diagnostics = undefined(error.log, path.name)
        if diagnostics:
            raise UnmodelledSource(diagnostics, log=error.log) from error
        raise
    return out


def _reached(out: Path, roots: str) -> list[str]:
    """The flags for a library of what these functions call: as in a program, one that nobody calls
    may need others that are not here."""
    exports = out.with_name(f"{out.name}.exports")
    exports.write_text(f"{{ global: {roots}; local: *; }};\n", encoding="utf-8")
    return ["-shared", "-Wl,--gc-sections", f"-Wl,--version-script={exports}"]


def listing(program: Path) -> Path:
    """The file that lists the statements of assembler of a program or an extension, as a list of
    JSON."""
    return program.with_name(f"{program.name}.assembler")


def _list_statements(objects: Sequence[Path], to: Path) -> None:
    """Each once; '?' for what is too long to be looked at."""
    found: dict[str, None] = {}
    for preprocessed in (object_.with_suffix(".ii") for object_ in objects):
        found |= dict.fromkeys(statements(preprocessed.read_text("utf-8", errors="replace")))
    kept = [text if len(text) <= MOST_STATEMENT else "?" for text in found]
    to.write_text(json.dumps(kept if len(kept) <= MOST_STATEMENTS else ["?"]), encoding="utf-8")


#: The most statements of a program's assembler that are listed, and the most characters of each.
MOST_STATEMENTS, MOST_STATEMENT = 2000, 2000
_LINKED: Mapping[Mode, tuple[str, ...]] = {
    "asan": ("-fsanitize=address",),
    "cover": ("--coverage",),
}


def build_extension(
    path: Path, out: Path, options: CompileOptions = _FAST, *, further: Sequence[Path] = ()
) -> Path:
    """The library ``out`` of source files of which one has PYBIND11_MODULE, which
    :func:`portkern.simt.torch_extension.bindings.load` opens. TORCH_EXTENSION_NAME is the first
    file's name unless ``options.defines`` has it; "asan" needs a program of its own."""
    if options.mode == "asan":
        raise ConfigError("An extension is built with mode 'fast' or 'check', got 'asan'")
    box, out = runtime_library.ready(), out.absolute()
    objects = [
        _compile_tree(box, file, out.with_name(f"{out.name}-{n}"), options)
        for n, file in enumerate((path, *further))
    ]
    shared = ["-shared"]
    if options.statements:  # what it calls is looked at as well
        _list_statements(objects, listing(out))
        shared = _reached(out, "simt_*")
    run_tool(
        [
            *_linker(box),
            *shared,
            *_LINKED.get(options.mode, ()),
            *objects,
            box.runtime,
            "-o",
            out,
        ],
        whose="foreign",
        timeout_s=runtime_library.BUILD_TIMEOUT_S,
    )
    return out


_OF_DEVICES = re.compile(r"\b__(global|device)__\b|<<<|\bhipLaunchKernelGGL\b")


def is_host(file: Path) -> bool:
    """Whether it is C or C++ without code of devices, which hipcc takes in any file."""
    return file.suffix in HOST_SUFFIXES | {".c"} and not _OF_DEVICES.search(_joined([file]))


def _openmp(box: Toolbox, text: str) -> list[str]:
    """The flags for OpenMP, whose functions are called in sources that are built with it
    elsewhere."""
    return ["-fopenmp"] if box.gcc and "<omp.h>" in text else []


def _compiled_openmp(box: Toolbox, text: str) -> list[str]:
    """The same for the compiler, but for clang, which has another runtime: one thread will do."""
    return [] if box.ring is not None else _openmp(box, text)


def _compile_tree(box: Toolbox, path: Path, out: Path, options: CompileOptions) -> Path:
    """The object file of ``path``, rewritten with what it includes into a folder beside ``out``."""
    # The compiler is called elsewhere: what it is given must not depend on where.
    path = path.absolute()
    search = tuple(folder.absolute() for folder in options.search)
    defines = tuple(options.defines)
    source = ProgramSource(
        "", path.name, options.language or language_of(path), "", search, defines
    )
    folder = out.with_name(f"{out.name}.src")
    tree = rewrite.rewrite_tree(
        path, folder, search=source.search, library=False, objects=options.objects
    )
    if not options.objects:  # what is compiled for the target needs no model here
        _refuse(tree.diagnostics)
    includes = [*tree.includes, path.parent, *source.search]
    written = [part for part in folder.rglob("*") if part.is_file() and part.suffix != ".o"]
    return _compile(
        box,
        tree.main,
        _joined(written),
        source,
        options.target,
        options.mode,
        out.with_name(f"{out.name}.o"),
        includes=includes,
        timeout_s=options.timeout_s,
        objects=options.objects,
        listed=options.statements,
    )


def _compile_host(box: Toolbox, path: Path, out: Path, options: CompileOptions) -> Path:
    """The object file of C++ that no compiler for devices would see."""
    object_ = out.with_name(f"{out.name}.o")
    folders = [part for folder in (*options.search, INCLUDE) for part in ("-I", str(folder))]
    defines = ["-DSIMT_HOST_SOURCE=1", *(f"-D{define}" for define in options.defines)]
    flags = [*box.flags("fast"), *_compiled_openmp(box, _joined([path]))]
    if path.suffix == ".c":
        flags = [flag for flag in flags if not flag.startswith(("-std=", "-fno-rtti"))]
    argv = [*flags, *defines, *folders, "-x", "c" if path.suffix == ".c" else "c++"]
    for how, made in _steps(box, object_, listed=options.statements):
        _call(
            box,
            [*argv, *how],
            path.absolute(),
            made,
            name=path.name,
            timeout_s=options.timeout_s,
            cwd=None,
        )
    return object_


def _steps(box: Toolbox, object_: Path, *, listed: bool) -> Iterator[tuple[Sequence[str], Path]]:
    """Yields the flags of each call of the compiler, and the file that it makes. What precompiled
    headers hold is not listed: they are ours."""
    yield ["-c"], object_
    if listed:
        yield ["-E", *(["-fpch-preprocess"] if box.gcc else [])], object_.with_suffix(".ii")


def _call(
    box: Toolbox,
    argv: Sequence[str],
    file: Path,
    to: Path,
    *,
    name: str,
    timeout_s: float,
    cwd: Path | None,
) -> None:
    """Compile the file of that name. Raises UnmodelledSource where what it lacks has a number."""
    try:
        if box.ring is not None and "-c" in argv:
            flags = [flag for flag in argv if flag != "-c"]
            box.ring.object(flags, file, to, timeout_s=timeout_s, cwd=cwd)
        else:
            compiler = box.ring or box.compiler
            whole = [*compiler.argv, *argv, str(file), "-o", str(to)]
            run_tool(whole, whose="foreign", timeout_s=timeout_s, cwd=cwd)
    except BuildError as error:
        diagnostics = unmodelled(error.log, name)
        if diagnostics:
            raise UnmodelledSource(diagnostics, log=error.log) from error
        raise


def _joined(files: Sequence[Path]) -> str:
    return "".join(part.read_text(encoding="utf-8", errors="replace") for part in files)


def _compile_unit(
    box: Toolbox, source: ProgramSource, tree: SourceTree, target: Target, mode: Mode, workdir: Path
) -> Path:
    """The object file of a source and of what it includes of its project's and of our files."""
    tree = replace(tree, path=tree.path or source.name)
    file = tree.beside / f".unit-{source.name}"
    file.write_text(source.text + tree.after, encoding="utf-8")
    folder = workdir / f".simt-{mode}"
    search = (*tree.include, *source.search)
    unit = rewrite.rewrite_tree(file, folder, search=search, library=True, project=tree)
    _refuse(unit.diagnostics)
    text = _joined([part for part in folder.rglob("*") if part.is_file()])
    unit.main.write_text(source.prelude + unit.main.read_text("utf-8"), encoding="utf-8")
    source = replace(source, defines=(*source.defines, *tree.defines))
    includes = [*unit.includes, *tree.search, *source.search]
    made = unit.main.with_suffix(".o")
    return _compile(box, unit.main, text, source, target, mode, made, includes=includes)


def _compile(
    box: Toolbox,
    file: Path,
    text: str,
    source: ProgramSource,
    target: Target | None,
    mode: Mode,
    object_: Path,
    includes: Sequence[Path],
    timeout_s: float = COMPILE_TIMEOUT_S,
    objects: bool = False,
    listed: bool = False,
) -> Path:
    """The object of ``file``; ``text`` is all that it and its local includes hold. Where it is
    ``listed``, what it is preprocessed to lies beside. Counts of coverage come back by the object's
    name, which no other one of a program may have."""
    named: Mapping[str, str] = macros(target, source.language) if target else {}
    defines = [f"-D{name}={value}" for name, value in named.items() if name not in WIDTHS]
    defines += [f"-D{define}" for define in source.defines]
    folders = [part for folder in (*includes, INCLUDE) for part in ("-I", str(folder))]
    torch = runtime_library.TORCH in text and source.language == "cuda"  # these headers are CUDA's
    if torch and not any(define.startswith("TORCH_EXTENSION_NAME=") for define in source.defines):
        defines.append("-DTORCH_EXTENSION_NAME=" + re.sub(r"\W", "_", Path(source.name).stem))
    headers = box.headers(source.language, mode, target, torch=torch)
    flags = [*box.flags(mode), *defines, *folders, *headers]
    amd = source.language == "hip" and (target is None or target.vendor == "amd")
    flags += [*_further_headers(text, amd=amd), *_compiled_openmp(box, text)]
    flags += ["-include", "simt/object.h"] if objects else []
    argv = [*flags, "-x", "c++"]
    for how, made in _steps(box, object_, listed=listed):
        _call(
            box,
            [*argv, *how],
            file,
            made,
            name=source.name,
            timeout_s=timeout_s,
            cwd=file.parent,
        )
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


def _refuse(diagnostics: Sequence[Diagnostic]) -> None:
    errors = [diagnostic for diagnostic in diagnostics if diagnostic.severity is Severity.ERROR]
    if errors:
        raise UnmodelledSource(errors)


@cache
def _fast_linker() -> tuple[str, ...]:
    """gold links a kernel in 50 ms, bfd in 120."""
    return ("-fuse-ld=gold",) if which("ld.gold") else ()


#: Called in a kernel, they mean the device's heap: runtime/heap.cpp has what they become.
_OF_HEAP = (
    *("malloc", "free"),
    *("_Znwm", "_Znam", "_ZnwmRKSt9nothrow_t", "_ZnamRKSt9nothrow_t"),
    *("_ZnwmSt11align_val_t", "_ZnamSt11align_val_t"),
    *("_ZdlPv", "_ZdaPv", "_ZdlPvm", "_ZdaPvm"),
    *("_ZdlPvSt11align_val_t", "_ZdaPvSt11align_val_t"),
    *("_ZdlPvmSt11align_val_t", "_ZdaPvmSt11align_val_t"),
)
_WRAP = tuple(f"-Wl,--wrap={name}" for name in _OF_HEAP)


def _linker(box: Toolbox) -> list[str]:
    if box.compiler.name == "zig":
        # The checked build's callbacks are the runtime's, not zig's.
        # Its driver knows no --wrap: there, a kernel's heap is the process's own.
        return [sys.executable, "-m", "ziglang", "c++", "-O2", "-fno-sanitize=all"]
    return [*box.compiler.argv, *_fast_linker(), *_WRAP]
