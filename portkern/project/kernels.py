"""A user's kernels as candidates: read from a folder by their names, or as a project lists them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from portkern.errors import ConfigError, no_such
from portkern.project import sources
from portkern.project.document import KernelEntry
from portkern.project.sources import Named
from portkern.spec import catalogue, companions, registry
from portkern.spec.backend import Backend
from portkern.spec.candidate import Candidate
from portkern.spec.catalogue import languages_of, of_one
from portkern.spec.companions import Companions
from portkern.spec.safe_name import is_text, real_path, short


@dataclass(frozen=True)
class ProjectProblem:
    """A problem with one item; the others go on. ``place`` is a file, or a line of one. One that
    is only a ``note`` is about a file that may be no kernel."""

    place: str
    text: str
    note: bool = False

    def __str__(self) -> str:
        return f"{self.place}: {self.text}"


@dataclass(frozen=True)
class OwnKernel:
    """``file`` is where the candidate was read, ``place`` what it is called in messages."""

    candidate: Candidate
    file: Path
    place: str


@dataclass
class OwnKernels:
    """``name`` is what messages call them all; ``root`` the folder beyond which nothing is read."""

    name: str
    root: Path
    kernels: list[OwnKernel] = field(default_factory=list)
    problems: list[ProjectProblem] = field(default_factory=list)

    def candidates(self, op: str, backend: Backend) -> list[Candidate]:
        """The kernels of an op and a backend, in the order in which they were read."""
        return [
            kernel.candidate
            for kernel in self.kernels
            if (kernel.candidate.op, kernel.candidate.backend) == (op, backend.name)
        ]

    @property
    def ops(self) -> list[str]:
        return list(dict.fromkeys(kernel.candidate.op for kernel in self.kernels))

    @property
    def backends(self) -> list[str]:
        return list(dict.fromkeys(kernel.candidate.backend for kernel in self.kernels))

    def of_file(self, file: Path) -> list[OwnKernel]:
        return [kernel for kernel in self.kernels if real_path(kernel.file) == real_path(file)]

    @property
    def errors(self) -> list[ProjectProblem]:
        return [problem for problem in self.problems if not problem.note]


@dataclass(frozen=True)
class ProjectItem:
    """An entry and where it stands; ``base`` is what its paths are relative to."""

    entry: KernelEntry
    base: Path
    place: str


@dataclass(frozen=True)
class Settings:
    """Settings for all kernels: ``known`` ops, and what is added to each native one's own.
    ``operators`` are files that define ops, and no kernels."""

    root: Path
    known: Sequence[str]
    include: tuple[Path, ...] = ()
    defines: tuple[str, ...] = ()
    operators: tuple[Path, ...] = ()


def read(name: str, items: Sequence[ProjectItem], settings: Settings) -> OwnKernels:
    """Reads the kernels; what cannot be read is among the problems."""
    own = OwnKernels(name, settings.root)
    unmatched: dict[Path, ProjectProblem] = {}
    for item in items:
        source = item.base / item.entry.source
        try:
            if companions.is_folder(source):
                _read_folder(own, source, item, settings, unmatched)
            else:
                _add(own, source, item, settings, listed=True)
        except ConfigError as error:
            own.problems.append(ProjectProblem(item.place, str(error)))
        except OSError as error:  # a name that no file system takes
            own.problems.append(
                ProjectProblem(item.place, f"{error.strerror}: {short(source.name)}")
            )
    used = {
        real_path(settings.root / path)
        for kernel in own.kernels
        for path in kernel.candidate.companions.texts
    } | {real_path(kernel.file) for kernel in own.kernels}
    own.problems += [problem for file, problem in unmatched.items() if real_path(file) not in used]
    return own


def _read_folder(
    own: OwnKernels,
    folder: Path,
    item: ProjectItem,
    settings: Settings,
    unmatched: dict[Path, ProjectProblem],
) -> None:
    """Reads the kernels in a folder by convention; what a listed folder says beside ``source``
    holds for all in it."""
    entry = item.entry
    if entry.op or entry.variant or entry.entry or entry.sources:
        raise ConfigError(f"{entry.source} is a folder: its files say op, variant and entry")
    for file in sources.files_in(folder):
        place = str(file)
        if not is_text(inner := str(file.relative_to(folder))):
            if file.suffix in sources.suffixes():
                text = f"the name {inner!a} is not UTF-8; rename it"
                own.problems.append(ProjectProblem(str(folder), text))
            continue
        inside = KernelEntry(
            source=file.name,
            backend=entry.backend,
            style=entry.style,
            include=entry.include,
            defines=entry.defines,
        )
        if real_path(file) in settings.operators:
            continue
        if not _is_kernel(file, place, settings.known, unmatched):
            continue
        try:
            _add(own, file, ProjectItem(inside, item.base, place), settings, within=folder)
        except ConfigError as error:
            own.problems.append(ProjectProblem(place, str(error)))


def _is_kernel(
    file: Path, place: str, known: Sequence[str], unmatched: dict[Path, ProjectProblem]
) -> bool:
    """Whether a file is a kernel by its name and suffix; a file that has one of the two may be
    meant for one."""
    name, read_ = sources.named(file, known), file.suffix in sources.suffixes()
    if name and read_:
        return True
    if file.suffix in sources.DATA or sources.is_header(file) or not (name or read_):
        return False
    sheets = sources.sheets_in(file.parent)
    other = sources.named(file, list(sheets))
    if file.name in sheets.values():  # it defines an operator
        return False
    if name:
        text = f"no backend reads {file.suffix!r} files; expected {', '.join(sources.suffixes())}"
    elif other:
        text = f"it is of {other.op}, the operator of {sheets[other.op]}, which is not asked for"
    else:
        text = f"its name begins with no op; {sources.closest(file.name.split('.')[0], known)}"
        text = f"{text.rstrip('; ')}; call it <op>{file.suffix}, or list it with its op"
    unmatched[file] = ProjectProblem(place, text, note=True)
    return False


def _add(
    own: OwnKernels,
    file: Path,
    item: ProjectItem,
    settings: Settings,
    *,
    within: Path | None = None,
    listed: bool = False,
) -> None:
    """Raises ConfigError."""
    name = _named(file, item.entry, settings.known)
    if listed and not file.exists():
        raise ConfigError(f"no file {item.entry.source!r}; paths are relative to {item.base}")
    if not real_path(file).is_relative_to(real_path(settings.root)):
        raise companions.outside(str(file), settings.root)
    text = companions.read_text(file, file.name)
    extension = sources.extension_line(text)
    if extension:
        line, macro = extension
        raise ConfigError(
            f"line {line}: {macro} makes an extension of PyTorch, which is not an accepted style; "
            "accepted are dps (a C function or a Python function that takes its outputs) and "
            "return (a Python function that returns them)"
        )
    for backend in _backends(file, text, item, within):
        kernel = OwnKernel(_candidate(file, text, name, backend, item, settings), file, item.place)
        _keep(own, kernel)


def _named(file: Path, entry: KernelEntry, known: Sequence[str]) -> Named:
    if entry.op and entry.op not in known:
        raise no_such("op", entry.op, known)
    name = sources.named(file, [entry.op] if entry.op else known)
    if entry.op:
        return Named(entry.op, entry.variant or (name.variant if name else ""))
    if name is None:
        hint = sources.closest(file.name.split(".")[0], known)
        raise ConfigError(f"{file.name!r} begins with no op; {hint or 'say which with op:'}")
    return Named(name.op, entry.variant or name.variant)


def _backends(file: Path, text: str, item: ProjectItem, within: Path | None) -> list[Backend]:
    if item.entry.backend:
        backend = registry.load(item.entry.backend)
        if not sources.reads(backend, file, text):
            raise no_such(f"{backend.name} source suffix", file.suffix, languages_of(backend))
        return [backend]
    place = file.relative_to(within) if within else Path(item.entry.source)
    return sources.backends_of(place, text)


def _candidate(
    file: Path, text: str, name: Named, backend: Backend, item: ProjectItem, settings: Settings
) -> Candidate:
    entry = item.entry
    resolved, root = real_path(file), real_path(settings.root)
    shown = resolved.relative_to(root) if resolved.is_relative_to(root) else Path(file.name)
    author = f"file:{shown.as_posix()}"
    if sources.is_module(file, text):
        made = catalogue.of_module(text, op=name.op, backend=backend, author=author)
        return replace(made, variant=name.variant)
    language = backend.language_of(file.suffix, text)
    if entry.style == "return" and file.suffix != ".py":
        raise ConfigError("a C function takes its outputs; style is dps, got return")
    beside = _companions(file, text, language, backend, item, settings)
    return Candidate(
        name.op,
        backend.name,
        language,
        of_one(text, language),
        entry.entry or name.op,
        author=author,
        style=entry.style or backend.style,
        companions=beside,
        variant=name.variant,
    )


def _companions(
    file: Path, text: str, language: str, backend: Backend, item: ProjectItem, settings: Settings
) -> Companions:
    """The include folders, sources and defines of a kernel; for a language whose sources stand
    alone, the settings for all kernels do not matter."""
    entry, able = item.entry, language in backend.companions
    include = _folders(entry.include, item.base)
    sources_ = [_existing(item.base / path, path) for path in entry.sources]
    if able:
        include += [folder for folder in settings.include if folder not in include]
    elif not (include or entry.defines or sources_):
        return Companions()
    return companions.gather(
        file,
        text,
        root=settings.root,
        include=include,
        defines=[*entry.defines, *(settings.defines if able else ())],
        sources=sources_,
    )


def _existing(path: Path, shown: str) -> Path:
    if not path.is_file():
        raise ConfigError(f"no file {shown!r}")
    return path


def _folders(paths: Sequence[str], base: Path) -> list[Path]:
    for path in paths:
        if not companions.is_folder(base / path):
            raise ConfigError(f"no folder {path!r} in {base}")
    return [base / path for path in paths]


def _keep(own: OwnKernels, new: OwnKernel) -> None:
    for old in own.kernels:
        if _identity(old.candidate) == _identity(new.candidate):
            own.problems.append(ProjectProblem(new.place, _twice(old, new)))
            return
    own.kernels.append(new)


def _identity(candidate: Candidate) -> tuple[str, str, str, str]:
    return candidate.op, candidate.backend, candidate.language, candidate.variant


def _twice(old: OwnKernel, new: OwnKernel) -> str:
    candidate = new.candidate
    which = (
        f"variant {candidate.variant!r} of {candidate.op}" if candidate.variant else candidate.op
    )
    return (
        f"{new.file.name} is left out: {old.place} is the {candidate.backend} kernel for {which} "
        "already; give one of them (another) variant"
    )
