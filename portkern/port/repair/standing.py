"""How a kernel stands, and when another text of it is better.

A text is better where no part of its standing is worse and one is better. The parts: for how many
targets there is an object that can be launched; the outcome, of which only two count for more than
others: ``needs a human`` (ran as its original does, and has a hazard that is an error) and, above
it, ``proven in emulation``; how many hazards are errors; how many findings the proof has. Other
outcomes are not weighed against each other: a kernel that is wrong is not mended by one that
nothing can be said of.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from portkern.port.kernel_port import PROVEN, KernelPort
from portkern.port.result import KernelRow

#: A kernel by its file, its name, and how many of that name stand before it in the file.
Name = tuple[str, str, int]
_LEVELS = {"needs a human": 1, PROVEN: 2}


@dataclass(frozen=True)
class Standing:
    fitting: int
    outcome: str
    errors: int
    findings: int

    @classmethod
    def of(cls, row: KernelRow) -> Standing:
        return cls(
            sum(port.fits for port in row.ports),
            row.outcome,
            sum(hazard.severity == "error" for hazard in row.hazards),
            len(row.worst.proof.findings),
        )

    def at_least(self, other: Standing) -> bool:
        """Whether nothing is worse than in ``other``."""
        if self._level < other._level or self.fitting < other.fitting:
            return False
        if self.errors > other.errors:
            return False
        if self._level > other._level:
            return True
        return self.outcome == other.outcome and self.findings <= other.findings

    def better(self, other: Standing) -> bool:
        if self == other or not self.at_least(other):
            return False
        parts = (self._level, self.fitting, self.errors)
        # A kernel that is wrong without findings has other values: no lesser defect.
        return parts != (other._level, other.fitting, other.errors) or self.findings > 0

    @property
    def _level(self) -> int:
        return _LEVELS.get(self.outcome, 0)


def rows(ports: Iterable[KernelPort]) -> Mapping[Name, KernelRow]:
    """Kernels over their targets."""
    lines: dict[tuple[str, str], set[int]] = {}
    several = list(ports)
    for port in several:
        lines.setdefault((port.path, port.kernel), set()).add(port.line)
    grouped: dict[Name, list[KernelPort]] = {}
    for port in several:
        before = sorted(lines[port.path, port.kernel]).index(port.line)
        grouped.setdefault((port.path, port.kernel, before), []).append(port)
    return {name: KernelRow(tuple(grouped[name])) for name in sorted(grouped)}


def words(row: KernelRow) -> str:
    """``wrong``, or ``not proven, not built for gfx942``."""
    missing = [port.target for port in row.ports if not port.fits]
    return f"{row.outcome}, not built for {' '.join(missing)}" if missing else row.outcome


#: Reasons of ``not proven`` that lie in the port's text. Others are of the original, or of inputs.
_OF_TEXT = re.compile(r"\bthe port\b|did not end|wrote no buffer|\bdiffers?\b")
#: Reasons why a kernel is in no object that no text of it changes.
_ABSENT = ("the template has no instance", "the object has no such kernel", "objects are made for")


def is_mendable(row: KernelRow) -> bool:
    """Whether another text of the kernel could make it better."""
    if row.good:
        return False
    proof = row.worst.proof
    if proof.outcome in ("wrong", "needs a human"):
        return True
    if proof.outcome == "not proven" and (proof.findings or _OF_TEXT.search(proof.why)):
        return True
    return any(_is_rejected(port) for port in row.ports)


def _is_rejected(port: KernelPort) -> bool:
    return not port.fits and not port.lacking and not port.not_built.startswith(_ABSENT)
