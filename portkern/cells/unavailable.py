"""Toolchains and devices that a machine lacks: a line per backend and reason, with the remedy."""

from __future__ import annotations

from collections.abc import Iterable

from portkern.records.record import Record, Verdict


def lines(records: Iterable[Record]) -> list[str]:
    """The lines for cells that could not even be built; where a kernel was built and no device is
    here, its evidence says so."""
    found: dict[tuple[str, str], list[str]] = {}
    for record in records:
        if record.verdict is Verdict.UNAVAILABLE and not record.evidence:
            reason = record.detail.strip().partition("\n")[0]
            found.setdefault((record.backend, reason), []).append(record.target)
    return [
        f"{backend}: {len(targets)} cell{'s' if len(targets) > 1 else ''} unavailable "
        f"({' '.join(dict.fromkeys(targets))}): {reason}"
        for (backend, reason), targets in found.items()
    ]
