"""Builds the device side of a whole HIP file, host code and all: what a port's files are.

Host code is parsed, as device compilation does, and not compiled: its headers must be there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

from portkern.errors import BackendUnavailable, BuildError, BuildTimeout
from portkern.spec.backend import Missing
from portkern.spec.file_build import FileBuild, FileObject
from portkern.toolchain import make_rule
from portkern.toolchain.run_tool import run_tool

from ..gpu import INCLUDE as PORTABLE
from . import clang, codeobject, rocm
from .precompiled import FIRST, environment, without_includes

#: What host code includes and device code does without: declarations, and libc++ in full.
HOST = Path(__file__).parent / "include" / "host"


def build(request: FileBuild, workdir: Path) -> FileObject:
    hipcc, fallback = rocm.find(), clang.find()
    if isinstance(hipcc, rocm.Hipcc) and not request.further:
        return _with_hipcc(hipcc, request, workdir)
    if isinstance(fallback, Missing):
        raise BackendUnavailable(str(fallback))
    return _with_clang(fallback, request, workdir)


def _flags(request: FileBuild, listed: Path) -> list[str]:
    """``-w``: warnings of a library that is not ours would fill the log."""
    return [
        f"--offload-arch={request.target.arch}",
        "--offload-device-only",
        "-O3",
        # Who executes the object says lines; the code stays the same.
        *("-gline-tables-only", "-gdwarf-4"),
        f"-std={request.standard}",
        "-w",
        "-ferror-limit=20",
        # The compiler's own options: the driver leaves -MF out for one side of a compilation.
        *(
            part
            for option in ("-dependency-file", str(listed), "-MT", "object")
            for part in ("-Xclang", option)
        ),
        *(f"-D{text}" for text in request.defines),
        *(flag for folder in request.include for flag in ("-I", str(folder))),
    ]


def _with_clang(compiler: clang.Clang, request: FileBuild, workdir: Path) -> FileObject:
    output, listed = _outputs(request, workdir)
    env, logs, compiled, headers = environment(workdir), [""], [], dict[Path, None]()

    def run(argv: Sequence[str | Path]) -> str:
        return run_tool(argv, whose="foreign", timeout_s=request.timeout_s, cwd=workdir, env=env)

    for number, source in enumerate((request.file, *request.further)):
        compiled.append(output.with_suffix(f".{number}.o"))
        compile_line = line(compiler, request, listed)
        rest: list[str | Path] = [*clang.constants(compiler, request.target, workdir)]
        rest += [source, "-o", compiled[-1]]
        logs.append(_compiled(run, compile_line, rest, request.precompiled))
        headers |= dict.fromkeys(_headers(listed))
    link: list[str | Path] = [
        compiler.zig,
        "ld.lld",
        "-shared",
        "--no-undefined",
        *([f"-plugin-opt=mcpu={request.target.arch}"] if request.further else ()),
        *compiled,
        "-o",
        output,
    ]
    logs.append(run_tool(link, whose="foreign", timeout_s=request.timeout_s, cwd=workdir, env=env))
    return FileObject(output, codeobject.kernels(output), tuple(headers), "".join(logs))


def line(compiler: clang.Clang, request: FileBuild, listed: Path) -> list[str | Path]:
    """Clang's line without a source and an output."""
    flags = compiler.flags(site=HOST / "libcxx_site.h", first=(HOST,))
    if request.further:
        flags = clang.relocatable(flags)
    start = (compiler.zig, "clang", "-x", "hip")
    return [*start, *_flags(request, listed), *flags, "-include", HOST / "declarations.h"]


def _compiled(
    run: Callable[[Sequence[str | Path]], str],
    argv: Sequence[str | Path],
    rest: Sequence[str | Path],
    precompiled: Sequence[Path],
) -> str:
    """The log of the line with the ``rest``. What fails with precompiled headers is compiled
    without, and fails in the words that it always had."""
    for headers in precompiled:
        short = without_includes(list(map(str, argv)))
        try:
            return run([*short, "-Xclang", "-include-pch", "-Xclang", headers, *rest])
        except BuildTimeout:
            raise
        except BuildError:
            pass
    return run([*argv, *rest])


def _with_hipcc(hipcc: rocm.Hipcc, request: FileBuild, workdir: Path) -> FileObject:
    output, listed = _outputs(request, workdir)
    log = run_tool(
        [
            hipcc.path,
            "-x",
            "hip",
            *_flags(request, listed),
            "--no-gpu-bundle-output",
            "-I",
            PORTABLE,
            request.file,
            "-o",
            output,
        ],
        whose="foreign",
        timeout_s=request.timeout_s,
        cwd=workdir,
        env={"TMPDIR": str(workdir)},
    )
    return FileObject(output, codeobject.kernels(output), _headers(listed), log)


def _outputs(request: FileBuild, workdir: Path) -> tuple[Path, Path]:
    """The object and the list of headers, under names of their own for each file and target."""
    mark = hashlib.sha256(repr(request).encode()).hexdigest()[:8]
    name = f"{request.file.stem}.{request.target.arch}.{mark}"
    return workdir / f"{name}.hsaco", workdir / f"{name}.d"


def _headers(listed: Path) -> tuple[Path, ...]:
    known = make_rule.prerequisites(listed)
    return tuple(p for p in known if not p.is_relative_to(HOST) and p.name != FIRST)
