"""The report on the last attempt that an author is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from portkern.records.record import Record, Verdict

#: Lines of a build's log and of findings that an author sees.
_MOST_LINES = 12


def result(places: Mapping[str, Sequence[Record]]) -> str:
    """One paragraph for each place, with the first thing that is wrong there."""
    return "\n".join(f"{place}: {_told(records)}" for place, records in places.items())


def _told(records: Sequence[Record]) -> str:
    bad = next((record for record in records if record.verdict is not Verdict.PASSED), None)
    if bad is None:
        return ", ".join(["passed", *filter(None, map(_speed, records))])
    said = [*bad.detail.splitlines(), *map(str, bad.findings)][:_MOST_LINES]
    size = f"{bad.workload.set}/{bad.workload.name}"
    return "\n".join([f"{bad.verdict} at {size}", *(f"  {line}" for line in said)])


def _speed(record: Record) -> str:
    if not record.comparable or "eager" not in record.speedup:
        return ""
    low, high = record.speedup["eager"].ci95
    return f"{record.workload.name} {low:.2f} to {high:.2f} times PyTorch"
