"""References as they were after a run: a file beside the runs, which outlives them.

A line of compressed JSON for each cell, behind one that says which runs and which decisions of
people they were learnt from. A file that is not whole or not ours is none.
"""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar, Self

from pydantic import Field

from portkern.errors import RecordError
from portkern.records import atomic_write, packed
from portkern.records.jsonl import JsonLine, JsonPart, no_search_for_garbage
from portkern.records.record import Counts, Environment, Evidence, Verdict
from portkern.regression.decisions import NightDecisions
from portkern.regression.outcome import CellOutcome
from portkern.regression.reading import ReadOutcome, ReadTiming
from portkern.regression.reference import References, TimeLevel, TimeReference, Trouble
from portkern.regression.series import Series
from portkern.regression.timed import TimedPlace, TimedPoint
from portkern.spec.safe_name import SafeName

#: The references' folder among the runs; a file is called after the newest run that it was learnt
#: from.
FOLDER, SUFFIX = "references", ".jsonl.gz"
#: Files that are kept: one who decides something of a run wants what was known before it.
KEPT = 5


class LearntRun(JsonPart):
    """``stamp`` changes with the records; ``green``: something passed and nothing was bad;
    ``problem``: what of it could not be read."""

    name: str
    stamp: str
    green: bool = False
    problem: str = ""


class OtherRun(JsonPart):
    """One that was left out; of operators that it has, or of any where it could not be read."""

    stamp: str
    ops: frozenset[str] = frozenset()
    problem: str = ""


class ReferenceOrigin(JsonLine):
    """The origin of references: the ``runs`` that they were learnt from, oldest first, and what
    people ``decided`` of them. Runs older than the first were not looked at where ``cut`` says
    why."""

    SCHEMA: ClassVar[int] = 1

    schema_: int = 1
    runs: tuple[LearntRun, ...]
    others: Mapping[str, OtherRun] = {}
    decided: str = ""
    cut: str = ""


class _Good(JsonPart):
    """An outcome; ``environment`` and ``timing`` as they are compared."""

    time: str
    key: str
    venue: str
    source_hash: str
    verdict: Verdict
    evidence: int
    environment: Environment
    timing: ReadTiming | None
    eager: ReadTiming | None
    code: str = ""
    counts: Counts = Counts()

    @classmethod
    def of(cls, one: CellOutcome) -> Self:
        timing, eager = one.timing, one.baselines.get("eager")
        return cls(
            time=one.time,
            key=one.key,
            venue=one.venue,
            source_hash=one.source_hash,
            verdict=one.verdict,
            evidence=int(one.evidence),
            environment=one.environment,
            timing=ReadTiming(timing.p20_us, timing.noisy, timing.method) if timing else None,
            eager=ReadTiming(eager.p20_us, "", "") if eager else None,
            code=one.code,
            counts=one.counts,
        )

    @property
    def outcome(self) -> ReadOutcome:
        return ReadOutcome(
            self.time,
            self.key,
            self.venue,
            self.source_hash,
            self.verdict,
            Evidence(self.evidence),
            "",
            "",
            self.environment,
            self.timing,
            {"eager": self.eager} if self.eager else {},
            self.code,
            self.counts,
        )


class _Cell(JsonLine):
    """A :class:`TimeReference` as a line of a file: of one cell on one class of machine."""

    SCHEMA: ClassVar[int] = 1

    schema_: int = 1
    series: Series
    machine: str
    evidence: int
    since: str
    by: str
    levels: tuple[tuple[TimedPlace, TimeLevel], ...]
    goods: tuple[_Good, ...]
    last_good: str
    trouble: Trouble | None
    seen: int
    absent: str
    absences: int
    suspected: int
    better: list[TimedPoint]
    eager_elsewhere: int
    suspected_since: str
    timed: int
    noisy: dict[str, int]
    counts: Counts
    torch: str = ""
    eager_moves: list[float] = Field(default_factory=list)

    @classmethod
    def of(cls, series: Series, machine: str, one: TimeReference) -> Self:
        return cls(
            series=series,
            machine=machine,
            evidence=int(one.evidence),
            levels=tuple(one.levels.items()),
            goods=tuple(map(_Good.of, one.goods)),
            better=one.better,
            **{name: getattr(one, name) for name in _AS_THEY_ARE},
        )

    @property
    def reference(self) -> TimeReference:
        return TimeReference(
            evidence=Evidence(self.evidence),
            levels=dict(self.levels),
            goods=[one.outcome for one in self.goods],
            better=self.better,
            noisy=Counter(self.noisy),
            **{name: getattr(self, name) for name in _AS_THEY_ARE if name != "noisy"},
        )


_AS_THEY_ARE = (
    *("since", "by", "last_good", "trouble", "seen", "absent", "absences", "suspected"),
    *("eager_elsewhere", "suspected_since", "timed", "noisy", "counts"),
    *("torch", "eager_moves"),
)


def write(reports: Path, origin: ReferenceOrigin, references: References) -> None:
    """The oldest of more than :data:`KEPT` go. Raises StorageError."""
    path = path_of(reports, origin.runs[-1].name)
    lines = [origin, *(_Cell.of(*key, one) for key, one in references.cells.items())]
    text = b"".join(line.to_json().encode() + b"\n" for line in lines)
    atomic_write.write(path, gzip.compress(text, compresslevel=1, mtime=0))
    known = sorted(path.parent.glob(f"*{SUFFIX}"), key=lambda one: one.stat().st_mtime_ns)
    for old in known[:-KEPT]:
        old.unlink(missing_ok=True)


def path_of(reports: Path, run: str) -> Path:
    return reports / FOLDER / SafeName(f"{run}{SUFFIX}", "run")


def origin(path: Path) -> ReferenceOrigin:
    """Raises RecordError."""
    return ReferenceOrigin.from_json(next(_lines(path), ""))


def read(path: Path, decisions: NightDecisions, promoted: frozenset[str]) -> References:
    """Raises RecordError."""
    references = References(decisions, promoted)
    lines = _lines(path)
    next(lines, "")
    with no_search_for_garbage():
        for line in lines:
            cell = _Cell.from_json(line)
            try:
                references.add((cell.series, cell.machine), cell.reference)
            except ValueError as error:
                raise RecordError(f"{path}: {error}") from error
    return references


def _lines(path: Path) -> Iterator[str]:
    """Raises RecordError, also for a file that unpacks without end."""
    try:
        with packed.opened(path) as lines:
            for line in lines:
                yield line.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise RecordError(f"{path}: {error}") from error
