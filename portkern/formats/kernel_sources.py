"""The source that a record speaks of, by its hash: in the run's store, among the kernels that ship,
those of a run's attempts, and files."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from portkern.errors import ConfigError
from portkern.records import source_store
from portkern.records.record import Record
from portkern.records.source_store import SourceStore
from portkern.spec import catalogue, registry
from portkern.spec import target as targets
from portkern.spec.backend import Backend
from portkern.spec.candidate import Candidate, Style
from portkern.spec.foreign_text import content, json_value

#: Settings of one kernel's knobs that are tried.
_MOST_SETTINGS = 20_000
#: Files of a folder that are looked at.
_MOST_FILES = 2_000
ATTEMPTS = "attempts.jsonl"


@dataclass
class KernelSources:
    """``given`` are candidates that are known already; ``files`` are files and folders; ``run`` is
    the folder of the records."""

    run: Path
    files: Sequence[Path] = ()
    given: Sequence[Candidate] = ()
    _attempts: list[Mapping[str, object]] | None = field(default=None, init=False)

    @property
    def store(self) -> SourceStore:
        """The store of the run's sources."""
        return SourceStore(self.run / source_store.FOLDER)

    def of(self, records: Sequence[Record]) -> dict[str, Candidate | str]:
        """The candidates by hash, or why there is none."""
        found: dict[str, Candidate | str] = {}
        for record in records:
            if record.source_hash and record.source_hash not in found:
                found[record.source_hash] = self._one(record)
        return found

    def _one(self, record: Record) -> Candidate | str:
        try:
            backend = registry.load(record.backend)
        except ConfigError as error:
            return str(error)
        if kept := self.store.of(record.source_hash):
            return replace(kept, author=record.author, variant=record.variant)
        changed = "is not here"
        for candidate in self._candidates(record, backend):
            if candidate.digest == record.source_hash:
                return replace(candidate, author=record.author, variant=record.variant)
            if _said_to_be(candidate, record):
                changed = "has changed since"
        return (
            f"its source ({record.author}, {record.source_hash}) {changed}; "
            "name its file or folder with kernels="
        )

    def _candidates(self, record: Record, backend: Backend) -> Iterator[Candidate]:
        known = [c for c in self.given if (c.op, c.backend) == (record.op, record.backend)]
        with suppress(ConfigError):
            known += catalogue.candidates(record.op, backend, targets.load(record.target))
        for candidate in known:
            yield from _settings(candidate)
        for attempt in self._attempted():
            if attempt.get("digest") == record.source_hash:
                yield Candidate(
                    record.op,
                    record.backend,
                    record.language,
                    str(attempt.get("source", "")),
                    record.op,
                    style=backend.style,
                )
        for path in self._paths(record):
            with suppress(ConfigError):
                made = catalogue.from_file(path, op=record.op, backend=backend)
                styles: tuple[Style, ...] = ("dps", "return")
                for candidate in (made, *(replace(made, style=style) for style in styles)):
                    yield from _settings(candidate)

    def _attempted(self) -> list[Mapping[str, object]]:
        """The attempts of a generation run, as JSON; a line that is not an attempt is left out."""
        if self._attempts is None:
            self._attempts = []
            with suppress(OSError):
                for line in content(self.run / ATTEMPTS).splitlines():
                    with suppress(ValueError):
                        attempt = json_value(line)
                        self._attempts += [attempt] if isinstance(attempt, dict) else []
        return self._attempts

    def _paths(self, record: Record) -> Iterator[Path]:
        """The author's file where it says one, then those that were named."""
        kind, _, name = record.author.partition(":")
        if kind == "file" and Path(name).is_file():
            yield Path(name)
        for path in self.files:
            if path.is_dir():
                inside = (file for file in sorted(path.rglob("*")) if file.is_file())
                yield from itertools.islice(inside, _MOST_FILES)
            elif path.is_file():
                yield path


def _said_to_be(candidate: Candidate, record: Record) -> bool:
    """Whether it is what the record's kernel was called."""
    named = (candidate.author, candidate.language, candidate.variant or record.variant)
    return named == (record.author, record.language, record.variant)


def _settings(candidate: Candidate) -> Iterator[Candidate]:
    """The candidate as it stands, then with every choice of its knobs: a run may have tuned it."""
    yield candidate
    choices = [knob.choices for knob in candidate.knobs.values()]
    names = [*candidate.knobs]
    for values in itertools.islice(itertools.product(*choices), _MOST_SETTINGS if names else 0):
        yield candidate.turn(dict(zip(names, values, strict=True)))
