"""A file as the rules read it: comments, strings and other vendors' branches blanked, in place.

Offsets in every view are those of the text, so that a match in one is a place in all.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

from portkern.cuda_source import conditions
from portkern.cuda_source.blanked import blanked
from portkern.cuda_source.constants import integer
from portkern.cuda_source.functions import Function as Definition
from portkern.cuda_source.lexer import Macro, SourceCode
from portkern.cuda_source.shared_macros import shared_macros
from portkern.cuda_source.syntax import Syntax, parse

_HASH = re.compile(r"""(?P<string>"[^"\n]*"|'[^'\n]*')|(?P<comment>(?:(?<=\s)|^)\#[^\n]*)""", re.M)
_VISIBLE = re.compile(r"[^\n]")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)(\()?((?:[^\n\\]|\\\r?\n|\\.)*)", re.M)
_CONSTANT = re.compile(
    r"\b(?:constexpr|const|enum\s*\w*\s*\{)\s*((?:(?:static|inline|__device__|const|constexpr"
    r"|unsigned|signed|int|long|short|char|auto|size_t|u?int\d+_t|uint|bool)\s+)*)"
    r"(\w+)\s*(?:=\s*([^;{}]+)|\{([^;{}]*)\})\s*[;}]"
)
#: ``typedef float real;``, ``using real = float;``, ``struct real {``.
_TYPE = re.compile(
    r"\btypedef\s[^;{}()]*?(\w+)\s*;|\busing\s+(\w+)\s*=(?!=)|\b(?:struct|class)\s+(\w+)\s*(?=[:{])"
)
_BUILD = re.compile(r"(?:CMakeLists\.txt|\.cmake|[Mm]akefile(?:\.\w+)?|\.mk|\.py)$")


@dataclass(frozen=True)
class DeviceFunction:
    """A device function: its mark stands at ``start``, its body lies in ``[open, close)``."""

    name: str
    kernel: bool
    start: int
    parameters: str
    open: int
    close: int
    head: str  # what stands before the parameters, its template too


@dataclass(frozen=True)
class SourceCall:
    """``name(arguments)`` at ``start``; ``stop`` is after the closing bracket."""

    name: str
    start: int
    stop: int
    arguments: tuple[str, ...]


def _blanked(text: str, ranges: list[tuple[int, int]]) -> str:
    parts, at = [], 0
    for start, stop in sorted(ranges):
        if start < at:
            continue
        parts += [text[at:start], _VISIBLE.sub(" ", text[start:stop])]
        at = stop
    return "".join([*parts, text[at:]])


class Source:
    """``code`` has neither comments nor strings nor dead branches; ``quoted`` keeps strings."""

    def __init__(
        self, text: str, name: str, *, amd: bool = True, headers: tuple[Source, ...] = ()
    ) -> None:
        self.text = text
        self.name = name
        self.headers = headers
        self.build_file = _BUILD.search(name) is not None
        self.guards: list[conditions.Guard] = []
        if self.build_file:
            found = list(_HASH.finditer(text))
            comments = [match.span() for match in found if match["comment"] is not None]
            strings = [(m.start() + 1, m.end() - 1) for m in found if m["comment"] is None]
            self.code = _blanked(text, comments + strings)
            self.quoted = _blanked(text, comments)
        else:
            code = SourceCode(text)
            dead, self.guards = _branches(code, conditions.AMD if amd else conditions.NVIDIA)
            self.code, self.quoted = blanked(code, dead)
        self._lines = [match.start() for match in re.finditer("\n", text)]

    def line(self, at: int) -> int:
        return bisect_right(self._lines, at - 1) + 1

    def column(self, at: int) -> int:
        return at - self.text.rfind("\n", 0, at)

    @cached_property
    def words(self) -> frozenset[str]:
        return frozenset(_IDENTIFIER.findall(self.code))

    @cached_property
    def hip(self) -> bool:
        """Whether it is HIP already, so that names of CUDA's runtime are not expected."""
        if re.search(r"#\s*include\s*<hip/", self.text):
            return True
        return any(word.startswith("hip") and word[3:4].isupper() for word in self.words)

    @cached_property
    def syntax(self) -> Syntax:
        """The functions and launches of the source, without what a compiler for another vendor
        sees."""
        around = {k: v for header in self.headers for k, v in header.syntax.markers.items()}
        return parse(self.code, markers=around, macros=_macros_of(self.headers))

    @cached_property
    def _brackets(self) -> dict[int, int]:
        code = self.syntax.source_map.code
        return {
            code.tokens[i].begin: code.tokens[partner].begin
            for i, partner in enumerate(code.partner)
            if partner >= 0
        }

    def partner(self, at: int) -> int:
        """The bracket that belongs to the one at ``at``; -1: there is none."""
        return self._brackets.get(at, -1)

    @cached_property
    def functions(self) -> tuple[DeviceFunction, ...]:
        """The device functions, with those in macros' bodies, whose names may be the macros'
        parameters."""
        code = self.syntax.source_map.code
        return tuple(self._function(f) for f in self.syntax.functions if code.partner[f.body] > 0)

    def _function(self, found: Definition) -> DeviceFunction:
        begins = [
            self.syntax.source_map.code.tokens[i].begin
            for i in (found.mark, found.head, found.opening, found.closing, found.body, found.end)
        ]
        mark, head, opening, closing, body, end = begins
        return DeviceFunction(
            found.name,
            found.kernel,
            mark,
            self.code[opening + 1 : closing],
            body + 1,
            end,
            self.code[head:opening],
        )

    def function_at(self, at: int) -> DeviceFunction | None:
        for function in self.functions:
            if function.start <= at < function.close:
                return function
        return None

    def body(self, function: DeviceFunction) -> str:
        return self.code[function.open : function.close]

    @cached_property
    def defined(self) -> frozenset[str]:
        """The macros, types and device functions that the file and its headers bring."""
        names = {match[1] for match in _DEFINE.finditer(self.code)}
        names |= {match[1] or match[2] or match[3] for match in _TYPE.finditer(self.code)}
        names |= {function.name for function in self.functions}
        return frozenset(names).union(*(header.defined for header in self.headers))

    @cached_property
    def macros(self) -> Mapping[str, str]:
        """Object-like macros with one definition in force, and named constants."""
        values: dict[str, set[str]] = {}
        for header in self.headers:
            for name, text in header.macros.items():
                values.setdefault(name, set()).add(text)
        for match in _DEFINE.finditer(self.code):
            if not match[2]:
                values.setdefault(match[1], set()).add(" ".join(match[3].split()))
        for match in _CONSTANT.finditer(self.code):
            text = (match[3] or match[4] or "").strip()
            values.setdefault(match[2], set()).add(text)
        for match in re.finditer(r"\b(?:int|unsigned)\s+warpSize\s*=\s*(\w+)\s*;", self.code):
            values.setdefault("warpSize", set()).add(match[1])
        return {name: texts.pop() for name, texts in values.items() if len(texts) == 1}

    @cached_property
    def own_warp_size(self) -> bool:
        """Whether warpSize is a macro, a variable or a parameter of the file's own."""
        declared = r"\b(?:int|auto|unsigned|size_t|uint32_t)\s+warpSize\b"
        return "warpSize" in self.defined or re.search(declared, self.code) is not None

    def integer(self, expression: str) -> int | None:
        """The value of a constant expression; None where it is none."""
        return integer(expression, self.macros)

    def calls(
        self, pattern: re.Pattern[str], start: int = 0, stop: int = -1
    ) -> Iterator[SourceCall]:
        """The calls of the functions whose whole names ``pattern`` matches, up to its end."""
        for match in pattern.finditer(self.code, start, stop if stop >= 0 else len(self.code)):
            opening = match.end()
            while opening < len(self.code) and self.code[opening].isspace():
                opening += 1
            if self.code[opening : opening + 1] != "(" or self.partner(opening) < 0:
                continue
            closing = self.partner(opening)
            arguments = split(self.code[opening + 1 : closing])
            yield SourceCall(match[0], match.start(), closing + 1, tuple(arguments))

    def enclosing(self, at: int, first: int) -> list[tuple[int, int]]:
        """The braces around ``at`` that open at or after ``first``, the innermost first."""
        blocks, depth, position = [], 0, at
        while position > first:
            position = max(
                self.code.rfind("{", first, position), self.code.rfind("}", first, position)
            )
            if position < 0:
                break
            if self.code[position] == "}":
                depth += 1
            elif depth:
                depth -= 1
            else:
                blocks.append((position, self.partner(position)))
        return blocks

    def statement(self, at: int) -> str:
        """The statement around ``at``, to its semicolon or brace."""
        start = max(self.code.rfind(mark, 0, at) for mark in ";{}") + 1
        stop = re.compile(r"[;{}]").search(self.code, at)
        return self.code[start : stop.start() if stop else len(self.code)]


@lru_cache(maxsize=64)
def _macros_of(headers: tuple[Source, ...]) -> Mapping[str, Macro]:
    """The macros of headers that write launches or kernels."""
    return shared_macros(header.code for header in headers)


def _branches(
    code: SourceCode, macros: conditions.Macros
) -> tuple[list[tuple[int, int]], list[conditions.Guard]]:
    """The dead branches and the conditions of a file: a macro that only a dead branch defines is
    not defined, which makes more branches dead."""
    dead, guards = conditions.branches(code, macros)
    live: set[str] = set()
    absent: set[str] = set()
    for d in code.directives:
        if d.name == "define" and d.begin + 2 < d.end:
            inside = any(begin <= d.begin < end for begin, end in dead)
            (absent if inside else live).add(code.text[d.begin + 2])
    if absent <= live:
        return dead, guards
    return conditions.branches(code, {**macros, **dict.fromkeys(absent - live)})


def split(text: str) -> list[str]:
    """Arguments, cut at commas that are in no bracket."""
    if "," not in text:
        return [text.strip()] if text.strip() else []
    parts, depth, start = [], 0, 0
    for at, character in enumerate(text):
        if character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        elif character == "," and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
    return [*parts, text[start:].strip()]
