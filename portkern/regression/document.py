"""``regressions.json``: what became of each cell since an earlier run, for scripts and reports."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from portkern.errors import RecordError
from portkern.records import atomic_write
from portkern.regression.cell_change import Cause, CellChange
from portkern.regression.comparison import RunComparison
from portkern.regression.rule import ChangeKind
from portkern.regression.series import Series
from portkern.spec import foreign_text
from portkern.spec.foreign_text import json_value

FILE = "regressions.json"
#: What is counted and not listed.
QUIET = (
    ChangeKind.UNCHANGED,
    ChangeKind.INSUFFICIENT,
    ChangeKind.TOO_NOISY,
    ChangeKind.NOT_COMPARABLE,
)
#: Changes of cells that have a time which cannot be judged.
SILENT = (ChangeKind.NOT_COMPARABLE, ChangeKind.INSUFFICIENT)


@dataclass(frozen=True)
class RunChanges:
    """The changes of the run ``after`` against ``before``: ``cells`` has the worst first, and
    ``machine`` a line for each machine that was busy or is another."""

    before: str
    after: str
    cells: Sequence[CellChange]
    machine: Sequence[str] = ()

    @property
    def listed(self) -> list[CellChange]:
        """The changes that there is something to say about."""
        return [cell for cell in self.cells if cell.change not in QUIET]

    @property
    def headline(self) -> str:
        """Green or red, and since when: what a reader must know if nothing else."""
        worse = self.regressed.values()
        if not worse:
            return f"green: nothing is worse than it should be, against {self.before}"
        counted = Counter(cell.change for cell in worse)
        said = ", ".join(f"{counted[change]} {change}" for change in ChangeKind if counted[change])
        new = sum(not cell.stays for cell in worse)
        oldest = max(worse, key=lambda cell: cell.nights)
        age = f"; the oldest since {oldest.since}, {oldest.nights} nights" if oldest.stays else ""
        return f"red: {said}; {new} of them since this run{age}"

    @property
    def silent(self) -> list[str]:
        """Why nothing is said of times that were taken: a line for each change of
        :data:`SILENT`, with its commonest reason."""
        lines = []
        for change in SILENT:
            whys = Counter(cell.detail for cell in self.cells if cell.change is change)
            for why, count in whys.most_common(1):
                share = "" if count == whys.total() else f" ({count} of {whys.total()})"
                lines.append(f"{change}: {why}{share}")
        return lines

    @property
    def counts(self) -> Mapping[str, int]:
        counted = Counter(cell.change for cell in self.cells)
        return {str(change): counted[change] for change in ChangeKind if counted[change]}

    @property
    def regressed(self) -> Mapping[Series, CellChange]:
        return {cell.series: cell for cell in self.cells if cell.regressed}

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {change}" for change, count in self.counts.items())
        return f"{self.after} against {self.before}: {counts or 'no cell that both could show'}"


def of(comparison: RunComparison) -> RunChanges:
    return RunChanges(
        comparison.before.name, comparison.after.name, comparison.cells, comparison.machine
    )


def content(comparison: RunComparison) -> dict[str, object]:
    return {
        "before": comparison.before.name,
        "after": comparison.after.name,
        "history": comparison.past.names,
        "counts": dict(comparison.counts),
        "machine": list(comparison.machine),
        "cells": [_cell(cell) for cell in comparison.cells],
    }


def write(comparison: RunComparison, folder: Path) -> None:
    text = json.dumps(content(comparison), indent=1, ensure_ascii=False) + "\n"
    atomic_write.write(folder / FILE, text)


def read(folder: Path) -> RunChanges | None:
    """The changes that a run's file says; None where the run was compared with none. Raises
    RecordError for what is not such a file."""
    path = folder / FILE
    if not path.exists():
        return None
    try:
        said = json_value(foreign_text.content(path))
        cells = list(map(_change, said["cells"]))
        return RunChanges(said["before"], said["after"], cells, said.get("machine", ()))
    except (ValueError, KeyError, TypeError) as error:
        raise RecordError(
            f"{path}: expected what matrix baseline= writes, got {error!r}"
        ) from error


def _cell(cell: CellChange) -> dict[str, object]:
    moved = {"moved": cell.moved, "visible": cell.visible}
    return {
        **cell.series._asdict(),
        "change": str(cell.change),
        "detail": cell.detail,
        **{k: round(v, 4) for k, v in moved.items() if v is not None and math.isfinite(v)},
        "because": list(cell.because),
        **({"quarantined": cell.quarantined} if cell.quarantined else {}),
        **({"recent": [round(v, 4) for v in cell.recent]} if cell.recent else {}),
        **({"cause": str(cell.cause)} if cell.cause else {}),
        **({"since": cell.since, "nights": cell.nights} if cell.since else {}),
        **({"last_good": cell.last_good} if cell.last_good else {}),
    }


def _change(said: Mapping[str, Any]) -> CellChange:
    return CellChange(
        Series(**{name: said[name] for name in Series._fields}),
        ChangeKind(said["change"]),
        said["detail"],
        said.get("moved"),
        said.get("visible"),
        tuple(said["because"]),
        said.get("quarantined", ""),
        tuple(said.get("recent", ())),
        Cause(said["cause"]) if "cause" in said else None,
        said.get("since", ""),
        said.get("nights", 0),
        said.get("last_good", ""),
    )
