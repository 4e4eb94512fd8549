"""The rank of correct kernels where nothing can be timed, by what is known of them without a clock.

What executing the compiled object counted goes first: cycles of one multiprocessor as if nothing
overlapped, one for each instruction of a wave and each pass of shared memory, and as many as the
memory takes for each line. A share is the least that the operator's own bytes take over that: 1 is
a kernel that moves them and does nothing else. Within one part in a hundred, and where nothing was
executed, the build decides: who spills less, then whose occupancy is higher, who takes fewer
registers, and less shared memory. None of it is a time.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from portkern.agent.attempt import UNTIMED
from portkern.records.record import Record

#: Bytes that device memory gives one multiprocessor in a cycle, about as on today's GPUs.
BYTES_A_CYCLE: Final = 8
#: The bytes of a line that :mod:`portkern.isa.counts` counts.
LINE_BYTES: Final = 128
#: Work that differs by less than this part is equal, and the build decides.
EQUAL: Final = 0.01
#: What a kernel has that no executor counted, where others were counted.
UNCOUNTED: Final = 1e-6
#: How many steps each fact of a build has; what goes beyond is the last one.
_SPILLS, _OCCUPANCY, _REGISTERS, _SHARED = 16, 32, 64, 256
_WHAT: Final = "spills, occupancy, registers and shared memory of the build"
BY_COUNTS: Final = (
    "what executing the compiled object counts (instructions, lines of memory, passes of LDS), "
    f"then {_WHAT}"
)
BY_BUILD: Final = f"{_WHAT}, as far as the compiler tells them"


@dataclass(frozen=True)
class RankedAttempt:
    """``share``: of the least work, geometric mean over workloads; None where it was not counted.
    The others are of the worst kernel that was launched, or of the build."""

    share: float | None = None
    instructions: int | None = None
    spills: int | None = None
    occupancy: float | None = None
    registers: int | None = None
    shared_bytes: int | None = None

    @property
    def anything(self) -> bool:
        return self != RankedAttempt()

    def __str__(self) -> str:
        """The facts in a line, empty where there are none."""
        told = []
        if self.share is not None:
            told.append(f"{self.share:.3g} of the least work, {self.instructions:,} instructions")
        if self.spills is not None:
            told.append(f"{self.spills or 'no'} spills")
        if self.occupancy is not None:
            told.append(f"occupancy {self.occupancy:.0%}")
        if self.registers is not None:
            told.append(f"{self.registers} registers")
        if self.shared_bytes is not None:
            told.append(f"{self.shared_bytes:,} B of shared memory")
        return ", ".join(told)


def of(records: Sequence[Record]) -> RankedAttempt:
    """Reads what is known of a kernel from its records of the workloads that count."""
    moving = [r for r in records if r.roofline and r.roofline.bytes]
    counted = [share for record in moving if (share := _share(record))]
    share = None
    if counted and len(counted) == len(moving):
        share = math.exp(sum(map(math.log, counted)) / len(counted))
    return RankedAttempt(
        share,
        sum(_counts(record)["instructions"] for record in moving) if share else None,
        _most(records, "spills"),
        min(_facts(records, "occupancy"), default=None),
        _most(records, "registers"),
        _most(records, "shared_bytes"),
    )


def score(known: RankedAttempt, *, executed: bool) -> float:
    """A score by which kernels are ranked, above 0 and at most :data:`UNTIMED`. ``executed``: where
    kernels are judged, objects are executed, so that one that was not counted comes last."""
    worse = _worse(known)
    if known.share is not None:
        steps = round(math.log(known.share) / EQUAL)
        return UNTIMED * math.exp((steps - worse) * EQUAL)
    return (UNCOUNTED if executed else UNTIMED) * math.exp2(-worse)


def _worse(known: RankedAttempt) -> float:
    """How much worse a build is than one which takes nothing, from 0 to below 1, as digits: the
    first that differs decides. What is not known is taken for nothing."""
    occupancy = 1.0 if known.occupancy is None else known.occupancy
    digits = (
        (_SPILLS, (known.spills or 0).bit_length()),
        (_OCCUPANCY, math.ceil((1.0 - occupancy) * (_OCCUPANCY - 1))),
        (_REGISTERS, (known.registers or 0) // 8),
        (_SHARED, (known.shared_bytes or 0) // 1024),
    )
    worse, unit = 0.0, 1.0
    for steps, digit in digits:
        unit /= steps
        worse += unit * min(max(digit, 0), steps - 1)
    return worse


def _share(record: Record) -> float | None:
    """The least work over what was counted in one call; None where it was not."""
    counts, least = _counts(record), record.roofline.bytes if record.roofline else 0
    if not counts["instructions"]:
        return None
    moved = counts["lines"] * LINE_BYTES + counts["scratch_bytes"]
    cycles = counts["instructions"] + counts["lds_passes"] + moved / BYTES_A_CYCLE
    return min(least / BYTES_A_CYCLE / cycles, 1.0)


def _counts(record: Record) -> Counter[str]:
    total: Counter[str] = Counter()
    for launch in record.launches:
        total.update(launch.counts)
    return total


def _facts(records: Sequence[Record], name: str) -> list[float]:
    """Lists a fact of the kernels that were launched, where their names say which of the build
    those are, else of all."""
    told: list[float | None] = []
    for record in records:
        launched = {launch.name for launch in record.launches}
        own = [used for used in record.resources if used.kernel in launched]
        told += [getattr(used, name) for used in own or record.resources]
    return [fact for fact in told if fact is not None]


def _most(records: Sequence[Record], name: str) -> int | None:
    return max(map(int, _facts(records, name)), default=None)
