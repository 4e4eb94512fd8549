"""The pivot behind every view: ops by (backend, target), never better than its parts."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from portkern.printable import printable
from portkern.records.record import (
    RACES_NOT_LOOKED_FOR,
    Environment,
    Evidence,
    Record,
    Verdict,
)
from portkern.regression.decisions import NightDecisions
from portkern.regression.document import RunChanges
from portkern.regression.runs import RunFacts
from portkern.regression.series import Series

TIMES = "\N{MULTIPLICATION SIGN}"
DASH = "\N{EN DASH}"
#: Speedups in every view are against this baseline; a record may carry others.
BASELINE = "eager"

# A wrong answer is worse than none: it is the one that gets shipped.
WORST_FIRST = (
    Verdict.WRONG,
    Verdict.SUSPICIOUS,
    Verdict.CRASHED,
    Verdict.TIMED_OUT,
    Verdict.BUILD_FAILED,
    Verdict.REJECTED,
    Verdict.UNAVAILABLE,
    Verdict.UNSUPPORTED,
    Verdict.PASSED,
)


@lru_cache(4096)
def headline(text: str) -> str:
    """The first line that says something: a record's detail has the log's end after it."""
    return next((line.strip() for line in printable(text).splitlines() if line.strip()), "")


def natural(text: str) -> tuple[tuple[int, str], ...]:
    """Sorts ``sm_90`` before ``sm_100``."""
    return tuple(
        (int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", text)
    )


@dataclass(frozen=True)
class MatrixColumn:
    """``language`` is empty unless the backend has kernels in several."""

    backend: str
    target: str
    language: str = ""

    @property
    def tool(self) -> str:
        return f"{self.backend}/{self.language}" if self.language else self.backend

    def __str__(self) -> str:
        return f"{self.tool}@{self.target}"

    @property
    def order(self) -> tuple[str, str, tuple[tuple[int, str], ...]]:
        return self.backend, self.language, natural(self.target)


@dataclass(frozen=True)
class Geomean:
    """Geometric mean of ``n`` measured speedups."""

    value: float
    n: int

    def __str__(self) -> str:
        return times(self.value)


def times(value: float) -> str:
    """Three significant digits until 1000, and a multiplication sign."""
    digits = 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:.{digits}f}{TIMES}"


@dataclass(frozen=True)
class Tally:
    """Counts of some records; those of several groups add up."""

    verdicts: Counter[Verdict]
    rungs: Counter[Evidence]
    #: Why a rung is missing, '' included.
    reasons: Counter[str]
    #: The times that are too uncertain to enter the mean.
    noisy: int
    #: Logarithms of the speedups that do.
    speedups: Sequence[float]
    #: The lowest fraction of the bound that a record reached, infinity where none has one.
    roofline: float

    @classmethod
    def of(cls, records: Iterable[Record]) -> Tally:
        """Looks at each record once: of a hundred thousand they are in no cache."""
        verdicts, rungs, reasons = Counter[Verdict](), Counter[Evidence](), Counter[str]()
        noisy, speedups, roofline = 0, list[float](), math.inf
        for record in records:
            verdicts[record.verdict] += 1
            rungs[record.evidence] += 1
            reasons[reason_of(record)] += 1
            if record.timing is None:
                continue
            noisy += not record.comparable
            if (value := speedup_of(record)) is not None:
                speedups.append(math.log(value))
            if record.roofline and record.roofline.fraction is not None:
                roofline = min(roofline, record.roofline.fraction)
        return cls(verdicts, rungs, reasons, noisy, speedups, roofline)

    @classmethod
    def sum(cls, tallies: Sequence[Tally]) -> Tally:
        """The tally of all records of which these are tallies, each of others."""
        verdicts, rungs, reasons = Counter[Verdict](), Counter[Evidence](), Counter[str]()
        for one in tallies:
            verdicts.update(one.verdicts)
            rungs.update(one.rungs)
            reasons.update(one.reasons)
        return cls(
            verdicts,
            rungs,
            reasons,
            sum(one.noisy for one in tallies),
            [value for one in tallies for value in one.speedups],
            min((one.roofline for one in tallies), default=math.inf),
        )


@dataclass(frozen=True)
class TableGroup:
    """Records seen as one: the worst verdict, the lowest evidence, and how many of each. Where it
    is made of groups, these are its ``parts``."""

    records: tuple[Record, ...]
    parts: tuple[TableGroup, ...] = field(default=(), kw_only=True)

    @staticmethod
    def together(parts: Sequence[TableGroup]) -> TableGroup:
        records = (record for part in parts for record in part.records)
        return TableGroup(tuple(records), parts=tuple(parts))

    def __len__(self) -> int:
        return len(self.records)

    @cached_property
    def tally(self) -> Tally:
        if self.parts:
            return Tally.sum([part.tally for part in self.parts])
        return Tally.of(self.records)

    @cached_property
    def verdict(self) -> Verdict:
        return next(iter(self.verdicts))

    @cached_property
    def evidence(self) -> Evidence:
        return min(self.rungs)

    @cached_property
    def verdicts(self) -> Mapping[Verdict, int]:
        return {v: self.tally.verdicts[v] for v in WORST_FIRST if v in self.tally.verdicts}

    @cached_property
    def rungs(self) -> Mapping[Evidence, int]:
        return dict(sorted(self.tally.rungs.items(), reverse=True))

    @property
    def best(self) -> Evidence:
        """The highest rung among them; a view shows it only with its share."""
        return max(self.rungs)

    @property
    def passed(self) -> int:
        return self.verdicts.get(Verdict.PASSED, 0)

    @cached_property
    def failing(self) -> tuple[Record, ...]:
        if not any(verdict.bad for verdict in self.verdicts):
            return ()
        return tuple(r for r in self.records if r.verdict.bad)

    @property
    def noisy(self) -> int:
        """How many times are too uncertain to enter the mean."""
        return self.tally.noisy

    @cached_property
    def missing(self) -> tuple[str, ...]:
        """The distinct reasons for a missing rung, the most frequent first."""
        return tuple(reason for reason, _ in self.tally.reasons.most_common() if reason)

    @cached_property
    def speedup(self) -> Geomean | None:
        """The geometric mean over the measured records only; None when there is none."""
        values = self.tally.speedups
        return Geomean(math.exp(math.fsum(values) / len(values)), len(values)) if values else None

    @property
    def roofline(self) -> float | None:
        """The lowest fraction of the bound that a record reached."""
        lowest = self.tally.roofline
        return lowest if lowest < math.inf else None


def speedup_of(record: Record) -> float | None:
    """The speedup over the framework; None where it was not measured, or with too much noise."""
    if not record.comparable or BASELINE not in record.speedup:
        return None
    value = record.speedup[BASELINE].value
    return value if 0 < value < math.inf else None  # a clock that read 0 is not a speedup


def reason_of(record: Record) -> str:
    """Why the next rung is missing, and whether races were not looked for on this one; a failure
    speaks for itself, in ``detail``."""
    if record.verdict.bad or record.evidence is Evidence.MEASURED:
        return ""
    reason = headline(record.missing) or headline(record.detail)
    unseen = next((f.message for f in record.findings if f.code == RACES_NOT_LOOKED_FOR), "")
    return "; ".join(filter(None, (reason, unseen.partition(";")[0])))


@dataclass(frozen=True)
class TableCell(TableGroup):
    """All workloads and dtypes of one op, or of a variant of its kernel, in one column."""

    op: str
    column: MatrixColumn


@dataclass(frozen=True)
class ColumnTotal(TableGroup):
    """One column's cells and all of their records."""

    column: MatrixColumn
    cells: tuple[TableCell, ...]

    @cached_property
    def ops_failing(self) -> tuple[TableCell, ...]:
        return tuple(cell for cell in self.cells if cell.verdict.bad)

    @cached_property
    def ops_by_rung(self) -> Mapping[Evidence, tuple[TableCell, ...]]:
        """Ops that did not fail by the lowest evidence of their records, the highest rung first."""
        good = [cell for cell in self.cells if not cell.verdict.bad]
        rungs = {
            e: tuple(c for c in good if c.evidence is e) for e in sorted(Evidence, reverse=True)
        }
        return {e: cells for e, cells in rungs.items() if cells}


@dataclass(frozen=True)
class MatrixTable:
    """``records`` are the current ones, one per cell of op, workload, dtype and column;
    ``changes``: what became of them since an earlier run, if that was asked; ``sources``: the
    folder that paths of kernels are from, as people call it; ``decisions``: what people made of
    cells; ``facts``: what was said of the run."""

    records: tuple[Record, ...]
    superseded: int
    polyglots: frozenset[str]
    changes: RunChanges | None = None
    sources: str = ""
    decisions: NightDecisions = field(default_factory=NightDecisions)
    facts: RunFacts = field(default_factory=RunFacts)

    @classmethod
    def of(
        cls,
        records: Sequence[Record],
        changes: RunChanges | None = None,
        sources: str = "",
        decisions: NightDecisions | None = None,
        facts: RunFacts | None = None,
    ) -> MatrixTable:
        kept, older = current(records), len(records)
        polyglots, decided = _polyglots(kept), decisions or NightDecisions()
        known = facts or RunFacts()
        return cls(tuple(kept), older - len(kept), polyglots, changes, sources, decided, known)

    def quarantine(self, record: Record) -> str:
        """Why a bad verdict of its cell fails nothing on the day of the newest record, '' if it
        does."""
        if not record.verdict.bad or not self.decisions.quarantine:
            return ""
        return self.decisions.quarantined(Series.of(record), self.generated[: len("2026-12-24")])

    @cached_property
    def failing(self) -> tuple[Record, ...]:
        """The records that fail the run."""
        return tuple(r for r in self.whole.failing if not self.quarantine(r))

    @cached_property
    def quarantined(self) -> tuple[Record, ...]:
        return tuple(r for r in self.whole.failing if self.quarantine(r))

    @cached_property
    def ops(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(r.row for r in self.records))

    @cached_property
    def cells(self) -> Mapping[tuple[str, MatrixColumn], TableCell]:
        parts: dict[tuple[str, MatrixColumn], list[Record]] = {}
        for record in self.records:
            parts.setdefault((record.row, self.column(record)), []).append(record)
        return {(op, c): TableCell(tuple(records), op, c) for (op, c), records in parts.items()}

    @cached_property
    def columns(self) -> tuple[MatrixColumn, ...]:
        return tuple(sorted({c for _, c in self.cells}, key=lambda c: c.order))

    @cached_property
    def supported(self) -> tuple[MatrixColumn, ...]:
        """The columns in which something could be tried; half of all pairs cannot."""
        return tuple(
            c for c in self.columns if set(self.totals[c].verdicts) != {Verdict.UNSUPPORTED}
        )

    @cached_property
    def totals(self) -> Mapping[MatrixColumn, ColumnTotal]:
        totals = {}
        for column in self.columns:
            cells = tuple(self.cells[op, column] for op in self.ops if (op, column) in self.cells)
            records = tuple(record for cell in cells for record in cell.records)
            totals[column] = ColumnTotal(records, column, cells, parts=cells)
        return totals

    @cached_property
    def targets(self) -> tuple[str, ...]:
        """The targets, those with the best evidence first, then by name."""
        best: dict[str, Evidence] = {}
        for total in self.totals.values():
            top = max(total.rungs)
            best[total.column.target] = max(top, best.get(total.column.target, Evidence.NONE))
        return tuple(sorted(best, key=lambda target: (-best[target], natural(target))))

    @cached_property
    def whole(self) -> TableGroup:
        return TableGroup(self.records, parts=tuple(self.totals.values()))

    @cached_property
    def generated(self) -> str:
        """The time of the newest record: the same records give the same report."""
        return max((r.time for r in self.records), default="")

    @cached_property
    def environments(self) -> tuple[Environment, ...]:
        distinct = {identity(r.environment): r.environment for r in self.records}
        seen = {one.model_dump_json(): one for one in distinct.values()}
        return tuple(seen[key] for key in sorted(seen))

    @cached_property
    def machines(self) -> tuple[Environment, ...]:
        """The environments, with what each machine's cells say of its toolchain put together."""
        machines: dict[tuple[str, str, str, str], dict[str, str]] = {}
        for e in self.environments:
            tools = machines.setdefault((e.machine, e.device, e.driver, e.harness_version), {})
            for name, version in e.toolchain.items():
                others = tools[name].split(" or ") if name in tools else []
                tools[name] = " or ".join(dict.fromkeys([*others, version]))
        return tuple(
            Environment(machine=m, device=d, driver=v, harness_version=h, toolchain=tools)
            for (m, d, v, h), tools in machines.items()
        )

    def column(self, record: Record) -> MatrixColumn:
        language = record.language if record.backend in self.polyglots else ""
        return _column(record.backend, record.target, language)


@lru_cache(4096)
def _column(backend: str, target: str, language: str) -> MatrixColumn:
    return MatrixColumn(printable(backend), printable(target), printable(language))


def identity(e: Environment) -> tuple[object, ...]:
    """Equal for equal ones; their JSON is as well, and takes twenty times as long."""
    return e.machine, e.device, e.driver, *e.toolchain.items(), e.harness_version, e.containment


def current(records: Iterable[Record]) -> list[Record]:
    """One record per cell, in order of the cells' first appearance.

    A results file is append-only and may hold several machines' work. The newest record of each
    machine counts; of those, only the ones for the newest evaluated source. Then a failure on any
    machine beats everything, else the highest rung that was really reached.
    """
    attempts: dict[tuple[object, ...], dict[str, Record]] = {}
    for record in records:
        by_machine = attempts.setdefault(_place(record), {})
        earlier = by_machine.get(record.environment.machine)
        if earlier is None or record.time >= earlier.time:
            by_machine[record.environment.machine] = record
    return [_strongest(list(by_machine.values())) for by_machine in attempts.values()]


def _place(record: Record) -> tuple[object, ...]:
    w = record.workload
    size = tuple(sorted(w.dims.items())), tuple(sorted(w.scalars.items()))
    return record.row, w.set, w.name, size, w.dtype, record.backend, record.language, record.target


def _strongest(records: list[Record]) -> Record:
    sourced = [r for r in records if r.source_hash]
    if sourced:
        newest = max(sourced, key=lambda r: r.time).source_hash
        records = [r for r in sourced if r.source_hash == newest]
    return max(records, key=lambda r: (r.verdict.bad, r.evidence, r.time))


def _polyglots(records: Iterable[Record]) -> frozenset[str]:
    """Backends whose records are in more than one language."""
    spoken: dict[str, set[str]] = {}
    for record in records:
        if record.language:  # a cell without a candidate has none
            spoken.setdefault(record.backend, set()).add(record.language)
    return frozenset(backend for backend, languages in spoken.items() if len(languages) > 1)
