"""A file as the rules read it: comments, strings and other vendors' branches blanked, in place.

Offsets in every view are those of the text, so that a match in one is a place in all.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from portkern.cuda_source import conditions
from portkern.cuda_source.constants import integer

_BLANK = re.compile(
    r"""
      (?P<comment> //[^\n\\]*(?:\\(?:\r?\n|.)[^\n\\]*)* | /\*.*?(?:\*/|\Z) )
    | (?P<raw> \bR"(?P<mark>[^()\\\s"]{0,16})\( .*? \)(?P=mark)" )
    | (?P<string> "[^"\\\n]*(?:\\(?:\r\n|.)[^"\\\n]*)*" )
    | (?P<char> (?<![0-9a-fA-F])'[^'\\\n]*(?:\\.[^'\\\n]*)*' )
    """,
    re.VERBOSE | re.DOTALL,
)
_HASH = re.compile(r"""(?P<string>"[^"\n]*"|'[^'\n]*')|(?P<comment>(?:(?<=\s)|^)\#[^\n]*)""", re.M)
_VISIBLE = re.compile(r"[^\n]")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_BRACKET = re.compile(r"[][(){}]")
_PARTNER = {")": "(", "]": "[", "}": "{"}
_QUALIFIER = re.compile(r"\b__(?:global|device)__\b")
_ATTRIBUTE = re.compile(
    r"\b(?:__launch_bounds__|__attribute__|__align__|__declspec|__block_size__|__cluster_dims__"
    r"|alignas|noexcept|decltype)\s*$"
)
_HEAD_END = re.compile(r"[;={}]")
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
class Function:
    """A device function: its head begins at ``start``, its body lies in ``[open, close)``."""

    name: str
    kernel: bool
    start: int
    parameters: str
    open: int
    close: int
    head: str  # from the qualifier to the parameters


@dataclass(frozen=True)
class Call:
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
        comments: list[tuple[int, int]] = []
        strings: list[tuple[int, int]] = []
        for match in (_HASH if self.build_file else _BLANK).finditer(text):
            if match.lastgroup == "comment" or match["comment"] is not None:
                comments.append(match.span())
            else:
                strings.append((match.start() + 1, match.end() - 1))
        code = _blanked(text, comments + strings)
        dead, self.guards = ([], []) if self.build_file else self._branches(code, amd=amd)
        self.code = _blanked(code, dead)
        # An inner range of a dead branch may be a string; the outer one swallows it.
        self.quoted = _blanked(_blanked(text, comments), dead)
        self._lines = [match.start() for match in re.finditer("\n", text)]

    @staticmethod
    def _branches(code: str, *, amd: bool) -> tuple[list[tuple[int, int]], list[conditions.Guard]]:
        if "#" not in code:
            return [], []
        macros = conditions.AMD if amd else conditions.NVIDIA
        dead, guards = conditions.branches(code, macros)
        # What only a dead branch defines is not defined, which kills more branches.
        live: set[str] = set()
        absent: set[str] = set()
        for match in _DEFINE.finditer(code):
            inside = any(start <= match.start() < stop for start, stop in dead)
            (absent if inside else live).add(match[1])
        absent -= live
        if absent:
            return conditions.branches(code, {**macros, **dict.fromkeys(absent)})
        return dead, guards

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
    def _brackets(self) -> dict[int, int]:
        partner: dict[int, int] = {}
        stack: list[int] = []
        for match in _BRACKET.finditer(self.code):
            at, bracket = match.start(), match[0]
            if bracket not in _PARTNER:
                stack.append(at)
                continue
            # Whatever else is open inside was never closed.
            depth = len(stack) - 1
            while depth >= 0 and self.code[stack[depth]] != _PARTNER[bracket]:
                depth -= 1
            if depth >= 0:
                partner[stack[depth]], partner[at] = at, stack[depth]
                del stack[depth:]
        return partner

    def partner(self, at: int) -> int:
        """The bracket that belongs to the one at ``at``; -1: there is none."""
        return self._brackets.get(at, -1)

    @cached_property
    def functions(self) -> tuple[Function, ...]:
        return tuple(self._find_functions())

    def _find_functions(self) -> Iterator[Function]:
        code, last = self.code, 0
        for match in _QUALIFIER.finditer(code):
            if match.start() < last:
                continue
            at = match.end()
            while True:
                opening = code.find("(", at)
                closing = self.partner(opening) if opening >= 0 else -1
                if closing < 0 or _HEAD_END.search(code, at, opening):
                    break
                if _ATTRIBUTE.search(code, at, opening):
                    at = closing + 1
                    continue
                body = re.compile(r"[^;{}=]*\{").match(code, closing + 1)
                if body is None:
                    break
                brace = body.end() - 1
                close = self.partner(brace)
                if close < 0:
                    break
                name = re.compile(r"(\w*)\s*$").search(code, at, opening)
                head = code[max(0, code.rfind(";", 0, match.start())) : opening]
                yield Function(
                    name[1] if name else "",
                    "__global__" in code[match.start() : opening],
                    match.start(),
                    code[opening + 1 : closing],
                    brace + 1,
                    close,
                    head,
                )
                last = brace
                break

    def function_at(self, at: int) -> Function | None:
        for function in self.functions:
            if function.start <= at < function.close:
                return function
        return None

    def body(self, function: Function) -> str:
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

    def calls(self, pattern: re.Pattern[str], start: int = 0, stop: int = -1) -> Iterator[Call]:
        """The calls of the functions whose whole names ``pattern`` matches, up to its end."""
        for match in pattern.finditer(self.code, start, stop if stop >= 0 else len(self.code)):
            opening = match.end()
            while opening < len(self.code) and self.code[opening].isspace():
                opening += 1
            if self.code[opening : opening + 1] != "(" or self.partner(opening) < 0:
                continue
            closing = self.partner(opening)
            arguments = split(self.code[opening + 1 : closing])
            yield Call(match[0], match.start(), closing + 1, tuple(arguments))

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
