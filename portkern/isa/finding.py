"""Findings of the executor about a launch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from portkern.spec.json_types import JsonObject


class FindingKind(StrEnum):
    """Kinds of findings, in the order of the runtime's numbers, from 1."""

    LOAD_OUTSIDE = "a load outside all buffers"
    STORE_OUTSIDE = "a store outside all buffers that may be written"
    LDS_OUTSIDE = "an access outside LDS"
    UNMODELLED = "an instruction that the executor does not model"
    HANGS = "waits for what no other wave can do any more"
    LIMIT = "did not end within the limit of instructions"
    TRAP = "a trap"
    BAD_JUMP = "a jump to where no instruction begins"
    MISALIGNED = "a misaligned access"
    MODE = "an instruction that the executor does not model in this rounding or denormal mode"
    UNWAITED = "touches a register that a load may not have filled yet, as nobody waited for it"
    UNWAITED_LDS = "a barrier before stores to LDS are done, as nobody waited for them"
    LDS_RACE = "waves meet at one byte of LDS without a barrier between them"
    IN_STEP = "waits for what no other wave can do any more, while lanes of its own wait for it"
    ROOM = "more workgroups wait for each other than the executor has room for"
    TOO_SOON = "uses what another instruction gives before the idle states that the chip asks for"
    UNFILLED_LDS = "reads LDS before what is loaded straight into it is there, with no wait for it"
    FLUSHED_FACTOR = (
        "takes denormal factors (of float16: below 6.1e-5) for zeros, as the matrix unit of this"
        " chip does"
    )


#: A kernel that ends with one of these has not been judged: the executor cannot run it.
NEEDS_HARDWARE = frozenset((FindingKind.UNMODELLED, FindingKind.MODE, FindingKind.ROOM))
#: What the chip does by its design, and a reader of a wrong result needs to know.
REMARKS = frozenset((FindingKind.FLUSHED_FACTOR,))
_HANGS = frozenset((FindingKind.HANGS, FindingKind.IN_STEP, FindingKind.LIMIT))


@dataclass(frozen=True)
class ObjectFinding:
    """``address`` is the instruction's, in the object; ``accessed`` is what it went for.
    ``executed``: a wave did so; else it follows from the code, for some path that leads there."""

    kind: FindingKind
    address: int
    mnemonic: str
    wave: int
    lane: int
    group: tuple[int, int, int]
    accessed: int
    line: str = ""
    executed: bool = True

    def __str__(self) -> str:
        place = f" ({self.line})" if self.line else ""
        what = f"{self.mnemonic or 'an unknown encoding'} at {self.address:#x}{place}"
        if not self.executed:
            return f"{self.kind}: {what}, on a path that leads there"
        where = f"wave {self.wave} of workgroup {self.group}"
        reached = f", address {self.accessed:#x}, lane {self.lane}" if self.accessed else ""
        return f"{self.kind}: {what}, {where}{reached}"

    @property
    def code(self) -> str:
        """The code by which records name it: ``object-store-outside``."""
        return f"object-{self.kind.name.lower().replace('_', '-')}"

    def to_json(self, kernel: str) -> JsonObject:
        """The finding as workers report it. One that was executed says that the kernel is wrong,
        unless it is a remark."""
        place = self.line or f"{self.address:#x}"
        severity = "error" if self.executed else "warning"
        return {
            "code": self.code,
            "severity": "note" if self.kind in REMARKS else severity,
            "message": str(self),
            "place": place,
            "kernel": kernel,
        }


@dataclass(frozen=True)
class ObjectRan:
    """How a launch ended: ``complete`` if all waves came to their end. ``counts``, of
    :mod:`portkern.isa.counts`, are there where they were asked for; ``unseen`` is what the code
    says of paths that were looked at and not taken, ``remarks`` what the chip does by design."""

    complete: bool
    findings: tuple[ObjectFinding, ...]
    instructions: int
    counts: Mapping[str, int] = field(default_factory=dict)
    unseen: tuple[ObjectFinding, ...] = ()
    remarks: tuple[ObjectFinding, ...] = ()

    @property
    def clean(self) -> bool:
        return self.complete and not self.findings

    @property
    def hangs(self) -> bool:
        return any(finding.kind in _HANGS for finding in self.findings)

    @property
    def needs_hardware(self) -> ObjectFinding | None:
        """The first thing that is not modelled."""
        return next((f for f in self.findings if f.kind in NEEDS_HARDWARE), None)
