"""Parts of an export and their outcome: items that fit, and the others with a reason."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from portkern.records import atomic_write
from portkern.records.record import Record, Verdict
from portkern.spec.candidate import Candidate
from portkern.spec.op import Op
from portkern.spec.safe_name import file_of


class NoSuchForm(Exception):
    """Why an item has no place in a format; says so in one line."""


@dataclass(frozen=True)
class ExportedOp:
    """``source`` and ``operator`` are the file's text and its class or function, where the op comes
    from a PyTorch file, which is called ``stem``. ``level`` and ``problem`` are KernelBench's
    numbers, where the file has them."""

    op: Op
    source: str = ""
    operator: str = ""
    stem: str = ""
    level: int | None = None
    problem: int | None = None


@dataclass(frozen=True)
class KernelRecords:
    """All records of one kernel in one dtype, with its source."""

    op: ExportedOp
    candidate: Candidate
    dtype: str
    records: Sequence[Record]

    @property
    def name(self) -> str:
        """The kernel's name among all of its run."""
        parts = (self.candidate.op, self.variant, self.candidate.backend, self.candidate.digest[:8])
        return "_".join(filter(None, parts))

    @property
    def variant(self) -> str:
        """The part of a name that tells the kernel from others of its op and backend."""
        return re.sub(r"\W+", "_", self.candidate.variant, flags=re.ASCII).strip("_")

    @property
    def evaluated(self) -> list[Record]:
        """The records without cells that nobody could run."""
        idle = (Verdict.UNSUPPORTED, Verdict.UNAVAILABLE)
        return [record for record in self.records if record.verdict not in idle]


@dataclass(frozen=True)
class SkippedExport:
    """``item``: of which records, kernel or op."""

    item: str
    reason: str

    def __str__(self) -> str:
        return f"{self.item}: {self.reason}"


@dataclass
class Export:
    """A folder that is being written. ``items`` counts what is in it."""

    folder: Path
    files: list[Path] = field(default_factory=list)
    skipped: list[SkippedExport] = field(default_factory=list)
    items: int = 0

    def write(self, name: str, text: str) -> None:
        """Raises StorageError."""
        path = file_of(self.folder, name)
        atomic_write.write(path, text)
        self.files.append(path)

    def write_json(self, name: str, document: object) -> None:
        self.write(name, json.dumps(document, indent=2, allow_nan=False) + "\n")

    def skip(self, item: str, reason: object) -> None:
        skipped = SkippedExport(item, " ".join(str(reason).split()))
        if skipped not in self.skipped:
            self.skipped.append(skipped)


def grouped(
    records: Sequence[Record],
    ops: Mapping[str, ExportedOp],
    sources: Mapping[str, Candidate | str],
    export: Export,
) -> Iterator[KernelRecords]:
    """The records grouped by kernel and dtype, in their order. ``sources`` are by their hash; a
    text says why there is none. What lacks an op or a source is skipped."""
    groups: dict[tuple[str, str, str], list[Record]] = {}
    for record in records:
        key = (record.op, record.source_hash, record.workload.dtype)
        groups.setdefault(key, []).append(record)
    for (name, digest, dtype), several in groups.items():
        item = f"{several[0].backend} {several[0].row} {dtype}"
        found = sources.get(digest, "its record names no source")
        if name not in ops:
            export.skip(item, f"no op {name!r} here; name the file that it is in with ops=")
        elif isinstance(found, str):
            export.skip(item, found)
        else:
            yield KernelRecords(ops[name], found, dtype, several)
