"""Views of the records for people and for CI: everything here follows from ``records.jsonl``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from portkern.records import atomic_write
from portkern.records.record import Record
from portkern.report import html, junit, markdown, png, summary
from portkern.report.table import Table
from portkern.spec.backend import Missing

__all__ = ["Report", "Table", "write"]

_VIEWS = {
    "summary.json": summary.render,
    "matrix.md": markdown.render,
    "matrix.html": html.render,
    "matrix.png": png.render,
    "junit.xml": junit.render,
}


@dataclass(frozen=True)
class MatrixReport:
    """What was written, and why the rest was not."""

    folder: Path
    written: tuple[Path, ...]
    skipped: Mapping[str, Missing]


def write(records: Sequence[Record], folder: Path, *, title: str) -> MatrixReport:
    """Write every view of ``records`` into ``folder``; a reader never sees half a file."""
    folder.mkdir(parents=True, exist_ok=True)
    table = Table.of(records)
    written: list[Path] = []
    skipped: dict[str, Missing] = {}
    for name, render in _VIEWS.items():
        content = render(table, title=title)
        if isinstance(content, Missing):
            skipped[name] = content
            (folder / name).unlink(missing_ok=True)  # an old picture of other records would lie
            continue
        atomic_write.write(folder / name, content)
        written.append(folder / name)
    return MatrixReport(folder, tuple(written), skipped)
