"""Coverage that a project expects, compared with what the records say."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from portkern.project.document import Expected
from portkern.records.record import Evidence, Record


@dataclass(frozen=True)
class ExpectedCell:
    """One op by one backend for one target; ``place`` is the line that expects it."""

    op: str
    backend: str
    target: str
    expected: Expected
    place: str

    @property
    def evidence(self) -> Evidence:
        return Evidence[self.expected.evidence.upper()]

    def __str__(self) -> str:
        of = f" (variant {self.expected.variant})" if self.expected.variant else ""
        return f"{self.op}{of} by {self.backend} for {self.target}"


@dataclass(frozen=True)
class Sets:
    """The members of each named set."""

    ops: Mapping[str, Sequence[str]]
    targets: Mapping[str, Sequence[str]]
    backends: Mapping[str, Sequence[str]]


def cells(expected: Sequence[tuple[str, Expected]], sets: Sets) -> Iterator[ExpectedCell]:
    for place, item in expected:
        for op in _members(item.op, sets.ops):
            for backend in _members(item.backend, sets.backends):
                for where in _members(item.target, sets.targets):
                    yield ExpectedCell(op, backend, where, item, place)


def _members(names: Sequence[str], sets: Mapping[str, Sequence[str]]) -> list[str]:
    return list(dict.fromkeys(m for name in names for m in sets.get(name, (name,))))


def gaps(
    expected: Sequence[ExpectedCell],
    records: Sequence[Record],
    narrowed: Collection[str] = (),
) -> list[str]:
    """One line for each cell of which a workload or dtype has no kernel with the evidence; who
    asked for some of the ``workloads`` or ``dtypes`` only has ``narrowed`` what is expected."""
    return [f"{cell.place}: {why}" for cell in expected if (why := _gap(cell, records, narrowed))]


def _gap(cell: ExpectedCell, records: Sequence[Record], narrowed: Collection[str]) -> str:
    of = [record for record in records if _is_of(cell, record)]
    wanted = f"expected {cell} at least {cell.evidence}"
    absent: list[str] = []
    if "workloads" not in narrowed:
        absent += _absent(cell.expected.workloads, {r.workload.set for r in of})
    if "dtypes" not in narrowed:
        absent += _absent(cell.expected.dtypes, {r.workload.dtype for r in of})
    if not of or absent:
        return f"{wanted}; {' and '.join(absent) or 'it'} was not run"
    problems: dict[tuple[str, str, str], list[Record]] = defaultdict(list)
    for record in of:
        work = record.workload
        problems[work.set, work.name, work.dtype].append(record)
    short = [several for several in problems.values() if not _reached(cell, several)]
    if not short:
        return ""
    best = max(short[0], key=lambda record: record.evidence)
    why = (best.detail or best.missing).partition("\n")[0]
    counted = f" in {len(short)} of {len(problems)}" if len(problems) > 1 else ""
    return f"{wanted}; got {best.verdict} ({best.evidence}){counted}: {why}".rstrip(": ")


def _absent(named: Collection[str], run: Collection[str]) -> list[str]:
    return [name for name in named if name != "all" and name not in run]


def _reached(cell: ExpectedCell, records: Sequence[Record]) -> bool:
    """Whether any kernel reached what is expected; a build is evidence where nobody found the
    kernel bad."""
    return any(record.evidence >= cell.evidence and not record.verdict.bad for record in records)


def _is_of(cell: ExpectedCell, record: Record) -> bool:
    expected = cell.expected
    return (
        (record.op, record.backend, record.target) == (cell.op, cell.backend, cell.target)
        and (not expected.variant or record.variant == expected.variant)
        and _within(expected.workloads, record.workload.set)
        and _within(expected.dtypes, record.workload.dtype)
    )


def _within(names: Collection[str], name: str) -> bool:
    return not names or "all" in names or name in names
