"""Exchanges of single samples: what a model was asked and answered, and how that was evaluated."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from portkern.agent.attempt import Attempt
from portkern.agent.llm.calls import FILE as CALLS
from portkern.agent.llm.calls import Calls, ModelCall
from portkern.agent.log import FILE as ATTEMPTS
from portkern.agent.log import Log
from portkern.agent.run import RECORDS
from portkern.errors import RecordError
from portkern.experiment.compare.sample import Sample
from portkern.records.jsonl import LineFile
from portkern.records.record import Record
from portkern.spec.safe_name import real_path


@dataclass(frozen=True)
class Exchange:
    """``source`` is the kernel that was taken from the last reply."""

    calls: tuple[ModelCall, ...]
    source: str
    records: tuple[Record, ...]


@dataclass(frozen=True)
class _Run:
    log: tuple[Attempt, ...]
    calls: Calls
    records: dict[str, Record]

    @classmethod
    def read(cls, run: Path) -> _Run | None:
        """Reads the files of a run; None for a folder that is not a run or cannot be read: a
        page is made all the same."""
        try:
            records, _ = LineFile(run / RECORDS, Record.from_json).read()
            log = tuple(Log.read(run / ATTEMPTS))
            return cls(log, Calls(run / CALLS), {record.id: record for record in records})
        except (RecordError, OSError):
            return None

    def exchange(self, attempt: Attempt) -> Exchange:
        return Exchange(
            calls=tuple(self.calls[name] for name in attempt.calls if name in self.calls),
            source=attempt.source,
            records=tuple(self.records[name] for name in attempt.records if name in self.records),
        )


class Exchanges:
    """The exchanges of a sweep that lies in ``folder``. Each run's files are read once."""

    def __init__(self, folder: Path) -> None:
        self._folder = real_path(folder)
        self._runs: dict[Path, _Run | None] = {}

    def _has_run(self, place: str) -> bool:
        with suppress(OSError):  # of a name that is too long
            return (self._folder / place / ATTEMPTS).is_file()
        return False

    def of(self, sample: Sample) -> Exchange | None:
        """The exchange of a sample, from the run that its path leads to within the folder; None
        where there is none."""
        place, _, name = sample.path.partition("#")
        # One look first: of tens of thousands of samples most may have left no run here.
        if not place or not self._has_run(place):
            return None
        path = real_path(self._folder / place)
        if not path.is_relative_to(self._folder):
            return None
        if path not in self._runs:
            self._runs[path] = _Run.read(path)
        run = self._runs[path]
        attempt = _attempt(run.log, sample, name) if run else None
        return run.exchange(attempt) if run and attempt else None


def _attempt(log: Sequence[Attempt], sample: Sample, name: str) -> Attempt | None:
    """The attempt that a sample comes from: of several the one that is named, or has the
    sample's kernel, or stands in its place; a run of one sample has just that."""
    named = [attempt for attempt in log if attempt.id == name]
    same = [attempt for attempt in log if sample.digest and attempt.digest == sample.digest]
    found = [*named, *same, *log[sample.index : sample.index + 1], *log[:1]]
    return found[0] if found else None
