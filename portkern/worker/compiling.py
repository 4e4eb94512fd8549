"""Compiles sources of others, inside the jail: what is made goes to the evaluator."""

from __future__ import annotations

import resource
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from portkern.errors import BackendUnavailable, BuildError
from portkern.sandbox.session import TEXT_LENGTH, pieces
from portkern.spec import registry
from portkern.spec.file_build import FileBuilder
from portkern.toolchain.run_tool import run_tool
from portkern.worker.protocol import (
    BuildFile,
    BuildProgram,
    ListedFunctions,
    ListExtension,
    Made,
    ObjectMade,
    RunTool,
)

if TYPE_CHECKING:
    from portkern.sandbox.shared_memory import SharedMemoryView
    from portkern.simt.execute.build import CompileOptions

#: Bytes of one file that a tool makes, and of all that is handed over.
MOST_FILE, MOST_MADE = 256 << 20, 512 << 20
#: Pieces of a log that are handed over.
_MOST_PIECES = 32


def prepare() -> None:
    """Does once, before workers are forked, what is the same in all of them: the form of targets is
    made, and the compiler asked for its version. In a worker both take as long as a small
    kernel takes to compile."""
    from portkern.simt.execute import runtime_library
    from portkern.spec.target import Target

    Target.model_rebuild()
    runtime_library.find()


def program(asked: BuildProgram, memory: SharedMemoryView) -> Made:
    """The program, and for counts of coverage the compiler's notes."""
    from portkern.simt.execute import build

    with _folder() as folder:
        out = folder / asked.name
        try:
            make = build.build_extension if asked.extension else build.build_program
            make(asked.source, out, _options(asked), further=asked.further)
        except build.UnmodelledSource as error:
            return Made((), _pieces(error.log), error.diagnostics)
        notes = sorted(folder.rglob("*.gcno")) if asked.mode == "cover" else []
        notes += [build.listing(out)] if asked.statements else []
        return Made(_handed(folder, [out, *notes], memory))


def extension(asked: ListExtension) -> ListedFunctions:
    from portkern.simt.execute import build
    from portkern.simt.torch_extension import bindings

    with _folder() as folder:
        out = folder / f"{asked.source.stem}.so"
        library = build.build_extension(asked.source, out, _options(asked))
        functions = bindings.load(library).functions.values()
        return ListedFunctions(
            tuple(
                (f.__name__, str(form), f.__doc__ or "") for f in functions for form in f.overloads
            )
        )


def file(asked: BuildFile, memory: SharedMemoryView) -> ObjectMade:
    backend = registry.load(asked.backend)
    if not isinstance(backend, FileBuilder):
        raise BackendUnavailable(f"The backend {asked.backend} builds no whole files")
    with _folder() as folder:
        made = backend.build_file(asked.build, folder)
        ((_, size),) = _handed(folder, [made.object], memory)
        return ObjectMade(size, made.kernels, made.headers, _pieces(made.log))


def tool(asked: RunTool, memory: SharedMemoryView) -> Made:
    with _folder() as folder:
        for path in asked.links:
            (folder / path.name).symlink_to(path)
        log = run_tool(asked.argv, whose="foreign", timeout_s=asked.timeout_s, cwd=folder)
        return Made(_handed(folder, [folder / name for name in asked.made], memory), _pieces(log))


@contextmanager
def _folder() -> Iterator[Path]:
    """New and empty; a compiler that fills it is stopped."""
    most = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    least = MOST_FILE if most == resource.RLIM_INFINITY else min(MOST_FILE, most)
    resource.setrlimit(resource.RLIMIT_FSIZE, (least, most))
    with tempfile.TemporaryDirectory(prefix="made-", dir=Path.cwd()) as place:
        yield Path(place)


def _options(asked: BuildProgram | ListExtension) -> CompileOptions:
    from portkern.simt.execute.build import CompileOptions
    from portkern.spec import target

    known = target.load(asked.target) if asked.target else None
    options = CompileOptions(
        target=known, defines=asked.defines, search=asked.search, timeout_s=asked.timeout_s
    )
    if isinstance(asked, ListExtension):
        return options
    return replace(
        options,
        language=asked.language or None,
        mode=asked.mode,
        objects=asked.objects,
        statements=asked.statements,
    )


def _handed(
    folder: Path, files: list[Path], memory: SharedMemoryView
) -> tuple[tuple[str, int], ...]:
    for path in files:
        if path.is_symlink() or not path.is_file():
            raise BuildError(f"The compiler left no file {path.name}")
    if sum(path.stat().st_size for path in files) > MOST_MADE:
        raise BuildError(f"The compiler made more than {MOST_MADE >> 20} MiB")
    contents = [path.read_bytes() for path in files]
    memory.write_bytes(b"".join(contents))
    names = [str(path.relative_to(folder)) for path in files]
    return tuple((name, len(content)) for name, content in zip(names, contents, strict=True))


def _pieces(log: str) -> tuple[str, ...]:
    return pieces(log[: _MOST_PIECES * TEXT_LENGTH])
