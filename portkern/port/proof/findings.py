"""The kernel that a finding belongs to, and whether the original has it too."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from portkern.cuda_source.syntax import LaunchText, SourceKernel
from portkern.port.proof.recording import kernel_name
from portkern.simt.diagnostics import HANGS, Diagnostic, Severity

#: What is whole warps of the original's may be a part of a wider wave: the code of the one, and of
#: the other. A barrier counts threads that are left in CUDA, and waves on AMD's GPUs.
_BY_WIDTH = {"SX308": "SX302"}
#: These end a launch, so that only the first is met: which one depends on the order of threads.
_FATAL = frozenset(["SX101", "SX102", "SX104", "SX105", "SX106", "SX109", "SX111", "SX112"])
_ANYWHERE = "", 0
#: What C++ leaves open, and what vendors' GPUs do differently: a shift by 32 is 0 on NVIDIA's and
#: no shift on AMD's.
_OF_VENDORS = frozenset(["SX502", "SX503"])
#: The reason why the original says nothing about GPUs: its kernel did this here.
_OF_GPUS = "what comes of it differs between vendors' GPUs"
_SAYS_NOTHING = {"SX119": "a GPU's variables are not the host's"}
#: How the codes of races begin.
_RACES = "SX2"
#: The stem of a file's name, which a port keeps where its suffix changes; and a line.
_Place = tuple[str, int]


@dataclass(frozen=True)
class Text:
    """A file of a program, with its kernels and launches; ``namespaces`` are the named ones, by
    where they begin and end."""

    path: Path
    text: str
    kernels: tuple[SourceKernel, ...]
    launches: tuple[LaunchText, ...]
    namespaces: tuple[tuple[int, int, str], ...] = ()

    def scope_of(self, kernel: SourceKernel) -> str:
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


def hanging(findings: Iterable[Diagnostic]) -> Diagnostic | None:
    """The first finding of a launch that never ends."""
    return next((finding for finding in findings if finding.code in HANGS), None)


def is_race(finding: Diagnostic) -> bool:
    return finding.code.startswith(_RACES)


def says_nothing(code: str) -> str:
    """Why the results of a kernel of the original's that has this finding say nothing about GPUs,
    on whatever inputs; '' where they may."""
    differs = code in _OF_VENDORS or code.startswith(_RACES)
    return _OF_GPUS if differs else _SAYS_NOTHING.get(code, "")


def inheritable(findings: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Errors, and notes that are errors at another width."""
    return tuple(f for f in findings if f.severity is Severity.ERROR or f.code in _BY_WIDTH)


class Inheritance:
    """The findings that a port has from its original: of one code, in one kernel, at one place;
    or, for codes that end a launch, anywhere in that kernel. Places are lines of the original;
    ``pairs`` are the files of both, whose texts say which line is which."""

    def __init__(self, pairs: Iterable[tuple[Text, Text]]) -> None:
        self._before = {
            (ported.path.stem, line): (original.path.stem, before)
            for original, ported in pairs
            for line, before in line_map(
                ported.text.splitlines(), original.text.splitlines()
            ).items()
        }

    def own(
        self, ported: Sequence[Diagnostic], originals: Sequence[Diagnostic]
    ) -> tuple[Diagnostic, ...]:
        """The errors of the port that its original does not have."""
        known = {_key(f, place) for f in originals for place in _places(f)}
        return tuple(
            finding
            for finding in errors(ported)
            if known.isdisjoint(_key(finding, self._before.get(p, p)) for p in _places(finding))
        )


def _key(finding: Diagnostic, place: _Place) -> tuple[str, str, _Place]:
    kernel = kernel_name(finding.kernel)
    if finding.code in _FATAL and kernel:
        return "memory", kernel, _ANYWHERE
    return _BY_WIDTH.get(finding.code, finding.code), kernel, place


def _places(finding: Diagnostic) -> Iterator[_Place]:
    """A race has two, and is met first from either: which one depends on the order of threads."""
    yield Path(finding.file).stem, finding.line
    if finding.also:
        file, _, line = finding.also.rpartition(":")
        yield Path(file).stem, int(line)


def line_map(ported: Sequence[str], original: Sequence[str]) -> dict[int, int]:
    """The original's line for each of the port's; those that changed correspond in their order."""
    lines: dict[int, int] = {}
    matcher = difflib.SequenceMatcher(None, ported, original, autojunk=False)
    for _, begin, end, other, last in matcher.get_opcodes():
        for offset in range(end - begin):
            lines[begin + offset + 1] = min(other + offset, max(last - 1, other)) + 1
    return lines
