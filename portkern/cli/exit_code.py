"""The exit code of a process, made from the records of its run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from portkern.records.record import Record, Verdict


def of_records(records: Sequence[Record], excused: Callable[[Record], str] = lambda _: "") -> int:
    """0 = done and good, 1 = a kernel has a bad verdict and nothing excuses it, 3 = nothing could
    run."""
    if any(record.verdict.bad and not excused(record) for record in records):
        return 1
    ran = any(r.verdict is Verdict.PASSED or r.evidence for r in records)
    return 0 if ran else 3
