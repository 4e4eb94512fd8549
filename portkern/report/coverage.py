"""Gaps in coverage: pairs of backend and target that were asked for and nothing ran of, with the
reason."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from portkern.records.record import Evidence
from portkern.report.table import MatrixTable


@dataclass(frozen=True)
class Gap:
    """Targets for which a backend built and ran nothing, for one reason."""

    backend: str
    targets: tuple[str, ...]
    reason: str

    def __str__(self) -> str:
        return f"nothing ran by {self.backend} for {' '.join(self.targets)}: {self.reason}"


def gaps(table: MatrixTable) -> list[Gap]:
    """The gaps in a table's coverage, in the order of its columns."""
    return _grouped(table, _empty(table))


def asked(table: MatrixTable, *, backends: Collection[str], targets: Collection[str]) -> list[Gap]:
    """The gaps that somebody asked for: ``backends`` and ``targets`` are those named other than
    in a set. A name beside a set stands for a part of it: it is missed where all of it is."""
    empty = _empty(table)
    pairs = {(column.backend, column.target) for column in table.columns}
    covered_backends = {backend for backend, _ in pairs - set(empty)}
    covered_targets = {target for _, target in pairs - set(empty)}

    def missed(backend: str, target: str) -> bool:
        if backend in backends and target in targets:
            return True
        return (backend in backends and backend not in covered_backends) or (
            target in targets and target not in covered_targets
        )

    return _grouped(table, [pair for pair in empty if missed(*pair)])


def _empty(table: MatrixTable) -> list[tuple[str, str]]:
    """Pairs of which no record has evidence or a verdict on a kernel, in any language."""
    ran = {
        (record.backend, record.target)
        for record in table.records
        if record.verdict.bad or record.evidence > Evidence.NONE
    }
    pairs = dict.fromkeys((column.backend, column.target) for column in table.columns)
    return [pair for pair in pairs if pair not in ran]


def _grouped(table: MatrixTable, pairs: Sequence[tuple[str, str]]) -> list[Gap]:
    """Reasons that differ by the target's name are one."""
    reasons = {(record.backend, record.target): record.missing for record in table.records}
    groups: dict[tuple[str, str], list[str]] = {}
    for backend, target in pairs:
        reason = reasons[backend, target].replace(target, "{}")
        groups.setdefault((backend, reason), []).append(target)
    return [
        Gap(backend, tuple(targets), reason.replace("{}", targets[0]))
        for (backend, reason), targets in groups.items()
    ]
