"""What the compiler said of a kernel that does not build, without what nobody can act on."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import ClassVar

from portkern.agent.axes import Measured
from portkern.agent.task import Task
from portkern.records.record import Record, Verdict
from portkern.spec.candidate import Candidate

#: A longer line is a template's name or a dump.
LINE_CHARS = 220
#: Lines that a compiler shows below a message: the source, and a caret under it.
EXCERPT_LINES = 3
_ERROR, _WARNING, _NOTE = "error", "warning", "note"
_GNU = re.compile(
    r"^(?P<file>[^\s:(][^:(]*):(?P<line>\d+):(?:\d+:)? "
    r"(?P<kind>(?:fatal |internal compiler )?error|warning|note): (?P<text>.*)"
)
_EDG = re.compile(
    r"^(?P<file>[^\s(][^(]*)\((?P<line>\d+)\): "
    r"(?P<kind>(?:catastrophic |internal )?error|warning|remark)\b[^:]*: (?P<text>.*)"
)
#: Of ptxas, linkers and drivers, which know no line of the source.
_PLACELESS = re.compile(
    r"^(?P<file>(?:[\w./+-]+:)?)(?P<line>)(?P<text>.*?\b(?P<kind>fatal|error|undefined reference|warning)\b.*)"  # noqa: E501
)
_EXCERPT = re.compile(r"^\s+\S|^\s*\d*\s*\|")
#: How a template came to be instantiated, and pybind's dump of the arguments of a call.
_INSTANTIATION = re.compile(
    r"required (?:from|by)|instantiat(?:ed|ion)|detected during|In substitution of"
    r"|^\s*In (?:member )?function|In file included"
)
_DUMP = "Invoked with:"
_WITH = re.compile(r"\[with [^\]]*\]")


@dataclass
class CompilerMessage:
    """One of the compiler's, with the lines that it showed below it."""

    kind: str
    file: str
    line: int
    text: str
    shown: list[str] = field(default_factory=list)

    def lines(self, source: Sequence[str], op: str) -> list[str]:
        """With the line of the source that it speaks of. What compilers show is another one: they
        number lines by ``#line`` and look them up in the file, which has a prelude."""
        ours = self.line if PurePath(self.file).stem == op else 0
        if not 0 < ours <= len(source):
            return [self.text, *self.shown]
        return [self.text, f"    {ours} | {source[ours - 1].strip()}"]


def messages(log: str) -> list[CompilerMessage]:
    """Errors and warnings in their order, each once."""
    found: list[CompilerMessage] = []
    current: CompilerMessage | None = None
    for line in log.partition(_DUMP)[0].splitlines():
        match = _GNU.match(line) or _EDG.match(line)
        if match is None and current is not None and _EXCERPT.match(line):
            if len(current.shown) < EXCERPT_LINES and not _INSTANTIATION.search(line):
                current.shown.append(_short(line))
            continue
        match = match or _PLACELESS.match(line)
        current = None
        if match is None or (_INSTANTIATION.search(line) and not match["line"]):
            continue
        kind = _kind(match["kind"])
        current = CompilerMessage(
            kind, match["file"].rstrip(":"), int(match["line"] or 0), _short(line.strip())
        )
        if kind != _NOTE and current.text not in [one.text for one in found]:
            found.append(current)
    return found


def trimmed(log: str, source: str, op: str, *, most_lines: int, most_chars: int) -> str:
    """Errors first, then warnings; the end of a log in which there are none, such as Python's."""
    found = messages(log)
    if not any(one.kind == _ERROR for one in found):
        lines = [_short(line) for line in log.partition(_DUMP)[0].splitlines() if line.strip()]
        return _fitting(lines[-most_lines:], most_lines, most_chars)
    code = source.splitlines()
    ordered = sorted(found, key=lambda one: one.kind != _ERROR)
    lines = [line for one in ordered for line in one.lines(code, op)]
    return _fitting(lines, most_lines, most_chars)


def _fitting(lines: Sequence[str], most_lines: int, most_chars: int) -> str:
    """From the beginning, whole lines, with a word on what is left out."""
    kept: list[str] = []
    for line in lines[:most_lines]:
        if sum(len(one) + 1 for one in kept) + len(line) > most_chars:
            break
        kept.append(line)
    left = len(lines) - len(kept)
    return "\n".join([*kept, f"… {left} more lines"] if left else kept)


def _kind(told: str) -> str:
    if told in ("note", "remark"):
        return _NOTE
    return _WARNING if told == "warning" else _ERROR


def _short(line: str) -> str:
    line = _WITH.sub("[with …]", line.rstrip())
    return line if len(line) <= LINE_CHARS else f"{line[:LINE_CHARS]}…"


class BuildLog:
    """Stage 0: nothing else is known of a kernel that does not build."""

    kind: ClassVar[str] = "compile"
    stage: ClassVar[int] = 0

    def __init__(self, *, lines: int, chars: int) -> None:
        self._lines, self._chars = lines, chars

    def measure(self, task: Task, candidate: Candidate, records: Sequence[Record]) -> Measured:
        failed = next(_failed(records), None)
        if failed is None:
            return Measured()
        title, _, log = failed.detail.partition("\n")
        text = trimmed(
            log, candidate.source, task.op.name, most_lines=self._lines, most_chars=self._chars
        )
        errors = sum(message.kind == _ERROR for message in messages(log))
        return Measured(
            {"build_errors": float(max(errors, 1))},
            "It does not build",
            "\n".join(filter(None, [title, text])),
            stop=True,
        )


def _failed(records: Iterable[Record]) -> Iterator[Record]:
    return (record for record in records if record.verdict is Verdict.BUILD_FAILED)
