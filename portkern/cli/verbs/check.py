"""``portkern check``: evaluate one kernel file from anywhere."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from omegaconf import MISSING

from portkern import guard
from portkern.cli.config import Names, names, resolve
from portkern.cli.verbs import run_folder
from portkern.errors import ConfigError
from portkern.matrix.selection import Cell, Selection, Stage, default_target, load_op
from portkern.records.record import Record, Verdict
from portkern.spec import catalogue, registry, target
from portkern.spec.backend import Backend
from portkern.spec.candidate import Style


@dataclass
class CheckOptions:
    """``target`` empty: the first one whose hardware is here, else the first that is emulated."""

    op: str = MISSING
    backend: str = MISSING
    source: Names = MISSING
    target: str = ""
    entry: str = ""
    style: str = ""
    workloads: Names = "ci"
    dtypes: Names = "float32"
    venue: str = "best"
    sanitize: Names = "none"
    torch_ops: str = "forbid"
    reports: str = "reports"
    run: str = "check"
    rounds: int = 5
    budget_s: float = 2.0
    timeout_s: float = 120.0
    json: bool = False


def main(overrides: Sequence[str]) -> int:
    options = resolve("check", CheckOptions, overrides)
    op, backend = load_op(options.op), registry.load(options.backend)
    where = target.load(options.target) if options.target else default_target(backend)
    candidates = [
        catalogue.from_file(path, op=op.name, backend=backend, entry=options.entry or None)
        for path in _files(names(options.source), backend)
    ]
    if options.style:
        style = _style(options.style)
        candidates = [replace(candidate, style=style) for candidate in candidates]
    selection = Selection(
        [options.op],
        [where.name],
        [backend.name],
        names(options.workloads),
        names(options.dtypes),
        Stage.parse(options.venue, names(options.sanitize)),
        guard.torch_ops(options.torch_ops),
    )
    first = {(c.workload_set, c.workload.name, c.dtype): c for c in selection.cells()}
    cells = [
        replace(cell, candidate=candidate) for candidate in candidates for cell in first.values()
    ]
    records = run_folder.run_cells(
        cells,
        run_folder.run_folder(options.reports, options.run),
        run_folder.options(
            baselines=["eager"],
            rounds=options.rounds,
            budget_s=options.budget_s,
            timeout_s=options.timeout_s,
        ),
        fresh=True,
        quiet=options.json,
    )
    return _conclude(cells, records, options)


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
    styles: dict[str, Style] = {"dps": "dps", "return": "return"}
    if text not in styles:
        raise ConfigError(f"Got style={text!r}, expected 'dps' or 'return'")
    return styles[text]


def _conclude(cells: Sequence[Cell], records: Sequence[Record], options: CheckOptions) -> int:
    code = run_folder.exit_code(records)
    if options.json:
        documents = [record.model_dump(mode="json", by_alias=True) for record in records]
        run_folder.print_json({"records": documents, "exit_code": code})
        return code
    several = len({record.source_hash for record in records}) > 1
    for record in records:
        print(f"{record.author.removeprefix('file:')} " * several + _line(record))
        rest = record.detail.partition("\n")[2].splitlines()
        said = [*map(str, record.findings), *record.guard]
        rest += [text for text in said if text not in record.detail]
        for line in rest:
            print(f"    {line}", file=sys.stderr)
    return code


def _line(record: Record) -> str:
    where = f"{record.backend}@{record.target}"
    work = f"{record.op}[{record.workload.set}/{record.workload.name}, {record.workload.dtype}]"
    what = f"{record.verdict} ({record.evidence})"
    if record.verdict is not Verdict.PASSED:
        return f"{where} {work}: {what}: {record.detail.partition(chr(10))[0]}"
    told = (
        f"error {record.errors.vs_fp64:.1e} (framework {record.errors.reference_vs_fp64:.1e})"
        if record.errors
        else ""
    )
    if record.timing and "eager" in record.speedup:
        ratio = record.speedup["eager"]
        low, high = ratio.ci95
        told += (
            f", {record.timing.median_us:.1f} us, {ratio.value:.2f}x eager [{low:.2f}, {high:.2f}]"
        )
    return f"{where} {work}: {what}: {told}"
