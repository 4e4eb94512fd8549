"""Which values differ between the threads of a block, or between the lanes of a wave.

A name depends on the thread when anything that is assigned to it in its scope does. Control flow
is not followed, except that a name declared anew in an inner scope is another name.
"""

from __future__ import annotations

import re
from collections import defaultdict
from functools import cached_property
from typing import NamedTuple

from portkern.port.lint.regions import regions
from portkern.port.lint.source import DeviceFunction, Source

THREAD = re.compile(
    r"\b(?:threadIdx\s*\.\s*[xyz]|hipThreadIdx_[xyz]|thread_rank\s*\(\s*\)|__lane_id\s*\(\s*\))"
)
THREAD_X = re.compile(
    r"\b(?:threadIdx\s*\.\s*x|hipThreadIdx_x|thread_rank\s*\(\s*\)|__lane_id\s*\(\s*\))"
)
#: <operand> % 32 and its like, with what stands around it.
PIECE = re.compile(
    r"(?P<operand>[\w.]+(?:\s*\(\s*\))?|\))\s*(?:"
    r"%\s*(?P<mod>\w+)|&\s*(?P<mask>\w+|\(\s*\w+\s*-\s*1\s*\))"
    r"|/\s*(?P<div>\w+)|>>\s*(?P<shift>\w+))"
)
_ASSIGNED = re.compile(
    r"\b(\w+)\s*(?:[-+*/%&|^]|>>|<<)?=(?!=)\s*([^;{}]{0,1500}?)\s*(?=[;{}]|\Z)", re.DOTALL
)
_MORE = re.compile(r",\s*(\w+)\s*=(?!=)\s*([^,;]+)")
_WORD = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
_TYPE_BEFORE = re.compile(r"(\w+)(?:\s*<[^<>;]*>)?[\s*&]+$")
#: What is the same for the whole block; for the wave, votes as well.
_BLOCK_CALL = re.compile(r"\b__syncthreads_(?:or|and|count)\s*\(")
WAVE_CALL = re.compile(
    r"\b__syncthreads_(?:or|and|count)\s*\(|\breadfirstlane\b|\b__(?:any|all|ballot)(?:_sync)?\s*\("
)
_FROM_LANE_0 = re.compile(r"\b__shfl(?:_sync)?\s*\([^()]*,\s*0\s*(?:,\s*\w+\s*)?\)")
_SIZE = re.compile(r"\b(?:size|sizeof|rank|extent)\s*(?:<[^<>()]*>)?\s*\([^()]*\)")
#: A template argument or another header's constant, known by its name alone.
WARP_NAME = re.compile(r"(?i)k?(?:warp|wave(?:front)?)_?(?:size|width|sz)?|ws|threads_per_warp")


class Value(NamedTuple):
    """``name = text`` at an offset of the file."""

    at: int
    text: str
    declares: bool


class Varying:
    """One function's values."""

    def __init__(self, source: Source, function: DeviceFunction) -> None:
        self.source = source
        self.function = function
        self._memo: dict[tuple[str, int, bool], bool] = {}

    @cached_property
    def values(self) -> dict[str, list[Value]]:
        values: dict[str, list[Value]] = defaultdict(list)
        code, first, last = self.source.code, self.function.open, self.function.close
        for match in _ASSIGNED.finditer(code, first, last):
            before = _TYPE_BEFORE.search(code, max(first, match.start() - 60), match.start())
            declares = before is not None and before[1] not in ("return", "else", "do")
            text = match[2]
            values[match[1]].append(Value(match.start(), text, declares))
            if "," in text:
                for more in _MORE.finditer(text):  # int a = …, b = …;
                    values[more[1]].append(Value(match.start(), more[2], declares))
        return values

    def _in_scope(self, name: str, at: int) -> list[Value]:
        """The values that ``name`` may have at ``at``."""
        values = self.values[name]
        scopes = [(v.at, self._scope_end(v.at)) for v in values if v.declares]
        for start, stop in reversed(scopes):
            if start <= at < stop:
                return [value for value in values if start <= value.at < stop]
        # A parameter, or declared without a value: what inner scopes declare is another name.
        return [v for v in values if not any(start <= v.at < stop for start, stop in scopes)]

    def _comes_again(self, after: int, at: int) -> bool:
        """Whether a loop leads from ``after`` back to ``at``."""
        return any(start <= at and after < stop for start, stop in self._loops)

    @cached_property
    def _loops(self) -> list[tuple[int, int]]:
        found = regions(self.source, self.function)
        return [(region.start, region.stop) for region in found if region.keyword != "if"]

    def _scope_end(self, at: int) -> int:
        for region in reversed(self._loop_headers):
            if region[0] <= at < region[1]:
                return region[2]
        blocks = self.source.enclosing(at, self.function.open)
        return blocks[0][1] if blocks else self.function.close

    @cached_property
    def _loop_headers(self) -> list[tuple[int, int, int]]:
        """The headers of for loops: where they begin and end, and where the loop ends."""
        return [
            (region.start, region.body, region.stop)
            for region in regions(self.source, self.function)
            if region.keyword == "for"
        ]

    def in_block(self, expression: str, at: int) -> bool:
        """Whether threads of a block may get different values."""
        return self._depends(expression, at, False, frozenset())

    def in_wave(self, expression: str, at: int) -> bool:
        """Whether lanes of a wave may: a warp's number is the same for all of them."""
        return self._depends(expression, at, True, frozenset())

    def _depends(self, expression: str, at: int, wave: bool, trail: frozenset[str]) -> bool:
        if wave:
            if WAVE_CALL.search(expression):
                return False
            expression = _FROM_LANE_0.sub("0", self._without_warp_numbers(expression))
        elif _BLOCK_CALL.search(expression):
            return False
        expression = _SIZE.sub("0", expression)
        if (THREAD_X if wave else THREAD).search(expression):
            return True
        return any(
            self._name_depends(name, at, wave, trail)
            for name in dict.fromkeys(_WORD.findall(expression))
            if name in self.values and name not in trail
        )

    def _name_depends(self, name: str, at: int, wave: bool, trail: frozenset[str]) -> bool:
        values = self._in_scope(name, at)
        key = name, at, wave
        if key not in self._memo:
            self._memo[key] = False  # while it is looked at, a cycle adds nothing
            self._memo[key] = any(
                self._depends(value.text, value.at, wave, trail | {name})
                for value in values
                if value.at < at or self._comes_again(value.at, at)
            )
        return self._memo[key]

    def _without_warp_numbers(self, expression: str) -> str:
        """The expression with t / 32 and its like, the same for a whole warp, taken out."""
        for _ in range(4):
            for match in PIECE.finditer(expression):
                if not self._by_warp(match["div"], match["shift"]):
                    continue
                start = match.start()
                if match["operand"] == ")":
                    start = opening(expression, start)
                expression = f"{expression[:start]} 0 {expression[match.end() :]}"
                break
            else:
                break
        return expression

    def _by_warp(self, divisor: str | None, shift: str | None) -> bool:
        if divisor:
            size = self.source.integer(divisor)
            if size is None:
                return WARP_NAME.fullmatch(divisor) is not None or divisor == "warpSize"
            return size >= 32
        bits = self.source.integer(shift or "")
        return bits is not None and bits >= 5

    def last_in(self, name: str, start: int, stop: int) -> Value | None:
        """The last value that ``name`` gets within a range."""
        inside = [value for value in self.values.get(name, []) if start <= value.at < stop]
        return inside[-1] if inside else None


def opening(text: str, closing: int) -> int:
    """The '(' that the ')' at ``closing`` belongs to."""
    depth = 0
    for at in range(closing, -1, -1):
        depth += (text[at] == ")") - (text[at] == "(")
        if depth == 0:
            return at
    return 0
