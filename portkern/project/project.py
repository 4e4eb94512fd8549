"""A project as a run takes it: its file with what is asked for beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from portkern import ops
from portkern.cells.selection import load_op, target_sets
from portkern.errors import ConfigError, no_such
from portkern.project.document import FILE, Expected, KernelEntry, ProjectDocument, ProjectFile
from portkern.project.kernels import OwnKernels, ProjectItem, ProjectProblem, Settings, read
from portkern.spec import companions, registry, target
from portkern.spec.op import FLOATS, ITEMSIZE, WORKLOAD_SETS
from portkern.spec.safe_name import real_path

#: ``project=none``: a project file that lies in this folder is not looked at.
NONE = "none"


@dataclass(frozen=True)
class Project:
    """``file`` is None of a mere folder of kernels, ``kernels`` where the catalogue's are asked
    for. ``definitions`` are files of operators by the names of these."""

    file: ProjectFile | None
    kernels: OwnKernels | None
    definitions: Mapping[str, str]
    problems: tuple[ProjectProblem, ...] = ()

    @property
    def document(self) -> ProjectDocument:
        return self.file.document if self.file else ProjectDocument()

    @property
    def name(self) -> str:
        folder = self.file.folder if self.file else self.kernels.root if self.kernels else Path()
        return real_path(folder).name

    @property
    def folder(self) -> Path:
        """The folder of the project's kernels."""
        root = self.file.folder if self.file else self.kernels.root if self.kernels else Path()
        return root if root.is_dir() else root.parent

    def op_names(self, names: Sequence[str]) -> list[str]:
        """Names of its own operators become their files."""
        return [self.definitions.get(name, name) for name in names]

    @property
    def ops(self) -> list[str]:
        """The project's operators: those it lists, else those it has kernels for."""
        listed = [name for name in self.document.ops if not is_file(name)]
        own = [name for name, path in self.definitions.items()]
        if self.document.ops:
            known = {*ops.names(), *ops.SETS}
            return [*(name for name in listed if name in known), *own]
        return self.kernels.ops if self.kernels else []

    @property
    def expected(self) -> Sequence[tuple[str, Expected]]:
        """The expected coverage, each entry with its line."""
        at = self.file.at if self.file else (lambda *place: "")
        return [(at("expect", k), item) for k, item in enumerate(self.document.expect)]


def find(project: str, kernels: str, asked: Sequence[str] = ()) -> Project | None:
    """``project`` is a project file or its folder, empty for the one in this folder, if any;
    ``kernels`` a folder (or file) instead of its own; ``asked`` are operators that kernels may be
    for too. None where there is neither. Raises ConfigError."""
    file = _file(project)
    others = {load_op(name).name: name for name in asked if kernels and is_file(name)}
    if file is None:
        return _of_folder(Path(kernels), others) if kernels else None
    _check(file)
    definitions, problems = _definitions(file)
    definitions |= others
    known = [*ops.names(), *definitions]
    problems += _unknown_ops(file, known)
    settings = replace(_settings(file, known), operators=_files(definitions))
    if kernels:
        own: OwnKernels | None = _own(Path(kernels), settings)
    elif file.document.kernels:
        items = [
            ProjectItem(entry, file.folder, file.at("kernels", k))
            for k, entry in enumerate(file.document.kernels)
        ]
        own = read(str(file.path), items, settings)
    else:
        own = None
    return Project(file, own, definitions, tuple(problems))


def _file(project: str) -> ProjectFile | None:
    if project == NONE:
        return None
    if not project:
        return ProjectFile.read(Path(FILE)) if Path(FILE).is_file() else None
    path = Path(project)
    return ProjectFile.read(path / FILE if path.is_dir() else path)


def _files(definitions: Mapping[str, str]) -> tuple[Path, ...]:
    """``mine.py`` of ``mine.py:NAME``."""
    return tuple(
        real_path(Path(name.partition(".py:")[0] + ".py" * (".py:" in name)))
        for name in definitions.values()
    )


def _of_folder(path: Path, definitions: Mapping[str, str]) -> Project:
    root = path if path.is_dir() else path.parent
    known = [*ops.names(), *definitions]
    own = _own(path, Settings(root, known, operators=_files(definitions)))
    return Project(None, own, definitions)


def _own(path: Path, settings: Settings) -> OwnKernels:
    """The kernels in a folder; to one beyond the project's only the project's operators apply."""
    if not path.exists():
        raise ConfigError(f"Got kernels={path}, expected a folder of kernels; there is none")
    root = path if path.is_dir() else path.parent
    if not real_path(path).is_relative_to(real_path(settings.root)):
        settings = Settings(root, settings.known, operators=settings.operators)
    entry = KernelEntry(source="." if path.is_dir() else path.name)
    return read(str(path), [ProjectItem(entry, root, str(path))], settings)


def _settings(file: ProjectFile, known: Sequence[str]) -> Settings:
    folders = []
    for k, name in enumerate(file.document.include):
        if not companions.is_folder(file.folder / name):
            raise ConfigError(f"{file.at('include', k)}: no folder {name!r} in {file.folder}")
        folders.append(file.folder / name)
    return Settings(file.folder, known, tuple(folders), file.document.defines)


def is_file(name: str) -> bool:
    """Whether an operator is named by its file."""
    return Path(name).suffix != ""


def _definitions(file: ProjectFile) -> tuple[dict[str, str], list[ProjectProblem]]:
    """Operators by name of the files that it lists; one that cannot be read costs no other."""
    definitions: dict[str, str] = {}
    problems: list[ProjectProblem] = []
    for k, name in enumerate(file.document.ops):
        place = file.at("ops", k)
        try:
            if is_file(name):
                path = str(file.folder / name)
                definitions[load_op(path).name] = path
            elif name not in ops.names() and name not in ops.SETS:
                raise no_such("op", name, [*ops.names(), *ops.SETS])
        except ConfigError as error:
            problems.append(ProjectProblem(place, str(error)))
    return definitions, problems


def _unknown_ops(file: ProjectFile, known: Sequence[str]) -> list[ProjectProblem]:
    """The problems of ops that coverage is expected of and that are not known."""
    names = [*known, *ops.SETS]
    return [
        ProjectProblem(file.at("expect", k, "op", n), str(no_such("op", name, names)))
        for k, expected in enumerate(file.document.expect)
        for n, name in enumerate(expected.op)
        if name not in names
    ]


def _check(file: ProjectFile) -> None:
    """Names of what portkern has. Raises ConfigError with the line."""
    document = file.document
    targets = {*target.names(), *target_sets()}
    backends = {*registry.names(), "all"}
    sets = {*WORKLOAD_SETS, "all"}
    dtypes = {*ITEMSIZE, *FLOATS, "all"}
    _all_known(file, ("targets",), document.targets, "target", targets)
    _all_known(file, ("backends",), document.backends, "backend", backends)
    _all_known(file, ("workloads",), document.workloads, "workload set", sets)
    _all_known(file, ("dtypes",), document.dtypes, "dtype", dtypes)
    for k, expected in enumerate(document.expect):
        place = ("expect", k)
        _all_known(file, (*place, "target"), expected.target, "target", targets)
        _all_known(file, (*place, "backend"), expected.backend, "backend", backends)
        _all_known(file, (*place, "workloads"), expected.workloads, "workload set", sets)
        _all_known(file, (*place, "dtypes"), expected.dtypes, "dtype", dtypes)


def _all_known(
    file: ProjectFile,
    place: tuple[str | int, ...],
    names: Sequence[str],
    kind: str,
    known: set[str],
) -> None:
    for k, name in enumerate(names):
        if name not in known:
            raise ConfigError(f"{file.at(*place, k)}: {no_such(kind, name, known)}")
