"""The handling of a project by the verbs: its file's options below those of the command line,
and its problems told."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from portkern.cli.verbs import run_folder
from portkern.errors import ConfigError
from portkern.printable import printable
from portkern.project.project import Project, find
from portkern.spec import catalogue
from portkern.spec.backend import Backend
from portkern.spec.candidate import Candidate

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Options = TypeVar("Options", bound="DataclassInstance")


def project_of(
    project: str, kernels: str, asked: Sequence[str] = (), *, entire: bool = True
) -> Project | None:
    """The one that was asked for or lies here, for these operators too. Of one that is taken
    ``entire``, what is wrong with its parts is said. Raises ConfigError, also where it has kernels
    and none can be read."""
    known = find(project, kernels, asked)
    if known is None or not entire:
        return known
    own = known.kernels
    for problem in (*known.problems, *(own.problems if own else ())):
        kind = "note" if problem.note else "warning"
        print(f"portkern: {kind}: {printable(str(problem))}", file=sys.stderr)
    if own is not None and not own.kernels:
        raise ConfigError(
            f"No kernel in {own.name}; expected files such as softmax.cu, softmax.fast.cu or "
            "gpu/softmax.cu, or a portkern.yaml that lists them (docs/projects.md)"
        )
    return known


def filled(options: Options, project: Project, given: Collection[str]) -> Options:
    """The options, with what the project says of those that are not ``given``. Where there are
    kernels of its own, they say which ops and backends."""
    document, own = project.document, project.kernels
    said: dict[str, object] = {
        "ops": project.ops,
        "targets": list(document.targets),
        "backends": list(document.backends) or (own.backends if own else []),
        "workloads": list(document.workloads),
        "dtypes": list(document.dtypes),
    }
    changes: dict[str, object] = {name: value for name, value in said.items() if value}
    if not document.track:
        changes["track"] = False
    fields = {field.name for field in dataclasses.fields(options)}
    return dataclasses.replace(
        options, **{name: value for name, value in changes.items() if name in fields - set(given)}
    )


def op_names(project: Project | None, names: Sequence[str]) -> list[str]:
    """The operators' names, in which a project's own operators become their files."""
    return project.op_names(names) if project else [*names]


def of_file(path: Path, op: str, backend: Backend, project: Project | None) -> Candidate:
    """The kernel in a file, as its project lists it if it does, else as the file alone says. Raises
    ConfigError."""
    own = project.kernels if project else None
    for kernel in own.of_file(path) if own else ():
        if (kernel.candidate.op, kernel.candidate.backend) == (op, backend.name):
            return kernel.candidate
    return catalogue.from_file(path, op=op, backend=backend)


def named(overrides: Sequence[str]) -> set[str]:
    """The options that a command line sets."""
    return {override.lstrip("+~").partition("=")[0] for override in overrides}


def problems(project: Project) -> list[str]:
    """The items that could not be taken, one line each."""
    own = project.kernels
    return [str(item) for item in (*project.problems, *(own.errors if own else ()))]


def exit_code(project: Project | None, code: int) -> int:
    """1 where a kernel that is asked for could not even be read."""
    return 1 if project and problems(project) and code in (0, 3) else code


def run_name(project: Project | None, question: Sequence[str]) -> str:
    """The project's, else made of what is asked."""
    name = project.name if project else "-".join(question)
    try:
        run_folder.check_name(name)
    except ConfigError:
        return "matrix" if project else name
    return name
