"""Runs of several machines as one matrix: of each cell the record that says most."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from portkern.records.record import Record, Verdict
from portkern.regression.series import Series

#: What a record is of, by how its venue begins, the least first.
_VENUES = ("", "emulator", "object", "hardware")
_OF_HARDWARE = 2 * _VENUES.index("hardware")
#: Verdicts of a kernel that did not even run, which need no venue.
_OF_BUILDS = (Verdict.REJECTED, Verdict.BUILD_FAILED)


@dataclass(frozen=True)
class Merged:
    """``records`` of the cells, each with the name of the run that it is from; ``conflicts``: of
    which cells two runs say something else with equal right, a line for each kind."""

    records: Sequence[tuple[str, Record]]
    conflicts: Sequence[str]


def merge(runs: Mapping[str, Sequence[Record]]) -> Merged:
    """Merges runs, given by name. What hardware shows counts before what an emulator shows, and
    that before a build; of equals the newest, and where these do not agree that is a conflict."""
    several: dict[Series, list[tuple[str, Record]]] = {}
    for name, records in runs.items():
        newest = {Series.of(record): record for record in records}
        for series, record in newest.items():
            several.setdefault(series, []).append((name, record))
    chosen = {series: max(found, key=_weight) for series, found in several.items()}
    told: dict[str, list[Series]] = {}
    for series, found in several.items():
        for line in _conflicts(chosen[series], found):
            told.setdefault(line, []).append(series)
    return Merged(
        list(chosen.values()),
        [
            f"{cells[0]}{f' and {len(cells) - 1} more cells' if len(cells) > 1 else ''}: {line}"
            for line, cells in told.items()
        ],
    )


def _rung(record: Record) -> int:
    """How much it could show."""
    if record.verdict in _OF_BUILDS:
        return 1
    return 2 * _VENUES.index(record.venue.partition(":")[0]) if _known(record) else 0


def _known(record: Record) -> bool:
    return record.judged and record.venue.partition(":")[0] in _VENUES


def _weight(one: tuple[str, Record]) -> tuple[int, str]:
    return _rung(one[1]), one[1].time


def _conflicts(chosen: tuple[str, Record], found: Sequence[tuple[str, Record]]) -> Iterator[str]:
    name, record = chosen
    for other, one in found:
        alike = _rung(one) == _rung(record) and record.judged and one.judged
        if other == name or not alike:
            continue
        said = [("verdict", str(record.verdict), str(one.verdict))]
        said.append(("source", record.source_hash, one.source_hash))
        if _rung(record) == _OF_HARDWARE:
            said.append(("machine", _place(record), _place(one)))
        for what, kept, left in said:
            if kept != left:
                yield f"{what} {left} in {other}, {kept} in {name}; {name} is newer and counts"


def _place(record: Record) -> str:
    return f"{record.environment.machine}, {record.environment.device}"
