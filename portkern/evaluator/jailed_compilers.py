"""Compilers of strangers' sources: they run in the jail, where they see the source's own tree and
what the user named, the toolchain, and a scratch folder; what they make comes back as bytes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Self, TypeVar

from portkern.errors import (
    BackendUnavailable,
    BuildError,
    BuildTimeout,
    ConfigError,
    StorageError,
    WorkerError,
)
from portkern.evaluator.build import listed
from portkern.evaluator.jailed_process import shown
from portkern.sandbox.environment import inherited
from portkern.sandbox.message import Failed, Request
from portkern.sandbox.session import COMPILING, Answered, Lost, Session, TimedOut, Unconfined
from portkern.simt.execute import runtime_library
from portkern.simt.execute.compile_options import CompileOptions, UnmodelledSource, language_of
from portkern.spec import registry
from portkern.spec.file_build import FileBuild, FileObject, FirstHeaders, HeaderPrecompiler
from portkern.spec.safe_name import inside
from portkern.toolchain.source_view import SourceView
from portkern.worker.protocol import (
    BuildFile,
    BuildProgram,
    ListExtension,
    Made,
    RunTool,
)

R = TypeVar("R")

#: What a worker may take to begin and to hand over beside the compiler's own time.
_MARGIN_S = 60.0
#: The errors by the worker's names; anything else that it raises is the compiler's fault or the
#: source's.
_ERRORS: Mapping[str, Callable[[Failed], Exception]] = {
    "BuildTimeout": lambda said: BuildTimeout(said.message, log=said.log),
    "BackendUnavailable": lambda said: BackendUnavailable(said.message),
    "ConfigError": lambda said: ConfigError(said.message),
}
#: The mode of what can be started.
EXECUTABLE = 0o755


class JailedCompilers:
    """Workers that see ``view``; threads may share them. A worker is used again for what needs to
    be seen the same."""

    def __init__(self, view: SourceView) -> None:
        self._view = view
        self._idle: dict[tuple[Path, ...], list[Session]] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def stop(self) -> None:
        """Kills those that have nothing to do, and waits for none of them, as :meth:`close` does:
        the end of a worker takes longer than many a program."""
        with self._lock:
            for session in chain.from_iterable(self._idle.values()):
                session.stop()

    def close(self) -> None:
        with self._lock:
            while self._idle:
                for session in self._idle.popitem()[1]:
                    session.close()

    def program(
        self,
        source: Path,
        out: Path,
        options: CompileOptions,
        *,
        further: Sequence[Path] = (),
        extension: bool = False,
    ) -> Path:
        """Does what :func:`portkern.simt.execute.build.build_program` or ``build_extension`` does,
        with the same errors, in the jail; notes for coverage are left beside ``out``."""
        box = _prepared(self._view, [source, *further], options)
        asked = BuildProgram(
            source.absolute(),
            tuple(path.absolute() for path in further),
            out.name,
            options.target.name if options.target else "",
            options.language or "",
            options.mode,
            tuple(options.defines),
            tuple(folder.absolute() for folder in options.search),
            options.timeout_s,
            options.objects,
            extension,
            options.statements,
        )
        most = (2 + len(further)) * options.timeout_s
        with self._asked(asked, asked.search, (source, *further), most, (box,)) as (made, session):
            if made.unmodelled:
                raise UnmodelledSource(made.unmodelled, log="".join(made.log))
            _write(made, session, out.parent)
        out.chmod(EXECUTABLE)
        return out

    def extension(self, source: Path, options: CompileOptions) -> Sequence[tuple[str, str, str]]:
        """The functions of an extension of PyTorch: name, signature and description."""
        box = _prepared(self._view, [source], options)
        asked = ListExtension(
            source.absolute(),
            options.target.name if options.target else "",
            tuple(options.defines),
            tuple(folder.absolute() for folder in options.search),
            options.timeout_s,
        )
        most = 2 * options.timeout_s
        with self._asked(asked, asked.search, (source,), most, (box,)) as (found, _):
            return found.functions

    def file(
        self, backend: str, request: FileBuild, workdir: Path, first: FirstHeaders | None = None
    ) -> FileObject:
        """Does what :meth:`portkern.spec.file_build.FileBuilder.build_file` does, in the jail.
        Headers that are not in view are left out: a forged name would have a file read. Those that
        it includes ``first`` are precompiled outside, where they are not of the file's library."""
        precompiled: tuple[Path, ...] = ()
        if first is not None and not request.further:
            builder = registry.load(backend)
            if isinstance(builder, HeaderPrecompiler):
                precompiled = tuple(filter(None, [builder.precompile(request, first)]))
        asked = BuildFile(backend, replace(request, precompiled=precompiled))
        sources, most = (request.file, *request.further), 3 * request.timeout_s
        most += len(request.further) * request.timeout_s
        also = [headers.parent for headers in precompiled]
        with self._asked(asked, request.include, sources, most, also) as (made, session):
            content = session.memory.bytes(made.size)
            if content is None:
                raise BuildError(f"The compiler's {made.size} bytes are not there")
            path = workdir / f"{request.file.stem}.{request.target.arch}.object"
            path.write_bytes(content)
        headers = tuple(path for path in made.headers if self._view.sees(path))
        return FileObject(path, made.kernels, headers, "".join(made.log))

    def tool(
        self,
        argv: Sequence[str],
        workdir: Path,
        *,
        timeout_s: float,
        links: Sequence[Path] = (),
        made: Sequence[str] = (),
    ) -> str:
        """Runs a tool and returns what it prints. It is started in an empty folder that has
        ``links`` to files in view, from which what it ``made`` is written to ``workdir``."""
        asked = RunTool(tuple(argv), tuple(links), tuple(made), timeout_s)
        with self._asked(asked, (), (), timeout_s) as (done, session):
            _write(done, session, workdir)
            return "".join(done.log)

    @contextmanager
    def _asked(
        self,
        request: Request[R],
        search: Sequence[Path],
        files: Sequence[Path],
        timeout_s: float,
        also: Sequence[Path] = (),
    ) -> Iterator[tuple[R, Session]]:
        """The worker's answer, and the worker, whose memory holds what was made."""
        reads = (*self._view.included(files, search), *self._view.whole, *also)
        with ExitStack() as copies:
            pairs = [(place, copies.enter_context(shown(place))) for place in dict.fromkeys(reads)]
            own = tuple(place for place, seen in pairs if seen == place)
            copied = {place: seen for place, seen in pairs if seen != place}
            session = self._opened(own, copied)
            try:
                outcome = session.ask(request, timeout_s=timeout_s + _MARGIN_S)
                if not isinstance(outcome, Answered):
                    raise _error(outcome)
                yield outcome.reply, session
            finally:
                self._done(session, own, again=not copied)

    def _opened(self, reads: tuple[Path, ...], copies: Mapping[Path, Path]) -> Session:
        with self._lock:
            idle = self._idle.get(reads, []) if not copies else []
            if idle:
                return idle.pop()
        return Session(COMPILING, inherited(), reads=reads, copies=copies)

    def _done(self, session: Session, reads: tuple[Path, ...], *, again: bool) -> None:
        """A copy is of what there was."""
        if not again or not session.alive:
            session.close()
            return
        with self._lock:
            self._idle.setdefault(reads, []).append(session)


def _prepared(view: SourceView, files: Sequence[Path], options: CompileOptions) -> Path:
    """The folder of what all programs share, which is made outside the jail, of portkern's own
    text."""
    box = runtime_library.ready(options.mode)
    language = options.language or language_of(*files)
    read = dict.fromkeys([*files, *view.reached(files, options.search)])
    torch = language == "cuda" and any(runtime_library.TORCH.encode() in _bytes(f) for f in read)
    for each in {False, torch}:  # an extension's file of kernels may not include PyTorch's
        box.headers(language, options.mode, options.target, torch=each)
    return box.folder


def _bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigError(f"Cannot read {file}: {error.strerror}") from error


def _write(made: Made, session: Session, folder: Path) -> None:
    """The files that a worker lists, by names beneath the folder."""
    offset = 0
    try:
        files = dict(listed(made.files))
    except ValueError as error:
        raise BuildError(f"What the compiler made cannot be read: {error}") from error
    for name, size in files.items():
        content = session.memory.bytes(size, offset)
        if content is None:
            raise BuildError(f"Of {PurePosixPath(name).name}, {size} bytes are not there")
        offset += size
        path = inside(folder, name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        except OSError as error:
            raise StorageError.of(error, path) from error


def _error(outcome: Lost) -> Exception:
    if isinstance(outcome, Unconfined):
        return WorkerError(f"No compiler is started without containment: {outcome}")
    if isinstance(outcome, TimedOut):
        return BuildTimeout(f"The compiler ran longer than {outcome.limit_s:g} s", log=outcome.log)
    if not isinstance(outcome, Failed):
        return BuildError(f"The compiler was {outcome}", log=outcome.log)
    known = _ERRORS.get(outcome.error)
    if known is not None:
        return known(outcome)
    what = "" if outcome.error == "BuildError" else f"{outcome.error}: "
    return BuildError(f"{what}{outcome.message}", log=outcome.log)
