"""A kernel's text as one file: headers of portkern and of its project in the place of their
includes."""

from __future__ import annotations

import re

from portkern.cuda_source.comments import without_comments
from portkern.formats.exported import NoSuchForm
from portkern.spec import own_headers
from portkern.spec.candidate import Candidate

# What only the executor compiles; a kernel that leaves portkern has the other way.
_FOR_EXECUTOR = re.compile(
    r"^#ifdef SIMT_\w+[^\n]*\n.*?^#else\n(?P<others>.*?)^#endif\n", re.MULTILINE | re.DOTALL
)
_INCLUDE = re.compile(r"[ \t]*#[ \t]*include[ \t]*(?P<target><[^>\n]+>|\"[^\"\n]+\")")
_BY_MACRO = re.compile(r"[ \t]*#[ \t]*include[ \t]*[A-Za-z_]")
_ONCE = re.compile(r"^[ \t]*#[ \t]*pragma[ \t]+once\b.*\n?", re.MULTILINE)
_GUARDED = re.compile(r"\s*#[ \t]*ifndef[ \t]+(\w+)[^\n]*\s*#[ \t]*define[ \t]+\1\b", re.DOTALL)
_CONDITION = re.compile(r"[ \t]*#[ \t]*(if|ifdef|ifndef|elif|else|endif)\b")

#: The branches of conditions that a line stands in, outermost first.
_Branches = tuple[object, ...]


def inlined(candidate: Candidate) -> str:
    """The source with each header of portkern and of its project once; again, guarded, where the
    one before stands in a branch that is not always taken. Its macros stand before it, its further
    sources after it. Raises NoSuchForm for a header of portkern that does not exist, and for an
    include by a macro of what has headers of its own."""
    headers = _Headers(candidate)
    own = candidate.companions
    macros = f"{own.macros}\n" if own.defines else ""
    text = headers.put_in(candidate.source, (), own.path)
    for name in own.sources:
        text += f"\n{headers.put_in(own.texts[name], (), name)}"
    return macros + headers.guard_repeated(text)


class _Headers:
    """Files are known by their paths in the project, headers of portkern by their names."""

    def __init__(self, candidate: Candidate) -> None:
        self.candidate, self.companions = candidate, candidate.companions
        self.branches: dict[str, list[_Branches]] = {}
        self.open: list[str] = []

    def put_in(self, source: str, branches: _Branches, path: str) -> str:
        lines = []
        for line in source.splitlines(keepends=True):
            if condition := _CONDITION.match(line):
                branches = _after(condition[1], branches)
            if self.companions and _BY_MACRO.match(line):
                raise NoSuchForm(f"it includes what a macro names: {line.strip()[:60]!r}")
            include = _INCLUDE.match(line)
            found = self._found(include["target"], path) if include else None
            lines.append(self._text(*found, branches) if found else line)
        return "".join(lines)

    def _found(self, target: str, path: str) -> tuple[str, str] | None:
        """The name and text of what is included; None for the toolchain's own."""
        if place := self.companions.place(path, target):
            return place, self.companions.texts[place]
        name = target.strip('<>"')
        if target.startswith("<portkern/"):
            return name, _header(name, self.candidate)
        return None

    def _text(self, name: str, body: str, branches: _Branches) -> str:
        once = _ONCE.search(body) is not None
        if name in self.open:
            if not once and not _GUARDED.match(without_comments(body)):
                raise NoSuchForm(f"{name} includes itself without a guard")
            return "\n"
        before = self.branches.setdefault(name, [])
        if once or name.startswith("portkern/"):
            if any(branches[: len(others)] == others for others in before):
                return "\n"
            before.append(branches)
        self.open.append(name)
        text = self.put_in(_ONCE.sub("", body), branches, name)
        self.open.pop()
        return f"{_begin(name)}{text.rstrip(chr(10))}\n{_end(name)}"

    def guard_repeated(self, text: str) -> str:
        for name, places in self.branches.items():
            guard = re.sub(r"\W", "_", name).upper()
            repeated = len(places) > 1
            opened = f"#ifndef {guard}\n#define {guard}\n" if repeated else ""
            text = text.replace(_begin(name), opened)
            text = text.replace(_end(name), "#endif\n" if repeated else "")
        return text


def _after(condition: str, branches: _Branches) -> _Branches:
    if condition == "endif":
        return branches[:-1]
    outside = branches[:-1] if condition in ("elif", "else") else branches
    return (*outside, object())


def _begin(name: str) -> str:
    return f"// begin <{name}>\n"


def _end(name: str) -> str:
    return f"// end <{name}>\n"


def _header(name: str, candidate: Candidate) -> str:
    """A header's text as the kernel was evaluated with it, where that is known."""
    text = candidate.headers.get(name) or own_headers.text(name, candidate.backend)
    if text is None:
        raise NoSuchForm(f"it includes <{name}>, which is not here")
    return _FOR_EXECUTOR.sub(r"\g<others>", text)
