"""Findings of the checkers while the kernel ran in an emulator: races, accesses outside,
divergence."""

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
        for finding in (finding for record in records for finding in record.findings):
            key = finding.code, finding.place, finding.also
            known = merged.get(key, finding)
            times = known.count + finding.count if key in merged else finding.count
            merged[key] = known.model_copy(update={"count": times})
        findings = sorted(merged.values(), key=lambda finding: _ORDER.index(finding.severity))
        if not findings:
            return Measured()
        lines = list(map(_told, findings[: self._most]))
        left = len(findings) - len(lines)
        return Measured(
            {}, "What checkers found", "\n".join([*lines, f"… {left} more"] if left else lines)
        )


def _told(finding: Finding) -> str:
    where = f"{finding.place}: " if finding.place else ""
    also = f" (and {finding.also})" if finding.also else ""
    times = f", {finding.count} times" if finding.count > 1 else ""
    known = CODES.get(finding.code)
    remedy = f"; {known.remedy}" if known else ""
    return f"{where}{finding.code} {finding.message}{also}{times}{remedy}"
