"""The best knob settings that were measured, by target, kernel, dtype and class of shape.

``portkern tune`` writes them; the catalogue's kernels are turned by them before they are built.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from importlib.resources import files
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from portkern.errors import ConfigError, StorageError
from portkern.records import atomic_write
from portkern.spec.candidate import Candidate
from portkern.spec.op import Workload
from portkern.spec.target import Target
from portkern.toolchain.run_tool import cache_root

FILE = "tuned.jsonl"


class Tuned(BaseModel):
    """``settings`` beat the kernel's defaults by ``gain``, the ratio of their median times in one
    race (None where the defaults do not run); they are empty where nothing did. ``family``: the
    kernel without its settings."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    target: str
    device: str
    backend: str
    language: str
    op: str
    dtype: str
    shape: str
    family: str
    settings: dict[str, int]
    gain: float | None
    workload: str
    time: str  # UTC, ISO 8601

    @property
    def question(self) -> tuple[str, ...]:
        """The question that this answers; a newer answer to the same question replaces it."""
        return self.target, self.device, self.family, self.dtype, self.shape


def shape_class(workload: Workload) -> str:
    """Sizes whose lengths round to the same powers of two: ``rows4096-cols1024``."""
    return "-".join(
        f"{axis}{2 ** round(math.log2(length)) if length else 0}"
        for axis, length in workload.dims.items()
    )


class Database:
    """A file of lines, one for each question. It is read when it is first asked."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def entries(self) -> Mapping[tuple[str, ...], Tuned]:
        """Raises ConfigError for a line that is not one of ours: nothing is thrown away."""
        if not self.path.exists():
            return {}
        known = {}
        for number, line in enumerate(self.path.read_text(encoding="utf-8").splitlines(), 1):
            try:
                entry = Tuned.model_validate_json(line)
            except ValidationError as error:
                why = error.errors()[0]["msg"]
                raise ConfigError(
                    f"{self.path}:{number}: {why}; mend or remove the line, or move the file away"
                ) from error
            known[entry.question] = entry
        return known

    def add(self, entries: Iterable[Tuned]) -> None:
        """Written whole under another name first. Raises ConfigError and StorageError."""
        from filelock import FileLock

        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(f"{self.path}.lock"):
                self.__dict__.pop("entries", None)
                known = {**self.entries, **{entry.question: entry for entry in entries}}
                lines = [
                    json.dumps(known[key].model_dump(), sort_keys=True) for key in sorted(known)
                ]
                atomic_write.write(self.path, "".join(f"{line}\n" for line in lines))
        except OSError as error:
            raise StorageError.of(error, self.path) from error
        self.entries = known


def own() -> Database:
    """The settings that this user has tuned."""
    return Database(cache_root() / FILE)


def shipped() -> Database:
    """The settings that were tuned before portkern was packed."""
    return Database(Path(str(files("portkern.targets") / FILE)))


def with_tuned_knobs(
    candidate: Candidate, where: Target, dtype: str, workload: Workload, among: Sequence[Database]
) -> Candidate:
    """The kernel with the best settings that are known for this target; as it is without any.
    The first database that has an answer is believed, and of its answers the newest."""
    shape = shape_class(workload)
    for database in among:
        entries = [
            entry
            for entry in database.entries.values()
            if (entry.target, entry.family, entry.dtype, entry.shape)
            == (where.name, candidate.family, dtype, shape)
        ]
        if entries:
            return candidate.turn(max(entries, key=lambda entry: entry.time).settings)
    return candidate
