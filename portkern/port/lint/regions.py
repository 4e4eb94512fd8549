"""The branches and loops of a function, as ranges of its text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from portkern.port.lint.source import DeviceFunction, Source

_KEYWORD = re.compile(r"\b(if|for|while|do)\b\s*(?:constexpr\s*)?(?=[({])")
_ELSE = re.compile(r"\s*else\b\s*")
_SPACE = re.compile(r"\s*")


@dataclass(frozen=True)
class Region:
    """``keyword (header) body``; an ``if`` has its ``else`` in its range too."""

    keyword: str
    header: str
    start: int  # of the keyword
    body: int
    stop: int  # after the body, and after an else

    def contains(self, at: int) -> bool:
        return self.body <= at < self.stop


@lru_cache(maxsize=256)
def regions(source: Source, function: DeviceFunction) -> tuple[Region, ...]:
    found = []
    for match in _KEYWORD.finditer(source.code, function.open, function.close):
        if match[1] == "do":
            brace = source.code.find("{", match.end() - 1)
            close = source.partner(brace)
            tail = re.compile(r"\s*while\s*\(").match(source.code, close + 1) if close > 0 else None
            if tail is not None:
                end = source.partner(tail.end() - 1)
                found.append(
                    Region("do", source.code[tail.end() : end], match.start(), brace + 1, close)
                )
            continue
        if source.code[match.end()] != "(":
            continue
        close = source.partner(match.end())
        if close < 0:
            continue
        body, stop = _body(source, close + 1, function.close)
        if match[1] == "if":
            other = _ELSE.match(source.code, stop)
            if other is not None:
                _, stop = _body(source, other.end(), function.close)
        header = source.code[match.end() + 1 : close]
        found.append(Region(match[1], header, match.start(), body, stop))
    return tuple(found)


_DEEPEST = 40


def _body(source: Source, at: int, last: int, depth: int = 0) -> tuple[int, int]:
    """The begin and end of the statement that begins at or after ``at``."""
    space = _SPACE.match(source.code, at)
    at = space.end() if space else at
    if source.code[at : at + 1] == "{" and source.partner(at) > 0:
        return at, source.partner(at) + 1
    keyword = _KEYWORD.match(source.code, at)
    if keyword is not None and depth < _DEEPEST and source.code[keyword.end()] == "(":
        close = source.partner(keyword.end())
        if 0 < close < last:
            _, stop = _body(source, close + 1, last, depth + 1)
            other = _ELSE.match(source.code, stop)
            if keyword[1] == "if" and other is not None:
                stop = _body(source, other.end(), last, depth + 1)[1]
            return at, stop
    end = source.code.find(";", at, last)
    return at, end + 1 if end >= 0 else last


def around(source: Source, function: DeviceFunction, at: int) -> list[Region]:
    """The branches and loops that ``at`` lies in, the outermost first."""
    return [region for region in regions(source, function) if region.contains(at)]
