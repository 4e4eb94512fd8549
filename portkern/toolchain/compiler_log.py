"""A compiler's messages, and the first of them about the author's own file."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

from portkern.toolchain import source_tree

#: A longer line is a template's name or a dump.
LINE_CHARS = 220
#: Lines that a compiler shows below a message: the source, and a caret under it.
EXCERPT_LINES = 3
ERROR, _WARNING, _NOTE = "error", "warning", "note"
_GNU = re.compile(
    r"^(?P<file>[^\s:(][^:(]*):(?P<line>\d+):(?:(?P<column>\d+):)? "
    r"(?P<kind>(?:fatal |internal compiler )?error|warning|note): (?P<text>.*)"
)
_EDG = re.compile(
    r"^(?P<file>[^\s(][^(]*)\((?P<line>\d+)\): "
    r"(?P<kind>(?:catastrophic |internal )?error|warning|remark)\b[^:]*: (?P<text>.*)"
)
#: Messages of ptxas, linkers and drivers, which know no line of the source.
_PLACELESS = re.compile(
    r"^(?P<file>(?:[\w./+-]+:)?)(?P<line>)(?P<text>.*?\b(?P<kind>fatal|error|undefined reference|warning)\b.*)"  # noqa: E501
)
_EXCERPT = re.compile(r"^\s+\S|^\s*\d*\s*\|")
#: How a template came to be instantiated, and pybind's dump of the arguments of a call.
_INSTANTIATION = re.compile(
    r"required (?:from|by)|instantiat(?:ed|ion)|detected during|In substitution of"
    r"|^\s*In (?:member )?function|In file included"
)
DUMP = "Invoked with:"
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
        """The message with the line of the source that it speaks of. Compilers show another line:
        they number lines by ``#line`` and look them up in the file, which has a prelude."""
        ours = self.line if PurePath(self.file).stem == op else 0
        if not 0 < ours <= len(source):
            return [self.text, *self.shown]
        return [self.text, f"    {ours} | {source[ours - 1].strip()}"]


def messages(log: str) -> list[CompilerMessage]:
    """Errors and warnings in their order, each once."""
    parsed: list[CompilerMessage] = []
    current: CompilerMessage | None = None
    for line in log.partition(DUMP)[0].splitlines():
        match = _GNU.match(line) or _EDG.match(line)
        if match is None and current is not None and _EXCERPT.match(line):
            if len(current.shown) < EXCERPT_LINES and not _INSTANTIATION.search(line):
                current.shown.append(short(line))
            continue
        match = match or _PLACELESS.match(line)
        current = None
        if match is None or (_INSTANTIATION.search(line) and not match["line"]):
            continue
        kind = _kind(match["kind"])
        current = CompilerMessage(
            kind, match["file"].rstrip(":"), int(match["line"] or 0), short(line.strip())
        )
        if kind != _NOTE and current.text not in [earlier.text for earlier in parsed]:
            parsed.append(current)
    return parsed


def _kind(word: str) -> str:
    if word in ("note", "remark"):
        return _NOTE
    return _WARNING if word == "warning" else ERROR


def short(line: str) -> str:
    line = _WITH.sub("[with …]", line.rstrip())
    return line if len(line) <= LINE_CHARS else f"{line[:LINE_CHARS]}…"


_PLACE = re.compile(r"(?P<file>[^\s:\"'(]+):(?P<line>\d+):(?P<column>\d+)")
#: nvcc's, of a template that was instantiated by the author's code.
_EDG_PLACE = re.compile(r'at line (?P<line>\d+)(?: of "?(?P<file>[^\s"]+))?')
#: Numba's places, Triton's as its backend writes them, and Python's own.
_FRAME = re.compile(
    r'^\s*(?:File "(?P<file>[^"]+)", line (?P<line>\d+)|(?P<short>[\w.-]+\.py):(?P<at>\d+) in )'
)
_PREAMBLE = re.compile(r"^(?:Failed in \w+ mode|No implementation|Traceback |\s*$|-+$)")


@dataclass(frozen=True)
class FirstError:
    """``headline`` is ``file:line:column: error: text``; ``rest`` what the log says after it."""

    headline: str
    rest: str


def first_error(detail: str, log: str, *, own: Collection[str], name: str) -> FirstError | None:
    """The first error in the author's file or what lies beside it, or of what it instantiates,
    under the author's ``name`` of it, or the log's where that is empty; ``own`` are the stems that
    it has in the log.
    ``detail`` is what is said where the log only has a place. None without any place."""
    lines = log.splitlines()
    errors = [(at, match) for at, line in enumerate(lines) if (match := _error(line))]
    for at, match in errors:
        beside = source_tree.named(match["file"])
        if beside or PurePath(match["file"]).stem in own:
            at_line = _at(match, beside or name)
            headline = f"{at_line}: {match['kind']}: {short(match['text'].strip())}"
            return FirstError(headline, renamed(lines[at + 1 :], own, name))
    for at, match in errors:
        place = _cause(lines, at, own)
        if place is not None:
            there = f"{PurePath(match['file']).name}:{match['line']}"
            said = f"{match['kind']}: {short(match['text'])} (in {there})"
            return FirstError(f"{_at(place, name)}: {said}", renamed(lines[at + 1 :], own, name))
    frames = [frame for line in lines if (frame := _FRAME.match(line))]
    inside = [f for f in frames if PurePath(f["file"] or f["short"]).stem in own]
    if not inside:
        return None
    number = inside[-1]["line"] or inside[-1]["at"]
    name = name or PurePath(inside[-1]["file"] or inside[-1]["short"]).name
    said = detail
    raised = ", in " in inside[-1].string  # a frame of a traceback, which ends with the detail
    if inside[-1]["file"] and not raised:  # Numba's own words are in its log, with a preamble
        said = next((line.strip() for line in lines if not _PREAMBLE.match(line)), detail)
    return FirstError(f"{name}:{number}: error: {said}", renamed(lines, own, name))


def _error(line: str) -> re.Match[str] | None:
    match = _GNU.match(line) or _EDG.match(line)
    return match if match and _kind(match["kind"]) == ERROR else None


def _at(match: re.Match[str], name: str) -> str:
    column = match.groupdict().get("column") or ""
    file = PurePath(match["file"])
    if not name or not file.suffix:  # OpenCL's programs are strings of the file: SOURCE:3:5
        name = file.name
    return f"{name}:{match['line']}{f':{column}' if column else ''}"


def _cause(lines: Sequence[str], at: int, own: Collection[str]) -> re.Match[str] | None:
    """The line of the author's file that led to the error in line ``at``: GCC says it before,
    others after."""
    before = [line for line in lines[:at] if not line.lstrip().startswith(("In file", "from "))]
    for line in [*reversed(before), *lines[at + 1 :]]:
        for pattern in (_PLACE, _EDG_PLACE):
            match = pattern.search(line)
            if match and match["file"] and PurePath(match["file"]).stem in own:
                return match
    return None


def renamed(lines: Sequence[str], own: Collection[str], name: str) -> str:
    """The lines with the author's ``name`` of the file, if there is one, and the names of what lies
    beside it."""
    stems = "|".join(map(re.escape, own)) if name else "(?!)"
    beside = rf"[^\s:\"'(]*{re.escape(source_tree.FOLDER)}/[^\s:\"'(),]+"
    file = re.compile(rf"{beside}|[^\s:\"'(]*(?<![\w.-])(?:{stems})\.\w+(?!\w)")
    return "\n".join(file.sub(lambda m: source_tree.named(m[0]) or name, line) for line in lines)
