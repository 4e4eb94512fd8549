"""``portkern check``: evaluate kernel files from anywhere."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from portkern import guard
from portkern.cells.selection import (
    LOOKED_FOR,
    RunStage,
    SelectedCell,
    Selection,
    default_target,
    load_op,
)
from portkern.cli import exit_code, json_output
from portkern.cli.config import Names, files_first, names, resolve
from portkern.cli.verbs import own_kernels, run_folder, served
from portkern.errors import ConfigError
from portkern.project import sources
from portkern.project.project import Project, is_file
from portkern.records.record import Record, Verdict
from portkern.report import lines
from portkern.spec import companions, registry, target
from portkern.spec.backend import Backend
from portkern.spec.candidate import Candidate, Style


@dataclass
class CheckOptions:
    """Options of ``portkern check``. Without ``source`` the kernels of a project or folder are
    checked, those of ``op`` and ``backend`` if these are named. ``target`` empty: the first one
    whose hardware is here, else the first that is emulated."""

    project: str = ""
    kernels: str = ""
    op: str = ""
    backend: str = ""
    source: Names = field(default_factory=list)
    target: str = ""
    entry: str = ""
    style: str = ""
    workloads: Names = "ci"
    dtypes: Names = "float32"
    venue: str = "best"
    sanitize: Names = field(default_factory=lambda: [*LOOKED_FOR])
    torch_ops: str = "forbid"
    reports: str = "reports"
    run: str = "check"
    rounds: int = 5
    budget_s: float = 0.25
    timeout_s: float = 120.0
    timed: bool = True
    serve: str = "auto"
    json: bool = False


@dataclass(frozen=True)
class CheckedFile:
    """A candidate and the file that it was read from."""

    candidate: Candidate
    path: Path


@dataclass(frozen=True)
class CheckAnswer:
    """``paths`` are the files by their candidates' digests."""

    options: CheckOptions
    records: Sequence[Record]
    paths: Mapping[str, Path]
    exit_code: int

    @property
    def folder(self) -> Path:
        return run_folder.run_folder(self.options.reports, self.options.run)


def main(overrides: Sequence[str]) -> int:
    answer = check(overrides)
    if answer.options.json:
        documents = [record.document() for record in answer.records]
        json_output.show({"records": documents, "exit_code": answer.exit_code})
    else:
        _show(answer)
    return answer.exit_code


def check(overrides: Sequence[str]) -> CheckAnswer:
    """Raises ConfigError."""
    options = resolve("check", CheckOptions, files_first(overrides, "source"))
    listed = not names(options.source)
    project = own_kernels.project_of(
        options.project, options.kernels, [options.op] * bool(options.op), entire=listed
    )
    if project:
        options = own_kernels.filled(options, project, own_kernels.named(overrides))
    checked = _asked(options, project)
    if options.style:
        style = _style(options.style)
        checked = [
            replace(file, candidate=replace(file.candidate, style=style)) for file in checked
        ]
    records = run_folder.run_cells(
        _cells(checked, options, project),
        run_folder.run_folder(options.reports, options.run),
        run_folder.options(
            baselines=["eager"],
            rounds=options.rounds,
            budget_s=options.budget_s,
            timeout_s=options.timeout_s,
            timed=options.timed,
        ),
        fresh=True,
        quiet=options.json,
        runner=served.runner(options.serve),
    )
    code = exit_code.of_records(records)
    if listed:
        code = own_kernels.exit_code(project, code)
    paths = {file.candidate.digest: file.path for file in checked}
    return CheckAnswer(options, records, paths, code)


def _asked(options: CheckOptions, project: Project | None) -> list[CheckedFile]:
    """Raises ConfigError."""
    given = names(options.source)
    own = project.kernels if project else None
    if own is not None and not given:
        wanted = load_op(options.op).name if is_file(options.op) else options.op
        chosen = [
            CheckedFile(kernel.candidate, kernel.file)
            for kernel in own.kernels
            if wanted in ("", kernel.candidate.op)
            and options.backend in ("", kernel.candidate.backend)
        ]
        if not chosen:
            asked = " ".join(filter(None, (options.backend, options.op)))
            raise ConfigError(f"No {asked} kernel in {own.name}; it has {' '.join(own.ops)}")
        return chosen
    for name, value in (("op", options.op), ("source", given)):
        if not value:
            raise ConfigError(f"{name}= is required; 'portkern check --help' says what it takes")
    backend = registry.load(options.backend) if options.backend else _backend(given, options.target)
    op = load_op(own_kernels.op_names(project, [options.op])[0])
    checked = []
    for path in _files(given, backend):
        candidate = own_kernels.of_file(path, op.name, backend, project)
        entry = options.entry or candidate.entry
        checked.append(CheckedFile(replace(candidate, entry=entry), path))
    return checked


def _backend(given: Sequence[str], where: str) -> Backend:
    """The one whose kernels these files are, by suffix and text, and which builds for ``where``.
    Raises ConfigError where several are, or none."""
    place = target.load(where) if where else None
    possible = {
        backend.name: backend
        for source in map(Path, given)
        for backend in _possible(source)
        if place is None or backend.supports(place)
    }
    if len(possible) == 1:
        return next(iter(possible.values()))
    files = " ".join(given) + f" on {where}" * bool(where)
    expected = f"expected one of {', '.join(possible)}" if possible else "none builds it"
    raise ConfigError(f"backend= is required for {files}: {expected}")


def _possible(source: Path) -> list[Backend]:
    if not source.is_dir():
        return sources.possible_backends(source, companions.read_text(source))
    suffixes = {file.suffix for file in source.iterdir()}
    return [
        backend
        for backend in map(registry.load, registry.names())
        if suffixes & set(backend.languages)
    ]


def _cells(
    checked: Sequence[CheckedFile], options: CheckOptions, project: Project | None
) -> list[SelectedCell]:
    """The cells of all files; files of one op and backend share their questions."""
    questions: dict[tuple[str, str], list[SelectedCell]] = {}
    cells: list[SelectedCell] = []
    for file in checked:
        of = file.candidate.op, file.candidate.backend
        if of not in questions:
            questions[of] = _questions(*of, options, project)
        cells += [replace(cell, candidate=file.candidate, absent="") for cell in questions[of]]
    return cells


def _questions(
    name: str, backend_name: str, options: CheckOptions, project: Project | None
) -> list[SelectedCell]:
    """A cell for each workload and dtype, whatever kernels ship."""
    backend = registry.load(backend_name)
    where = target.load(options.target) if options.target else default_target(backend)
    # The op as it was named: a Definition's file, where it is not one that ships.
    [op] = own_kernels.op_names(project, [name])
    selection = Selection(
        [op if op != name else options.op or op],
        [where.name],
        [backend.name],
        names(options.workloads),
        names(options.dtypes),
        RunStage.parse(options.venue, names(options.sanitize)),
        guard.torch_ops(options.torch_ops),
    )
    first = {(c.workload_set, c.workload.name, c.dtype): c for c in selection.cells()}
    return [*first.values()]


def _files(sources: Sequence[str], backend: Backend) -> list[Path]:
    """The files, and those of folders in a language of the backend's. Raises ConfigError."""
    files: list[Path] = []
    for source in map(Path, sources):
        if not source.is_dir():
            files.append(source)
            continue
        inside = sorted(file for file in source.iterdir() if file.suffix in backend.languages)
        if not inside:
            suffixes = ", ".join(backend.languages)
            raise ConfigError(f"No kernel in {source}: expected a file that ends in {suffixes}")
        files += inside
    return files


def _style(text: str) -> Style:
    styles: dict[str, Style] = {"dps": "dps", "return": "return", "module": "module"}
    if text not in styles:
        raise ConfigError(f"Got style={text!r}, expected 'dps', 'return' or 'module'")
    return styles[text]


def _show(answer: CheckAnswer) -> None:
    records, paths = answer.records, answer.paths
    several = len({record.source_hash for record in records}) > 1
    shown: set[str] = set()
    for record in records:
        if record.verdict is Verdict.BUILD_FAILED and record.detail in shown:
            rest = []  # of another size, for which it is the same build
        else:
            rest = _details(record, paths[record.source_hash])
        shown.add(record.detail)
        sys.stdout.flush()
        for line in rest:
            print(line, file=sys.stderr)
        print(f"{record.author.removeprefix('file:')} " * several + lines.line(record), flush=True)


def _details(record: Record, path: Path) -> list[str]:
    """The rest of a result below its line: a compiler's words begin with its first error, as
    editors want it, under the path that was given."""
    place = re.compile(rf"^{re.escape(path.name)}(?=[:(]\d)", re.MULTILINE)
    headline, *rest = place.sub(lambda _: str(path), record.detail).splitlines() or [""]
    said = [*map(str, record.findings), *record.guard]
    rest += [text for text in said if text not in record.detail]
    head = [headline] if record.verdict is Verdict.BUILD_FAILED else []
    return [*head, *(f"    {line}" for line in rest)]
