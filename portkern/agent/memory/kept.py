"""Lines that runs learn from their attempts, and may keep for other runs in the cache folder.

A line is one attempt's, and what is told of them are views of all, so that an attempt that is told
twice, or a run that is resumed, changes none.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Generic, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from portkern.errors import RecordError, StorageError
from portkern.records.jsonl import LineFile
from portkern.spec.foreign_text import place_of
from portkern.toolchain.run_tool import cache_root


class KeptLine(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    run: str
    attempt: str
    digest: str

    @property
    def key(self) -> tuple[str, str, str]:
        """The digest tells a run from a later one of that name."""
        return self.run, self.attempt, self.digest

    def to_json(self) -> str:
        return json.dumps(self.model_dump(), sort_keys=True)

    @classmethod
    def from_json(cls, line: str) -> Self:
        """Raises RecordError."""
        try:
            return cls.model_validate_json(line)
        except ValidationError as error:
            first = error.errors()[0]
            field = place_of(first["loc"]) or cls.__name__.lower()
            raise RecordError(f"{field}: {first['msg']}") from error


L = TypeVar("L", bound=KeptLine)


class KeptLines(Generic[L]):
    """The lines that a run knows. Those known when it began are copied into its folder: a run that
    is resumed goes on from the same, whatever was learned elsewhere meanwhile."""

    def __init__(self, file: str, kind: type[L], folder: Path, *, keep: bool) -> None:
        """Raises RecordError and StorageError."""
        self.path, self.keep = cache_root() / file, keep
        self._file = LineFile(self.path, kind.from_json)
        kept, _ = self._file.read()
        self._kept = {line.key for line in kept}
        beside = LineFile(folder / file, kind.from_json)
        if not beside.path.exists():
            beside.append(kept)
        self._lines = {line.key: line for line in beside.read()[0]}

    @property
    def lines(self) -> list[L]:
        return list(self._lines.values())

    def add(self, line: L) -> None:
        """Raises StorageError when it is to be kept and cannot be."""
        from filelock import FileLock

        self._lines[line.key] = line
        if not self.keep or line.key in self._kept:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(f"{self.path}.lock"):
                self._file.append([line])
        except OSError as error:
            raise StorageError.of(error, self.path) from error
        self._kept.add(line.key)
