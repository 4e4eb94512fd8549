"""Views of the records for people and for CI: everything here follows from ``records.jsonl``.

What became of cells since another run follows from ``regressions.json``, where there is one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from portkern.errors import ConfigError, RecordError
from portkern.records import atomic_write
from portkern.records.record import Record
from portkern.regression import decisions, document
from portkern.regression.decisions import NightDecisions
from portkern.regression.runs import FACTS, RunFacts
from portkern.report import (
    badge,
    ci_annotations,
    comment,
    html,
    junit,
    markdown,
    png,
    summary,
)
from portkern.report.table import MatrixTable
from portkern.spec.backend import Missing

__all__ = ["MatrixReport", "MatrixTable", "write"]

_VIEWS = {
    "summary.json": summary.render,
    "matrix.md": markdown.render,
    "matrix.html": html.render,
    "matrix.png": png.render,
    "junit.xml": junit.render,
    "codequality.json": ci_annotations.gitlab,
    "gate.sarif": ci_annotations.as_sarif,
    "comment.md": comment.render,
    "badge.svg": badge.svg,
    "badge.json": badge.endpoint,
}


@dataclass(frozen=True)
class MatrixReport:
    """The files of a matrix's report that were written, and why the others were not."""

    folder: Path
    written: tuple[Path, ...]
    skipped: Mapping[str, Missing]
    table: MatrixTable


def write(
    records: Sequence[Record], folder: Path, *, title: str, sources: str = ""
) -> MatrixReport:
    """Write every view of ``records`` into ``folder``; a reader never sees half a file."""
    folder.mkdir(parents=True, exist_ok=True)
    skipped: dict[str, Missing] = {}
    decided, changes = NightDecisions(), None
    try:
        decided = NightDecisions.read(folder.parent)
    except ConfigError as error:
        skipped[decisions.FILE] = Missing(str(error))
    try:
        changes = document.read(folder)
    except RecordError as error:
        skipped[document.FILE] = Missing(str(error))
    facts = RunFacts()
    try:
        facts = RunFacts.read(folder)
    except RecordError as error:
        skipped[FACTS] = Missing(str(error))
    table = MatrixTable.of(records, changes, sources, decided, facts)
    written: list[Path] = []
    for name, render in _VIEWS.items():
        content = render(table, title=title)
        if isinstance(content, Missing):
            skipped[name] = content
            (folder / name).unlink(missing_ok=True)  # an old picture of other records would lie
            continue
        atomic_write.write(folder / name, content)
        written.append(folder / name)
    return MatrixReport(folder, tuple(written), skipped, table)
