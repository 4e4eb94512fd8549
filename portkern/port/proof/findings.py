"""Whose a finding is: the kernel it belongs to, and whether the original has it too."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from portkern.port.proof.recording import kernel_name
from portkern.port.syntax import Kernel, Launch
from portkern.simt.diagnostics import Diagnostic, Severity


@dataclass(frozen=True)
class Text:
    """A file of a program, with its kernels and launches; ``namespaces`` are the named ones, by
    where they begin and end."""

    path: Path
    text: str
    kernels: tuple[Kernel, ...]
    launches: tuple[Launch, ...]
    namespaces: tuple[tuple[int, int, str], ...] = ()

    def scope_of(self, kernel: Kernel) -> str:
        """``ns::`` where the kernel is in one."""
        return "".join(
            f"{name}::"
            for begin, end, name in self.namespaces
            if name and begin < kernel.start < end
        )

    def kernel_of(self, finding: Diagnostic) -> str:
        """'' for one of the host's code."""
        if finding.kernel:
            return kernel_name(finding.kernel)
        if Path(finding.file).name != self.path.name:
            return ""
        inside = (k.name for k in self.kernels if k.line <= finding.line <= k.last_line)
        launched = (launch.kernel for launch in self.launches if launch.line == finding.line)
        return next(inside, next(launched, ""))


def errors(findings: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    return tuple(finding for finding in findings if finding.severity is Severity.ERROR)


class Inheritance:
    """Lines of a port as lines of its original: of pairs of both's files."""

    def __init__(self, pairs: Iterable[tuple[Text, Text]]) -> None:
        self._lines = {
            ported.path.name: _line_map(ported.text.splitlines(), original.text.splitlines())
            for original, ported in pairs
        }

    def own(
        self, ported: Sequence[Diagnostic], originals: Sequence[Diagnostic]
    ) -> tuple[Diagnostic, ...]:
        """The errors of the port that its original does not have in the same place."""
        known = {(finding.code, finding.line) for finding in originals}
        # A race is reported at either of its two places.
        known |= {(f.code, int(f.also.rpartition(":")[2])) for f in originals if f.also}
        return tuple(
            finding
            for finding in errors(ported)
            if (finding.code, self._line(finding)) not in known
        )

    def _line(self, finding: Diagnostic) -> int:
        lines = self._lines.get(Path(finding.file).name, {})
        return lines.get(finding.line, finding.line)


def _line_map(ported: Sequence[str], original: Sequence[str]) -> dict[int, int]:
    """Lines that were changed correspond in their order."""
    lines: dict[int, int] = {}
    matcher = difflib.SequenceMatcher(None, ported, original, autojunk=False)
    for _, begin, end, other, last in matcher.get_opcodes():
        for offset in range(end - begin):
            lines[begin + offset + 1] = min(other + offset, max(last - 1, other)) + 1
    return lines
