"""What a device function knows of lanes and warps: which numbers are whose, and who asks the wave.

Nothing is executed: a number is a lane's by the expression that it is assigned from.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from portkern.port.lint.source import Call, Function, Source

_THREAD = re.compile(
    r"\b(?:threadIdx\s*\.\s*[xyz]|hipThreadIdx_[xyz]|thread_rank\s*\(\s*\)|__lane_id\s*\(\s*\))"
)
_THREAD_X = re.compile(r"\b(?:threadIdx\s*\.\s*x|hipThreadIdx_x|thread_rank\s*\(\s*\))")
_ASSIGNED = re.compile(r"\b(\w+)\s*(?:=|\+=|-=|\*=|/=|%=|&=|>>=)(?!=)\s*([^;{}]*?)\s*(?=[;{}]|\Z)")
_UNIFORM_CALL = re.compile(r"\b__syncthreads_(?:or|and|count)\s*\(|\breadfirstlane\b")
#: <operand> % 32 and its like, with what stands around it.
_PIECE = re.compile(
    r"(?P<operand>[\w.]+(?:\s*\(\s*\))?|\))\s*(?:"
    r"%\s*(?P<mod>\w+)|&\s*(?P<mask>\w+|\(\s*\w+\s*-\s*1\s*\))"
    r"|/\s*(?P<div>\w+)|>>\s*(?P<shift>\w+))"
)
COLLECTIVE = re.compile(
    r"\b(?:__shfl(?:_up|_down|_xor)?(?:_sync)?|__ballot(?:_sync)?|__any(?:_sync)?|__all(?:_sync)?"
    r"|__activemask|__match_a(?:ny|ll)(?:_sync)?|__reduce_\w+_sync)(?=\s*\()"
)


class Lane(StrEnum):
    """What a number says: a lane or a warp of 32, or of the hardware's width."""

    LANE32 = "lane of 32"
    WARP32 = "warp of 32"
    LANE = "lane of the wave"
    WARP = "wave"


@dataclass(frozen=True)
class Collective:
    """A warp function's call, without its mask."""

    call: Call
    kind: str  # shfl, shfl_up, shfl_down, shfl_xor, ballot, any, all, activemask, match, reduce
    mask: str
    arguments: tuple[str, ...]

    @property
    def at(self) -> int:
        return self.call.start

    @property
    def shuffles(self) -> bool:
        return self.kind.startswith("shfl")

    @property
    def width(self) -> str:
        """The width that a shuffle states; empty: the hardware's."""
        return self.arguments[2] if self.shuffles and len(self.arguments) > 2 else ""

    @property
    def operand(self) -> str:
        """A shuffle's offset or source lane."""
        return self.arguments[1] if self.shuffles and len(self.arguments) > 1 else ""


def collective(call: Call) -> Collective:
    name = call.name.strip("_")
    masked = name.endswith("_sync")
    kind = name.removesuffix("_sync")
    kind = "match" if kind.startswith("match") else "reduce" if kind.startswith("reduce") else kind
    mask = call.arguments[0] if masked and call.arguments else ""
    return Collective(call, kind, mask, call.arguments[1:] if masked else call.arguments)


def collectives(source: Source, start: int = 0, stop: int = -1) -> Iterator[Collective]:
    for call in source.calls(COLLECTIVE, start, stop):
        yield collective(call)


class Lanes:
    """One function's numbers, by name."""

    def __init__(self, source: Source, function: Function) -> None:
        self.source = source
        self.function = function
        self.body = source.body(function)

    @cached_property
    def collectives(self) -> tuple[Collective, ...]:
        return tuple(collectives(self.source, self.function.open, self.function.close))

    @cached_property
    def _assigned(self) -> tuple[tuple[str, str], ...]:
        pairs: list[tuple[str, str]] = []
        for match in _ASSIGNED.finditer(self.body):
            pairs.append((match[1], match[2]))
            # int a = …, b = …;
            pairs += re.findall(r",\s*(\w+)\s*=(?!=)\s*([^,;]+)", match[2])
        return tuple(pairs)

    @cached_property
    def varying(self) -> frozenset[str]:
        """Names whose values differ between the threads of a block."""
        return self._closure(_THREAD)

    @cached_property
    def in_a_wave(self) -> frozenset[str]:
        """Names whose values differ between the lanes of a wave: not warp numbers."""
        names: set[str] = set()
        for _ in range(4):
            size = len(names)
            for name, expression in self._assigned:
                if name not in names and self._differs_in_wave(expression, names):
                    names.add(name)
            if len(names) == size:
                break
        return frozenset(names)

    def _closure(self, seed: re.Pattern[str]) -> frozenset[str]:
        names: set[str] = set()
        for _ in range(4):
            size = len(names)
            for name, expression in self._assigned:
                if name not in names and self._mentions(expression, names, seed):
                    names.add(name)
            if len(names) == size:
                break
        return frozenset(names)

    @staticmethod
    def _mentions(expression: str, names: set[str] | frozenset[str], seed: re.Pattern[str]) -> bool:
        if _UNIFORM_CALL.search(expression):
            return False
        return seed.search(expression) is not None or any(
            word in names for word in re.findall(r"(?<![\w.])[A-Za-z_]\w*", expression)
        )

    def _differs_in_wave(self, expression: str, names: set[str] | frozenset[str]) -> bool:
        if _UNIFORM_CALL.search(expression) or ("blockDim" in expression and "/" in expression):
            return False
        text = self._without_warp_numbers(expression)
        # Source lane 0 gives every lane the same.
        text = re.sub(r"\b__shfl(?:_sync)?\s*\([^()]*,\s*0\s*(?:,\s*\w+\s*)?\)", "0", text)
        return self._mentions(text, names, _THREAD_X)

    def _without_warp_numbers(self, expression: str) -> str:
        """The expression with t / 32 and its like, the same for a whole warp, taken out."""
        for _ in range(4):
            for match in _PIECE.finditer(expression):
                divisor, shift = match["div"], match["shift"]
                if not (divisor or shift) or not self._divides(divisor, shift):
                    continue
                start = match.start()
                if match["operand"] == ")":
                    start = _opening(expression, start)
                expression = f"{expression[:start]} 0 {expression[match.end() :]}"
                break
            else:
                break
        return expression

    def _divides(self, divisor: str | None, shift: str | None) -> bool:
        if divisor:
            size = self.source.integer(divisor)
            return divisor == "warpSize" or (size is not None and size >= 32)
        bits = self.source.integer(shift or "")
        return bits is not None and bits >= 5

    def is_varying(self, expression: str) -> bool:
        return self._mentions(expression, self.varying, _THREAD)

    def differs_in_wave(self, expression: str) -> bool:
        return self._differs_in_wave(expression, self.in_a_wave)

    @cached_property
    def kinds(self) -> dict[str, Lane]:
        """The names that are a lane's or a warp's number."""
        kinds: dict[str, Lane] = {}
        for name, expression in self._assigned:
            kind = self.kind(expression)
            if kind is not None and name not in kinds:
                kinds[name] = kind
        return kinds

    def kind(self, expression: str) -> Lane | None:
        """What the expression itself is, where it is nothing but such a number."""
        text = expression.strip()
        if re.fullmatch(r"__lane_id\s*\(\s*\)|\(?int\)?\s*__lane_id\s*\(\s*\)", text):
            return Lane.LANE
        pieces = list(self.pieces(text))
        return pieces[0][1] if len(pieces) == 1 else None

    def pieces(self, text: str) -> Iterator[tuple[int, Lane]]:
        """The places in ``text`` where a lane or warp is computed from the thread's index."""
        for match in _PIECE.finditer(text):
            kind = self._piece(match)
            if kind is not None and self._is_thread(text, match):
                yield match.start(), kind

    def _is_thread(self, text: str, match: re.Match[str]) -> bool:
        operand = match["operand"]
        if operand == ")":
            start = _opening(text, match.start())
            operand = text[start : match.start() + 1]
        if match["mask"] and operand.strip().isdigit():
            return False
        return self._mentions(operand, self._threads, _THREAD_X)

    @cached_property
    def _threads(self) -> frozenset[str]:
        """Names that are a thread's index, in the block or the grid."""
        names: set[str] = set()
        for name, expression in self._assigned:
            if _THREAD_X.search(expression) and not re.search(r"[%&\[?<>]|>>|/", expression):
                names.add(name)
        if not names:
            names |= {"tid", "threadId", "thread_id"} & set(
                re.findall(r"\w+", self.function.parameters)
            )
        return frozenset(names)

    def _piece(self, match: re.Match[str]) -> Lane | None:
        if match["mod"] or match["div"]:
            divisor = match["mod"] or match["div"]
            lane, warp = bool(match["mod"]), bool(match["div"])
            if divisor == "warpSize" and "warpSize" not in self.source.macros:
                return Lane.LANE if lane else Lane.WARP
            size = self.source.integer(divisor)
            if size == 32:
                return Lane.LANE32 if lane and not warp else Lane.WARP32
            if size == 64:
                return Lane.LANE if lane else Lane.WARP
            return None
        if match["mask"]:
            mask = match["mask"]
            if re.fullmatch(r"\(\s*warpSize\s*-\s*1\s*\)", mask):
                return Lane.LANE
            return {31: Lane.LANE32, 63: Lane.LANE}.get(self.source.integer(mask) or 0)
        return {5: Lane.WARP32, 6: Lane.WARP}.get(self.source.integer(match["shift"]) or 0)


def _opening(text: str, closing: int) -> int:
    depth = 0
    for at in range(closing, -1, -1):
        depth += (text[at] == ")") - (text[at] == "(")
        if depth == 0:
            return at
    return 0
