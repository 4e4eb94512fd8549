"""What checkers saw while the kernel ran in an emulator: races, accesses outside, divergence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from portkern.agent.axes import Measured
from portkern.agent.task import Task
from portkern.records.record import Finding, Record
from portkern.simt.diagnostics import CODES
from portkern.spec.candidate import Candidate

_ORDER = ("error", "warning", "note")


class Simt:
    kind: ClassVar[str] = "simt"
    stage: ClassVar[int] = 1

    def __init__(self, *, findings: int) -> None:
        self._most = findings

    def measure(self, task: Task, candidate: Candidate, records: Sequence[Record]) -> Measured:
        merged: dict[tuple[str, str, str], Finding] = {}
        for one in (finding for record in records for finding in record.findings):
            key = one.code, one.place, one.also
            known = merged.get(key, one)
            times = known.count + one.count if key in merged else one.count
            merged[key] = known.model_copy(update={"count": times})
        found = sorted(merged.values(), key=lambda one: _ORDER.index(one.severity))
        if not found:
            return Measured()
        lines = list(map(_told, found[: self._most]))
        left = len(found) - len(lines)
        return Measured(
            {}, "What checkers found", "\n".join([*lines, f"… {left} more"] if left else lines)
        )


def _told(one: Finding) -> str:
    where = f"{one.place}: " if one.place else ""
    also = f" (and {one.also})" if one.also else ""
    times = f", {one.count} times" if one.count > 1 else ""
    known = CODES.get(one.code)
    remedy = f"; {known.remedy}" if known else ""
    return f"{where}{one.code} {one.message}{also}{times}{remedy}"
