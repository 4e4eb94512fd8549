"""``portkern export``: a run's records, and the kernels they are of, in another format."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from omegaconf import MISSING

from portkern import ops
from portkern.cells.selection import load_op
from portkern.cli import json_output
from portkern.cli.config import Names, names, quoted, resolve
from portkern.cli.heartbeat import Heartbeat
from portkern.cli.verbs import export_harbor, export_learning, history, run_folder
from portkern.errors import ConfigError, no_such
from portkern.evaluator import from_torch
from portkern.formats import (
    agentkernelarena_tasks,
    backendbench_kernels,
    exported,
    flashinfer_traces,
    hub_kernels,
    kernelbench_runs,
)
from portkern.formats.exported import Export, ExportedOp, KernelRecords
from portkern.formats.kernel_sources import KernelSources
from portkern.learn.dataset import DataOptions
from portkern.learn.harbor import HarborOptions
from portkern.printable import printable
from portkern.project import project as projects
from portkern.records import atomic_write, packed
from portkern.records.record import Evidence, Record, RecordFile
from portkern.regression import history_file
from portkern.report import rows
from portkern.spec.candidate import Candidate
from portkern.spec.from_torch.names import identifier
from portkern.spec.safe_name import real_path

#: One file: what it holds of all records.
TABLES: dict[str, Callable[[Sequence[Record]], bytes]] = {
    "csv": rows.csv_file,
    "parquet": rows.parquet_file,
}
#: A folder: what writes it.
FOLDERS: dict[str, Callable[[Sequence[KernelRecords], Export], None]] = {
    "backendbench": backendbench_kernels.write,
    "flashinfer": flashinfer_traces.write,
    "kernelbench": kernelbench_runs.write,
    "kernels": hub_kernels.write,
}
HISTORY, LIBRARY = "history", "library"
_NUMBERED = re.compile(r"(\d+)_\w")
_LEVEL = re.compile(r"level_?(\d+)")


@dataclass
class ExportOptions(history.HistoryChoice):
    """``ops``: files of operators that do not ship; ``kernels``: files and folders of kernels that
    do not, beside what the records' authors say. ``name``, ``evidence``, ``key``, ``objects``
    and ``lazy`` are of the format ``library``. The choice is of the format ``history``."""

    format: str = MISSING
    run: Names = field(default_factory=list)
    runs: int = 1_000
    timed: bool = False
    out: str = ""
    ops: Names = field(default_factory=list)
    kernels: Names = field(default_factory=list)
    name: str = ""
    evidence: str = "measured"
    key: str = ""
    objects: Names = field(default_factory=list)
    lazy: bool = False
    select: str = "all"
    reward: str = "kevin"
    test: Names = field(default_factory=list)
    against: str = ""
    drop_overlaps: bool = False
    targets: Names = field(default_factory=lambda: ["x86_64"])


def main(overrides: Sequence[str]) -> int:
    options = resolve("export", ExportOptions, _named(overrides))
    if options.format == export_harbor.FORMAT:
        return export_harbor.write(_harbor(options))
    if options.format in export_learning.FORMATS:
        return export_learning.write(_learning(options))
    if options.format == HISTORY:
        return _write_history(options)
    if options.format == agentkernelarena_tasks.FORMAT:
        return _write_tasks(options)
    if options.format not in {**TABLES, **FOLDERS, LIBRARY: None}:
        known = [
            *TABLES,
            *FOLDERS,
            HISTORY,
            LIBRARY,
            agentkernelarena_tasks.FORMAT,
            export_harbor.FORMAT,
            *export_learning.FORMATS,
        ]
        raise no_such("format", options.format, known)
    folder, latest = _records(options)
    if options.format not in TABLES:
        return _write_folder(options, folder, latest)
    path = Path(options.out or folder / f"records.{options.format}")
    atomic_write.write(path, TABLES[options.format](latest))
    if options.json:
        json_output.show({"file": str(path), "records": len(latest), "exit_code": 0})
    else:
        print(f"{printable(str(path))}: {len(latest)} records")
    return 0


def _run(options: ExportOptions) -> str:
    """The only one. Raises ConfigError."""
    given = names(options.run)
    if not given:
        raise ConfigError("run= is required; 'portkern export --help' says what it takes")
    if len(given) != 1:
        raise ConfigError(f"Got {len(given)} runs, expected one for {options.format}")
    return given[0]


def _harbor(options: ExportOptions) -> export_harbor.AskedHarbor:
    chosen = HarborOptions(timed=options.timed)
    out = Path(options.out or Path(options.reports) / export_harbor.FORMAT)
    return export_harbor.AskedHarbor(
        names(options.ops), names(options.targets), out, chosen, options.json
    )


def _learning(options: ExportOptions) -> export_learning.AskedLearning:
    chosen = DataOptions(
        options.format,
        options.select,
        options.reward,
        tuple(names(options.test)),
        Path(options.against) if options.against else None,
        options.drop_overlaps,
    )
    runs = export_learning.runs_of(names(options.run))
    return export_learning.AskedLearning(runs, options.reports, options.out, chosen, options.json)


def _records(options: ExportOptions) -> tuple[Path, Sequence[Record]]:
    """The records of a run, or of a file of records, with the folder that has their sources."""
    path = Path(_run(options))
    if path.name.removesuffix(packed.SUFFIX).endswith(".jsonl"):
        records, _ = RecordFile(path).read()
        if not records:
            raise ConfigError(f"No records in {path}; expected a run's name or a records.jsonl")
        return path.parent, list({record.key: record for record in records}.values())
    folder = run_folder.run_folder(options.reports, _run(options))
    return folder, run_folder.latest(folder)


def _write_history(options: ExportOptions) -> int:
    path = Path(_run(options))
    history_file.check(path)
    chosen = history.choose(options)
    with history.read(chosen, options) as columns:
        said = history.facts(chosen)
        rows = history_file.write(path, columns, chosen, said, timed=options.timed)
    code = 0 if rows else 3
    if options.json:
        document = {"file": str(path), "runs": len(chosen), "rows": rows, "exit_code": code}
        json_output.show(document)
    else:
        print(f"{printable(str(path))}: {rows} rows of {len(chosen)} runs")
    return code


def _write_folder(options: ExportOptions, folder: Path, records: Sequence[Record]) -> int:
    """0 = all of it; 1 = a part has no place there or no source; 3 = nothing has."""
    export = Export(Path(options.out or folder / options.format))
    known = _ops(names(options.ops), records, export)
    files = [Path(name) for name in names(options.kernels)]
    missing = [path for path in files if not path.exists()]
    if missing:
        raise ConfigError(f"No file or folder {missing[0]}, which kernels= names")
    sources = KernelSources(folder, files, _of_projects(files)).of(records)
    with Heartbeat("reading sources and records") as heartbeat:
        write = _writer(options, heartbeat.at)
        write(list(exported.grouped(records, known, sources, export)), export)
    return _told(options, export)


def _told(options: ExportOptions, export: Export) -> int:
    """Tells what was written and what was not; the exit code."""
    code = 3 if not export.items else 1 if export.skipped else 0
    if options.json:
        skipped = [{"item": one.item, "reason": one.reason} for one in export.skipped]
        document = {"folder": str(export.folder), "items": export.items, "skipped": skipped}
        json_output.show({**document, "files": len(export.files), "exit_code": code})
        return code
    for one in export.skipped:
        print(f"portkern: skipped: {printable(str(one))}", file=sys.stderr)
    count = f"{export.items} of {export.items + len(export.skipped)} items"
    print(f"{printable(str(export.folder))}: {count}, {len(export.files)} files")
    return code


def _write_tasks(options: ExportOptions) -> int:
    """Writes the tasks of a port's folder, or of the run ``port-NAME``."""
    given = Path(_run(options))
    port = given if given.is_dir() else run_folder.run_folder(options.reports, _run(options))
    export = Export(Path(options.out or port / options.format))
    agentkernelarena_tasks.write(port, export)
    return _told(options, export)


def _writer(
    options: ExportOptions, begun: Callable[[str], None]
) -> Callable[[Sequence[KernelRecords], Export], object]:
    """Returns what writes the format and tells ``begun`` of its steps. Raises ConfigError."""
    if options.format != LIBRARY:
        return FOLDERS[options.format]
    from portkern.deploy import library

    known = {str(one): one for one in Evidence if one >= Evidence.VERIFIED}
    if options.evidence not in known:
        raise no_such("evidence", options.evidence, known)
    name = options.name or identifier(Path(_run(options)).stem.lower())
    objects = tuple(names(options.objects))
    chosen = library.LibraryOptions(
        name, known[options.evidence], key=options.key, objects=objects, lazy=options.lazy
    )
    library.check_name(name)
    return lambda kernels, export: library.write(kernels, export, chosen, begun)


def _ops(
    given: Sequence[str], records: Sequence[Record], export: Export
) -> Mapping[str, ExportedOp]:
    """The operators by name: those that ship and those of files. What cannot be loaded is
    skipped."""
    known: dict[str, ExportedOp] = {}
    for text in given:
        try:
            one = _of_file(text)
        except ConfigError as error:
            export.skip(f"ops={text}", error)
        else:
            known[one.op.name] = one
    for name in dict.fromkeys(record.op for record in records):
        if name in ops.names() and name not in known:
            known[name] = ExportedOp(ops.load(name))
    return known


def _of_file(text: str) -> ExportedOp:
    """The operator with the numbers that KernelBench gave it: ``level1/19_ReLU.py``. Raises
    ConfigError."""
    op = load_op(text)
    if not from_torch.is_file(text):
        return ExportedOp(op)
    file = from_torch.OperatorFile.read(text)
    sheet, _ = from_torch.sheet_of(file)
    problem = _NUMBERED.match(file.path.stem)
    level = _LEVEL.fullmatch(real_path(file.path).parent.name)
    return ExportedOp(
        op,
        file.source,
        sheet.operator,
        file.path.stem,
        int(level[1]) if level else None,
        int(problem[1]) if problem else None,
    )


def _of_projects(files: Sequence[Path]) -> list[Candidate]:
    """Kernels of folders as a project reads them, with the headers that they are built with."""
    found: list[Candidate] = []
    for folder in (path for path in files if path.is_dir()):
        own = projects.find("none", str(folder), ())
        kernels = own.kernels.kernels if own and own.kernels else []
        found += [kernel.candidate for kernel in kernels]
    return found


def _named(overrides: Sequence[str]) -> list[str]:
    """``portkern export FORMAT RUN``, and more runs where a format takes them."""
    words = [text for text in overrides if "=" not in text]
    options = [text for text in overrides if "=" in text]
    runs = [f"run=[{','.join(map(quoted, words[1:]))}]"] if words[1:] else []
    return [*(f"format={text}" for text in words[:1]), *runs, *options]
