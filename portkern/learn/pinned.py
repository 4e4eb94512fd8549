"""The reference's times, pinned per machine and version: what a reward compares a kernel with.

A reference that is timed beside each kernel has two modes or a busy minute of its own, which a
reward would pay for. Pinned, it is one number for all answers of a group and for all steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Literal

from portkern.learn.rewards import Ratio
from portkern.records.jsonl import JsonLine, LineFile
from portkern.records.record import Record, Timing
from portkern.toolchain.run_tool import package_version

#: The reference of speedups that is pinned.
BASELINE = "eager"
_Key = tuple[str, ...]


class PinnedTime(JsonLine):
    """The interval of the reference's median at one size, where and with what it was measured."""

    SCHEMA: ClassVar[int] = 1

    schema_: Literal[1] = 1
    where: tuple[str, ...]
    low_us: float
    high_us: float


class PinnedTimes:
    """Kept in a file. The first time that is sure enough stands until the file is deleted."""

    def __init__(self, path: Path) -> None:
        """Raises RecordError."""
        self._file = LineFile(path, PinnedTime.from_json)
        self._known: dict[_Key, PinnedTime] = {}
        for line in self._file.read()[0]:
            self._known.setdefault(line.where, line)

    def ratio(self, records: Sequence[Record]) -> Ratio | None:
        """How many times faster than the pinned reference: the geometric mean over workloads, None
        where one has no time that may be compared. Raises StorageError."""
        own = [_interval(record.timing) if record.comparable else None for record in records]
        pinned = [self._pinned(record) for record in records]
        pairs = [
            (p, o) for p, o in zip(pinned, own, strict=True) if p is not None and o is not None
        ]
        if not records or len(pairs) < len(records):
            return None
        low = math.fsum(math.log(p.low_us / slowest) for p, (_, slowest) in pairs)
        high = math.fsum(math.log(p.high_us / fastest) for p, (fastest, _) in pairs)
        return Ratio(math.exp(low / len(pairs)), math.exp(high / len(pairs)))

    def _pinned(self, record: Record) -> PinnedTime | None:
        where = _where(record)
        if where not in self._known:
            timing = record.baselines.get(BASELINE)
            measured = _interval(timing) if timing is not None and not timing.noisy else None
            if measured is None:
                return None
            line = PinnedTime(where=where, low_us=measured[0], high_us=measured[1])
            self._file.append([line])
            self._known[where] = line
        return self._known[where]


def _interval(timing: Timing | None) -> tuple[float, float] | None:
    if timing is None or timing.ci95_us is None or not 0 < timing.ci95_us[0] < math.inf:
        return None
    return timing.ci95_us


def _where(record: Record) -> _Key:
    """Returns the facts that must be equal for a reference's time to be the same one."""
    place, size = record.environment, record.workload
    dims = ",".join(f"{name}={length}" for name, length in sorted(size.dims.items()))
    named = (record.op, size.set, size.name, dims, size.dtype)
    versions = (place.driver, package_version("torch") or "", place.harness_version)
    return (place.machine, place.device, *versions, *named)
