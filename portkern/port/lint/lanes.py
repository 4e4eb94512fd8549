"""The lanes and warps that a device function computes with: which of its numbers stand for one, and
which calls ask the wave.

Nothing is executed: a number is a lane's by the expression that it is assigned from.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from portkern.port.lint.source import DeviceFunction, Source, SourceCall
from portkern.port.lint.varying import PIECE, THREAD_X, Varying, opening

COLLECTIVE = re.compile(
    r"\b(?:__shfl(?:_up|_down|_xor)?(?:_sync)?|__ballot(?:_sync)?|__any(?:_sync)?|__all(?:_sync)?"
    r"|__activemask|__match_a(?:ny|ll)(?:_sync)?|__reduce_\w+_sync)(?=\s*\()"
)


class Lane(StrEnum):
    """The meaning of a number: a lane or a warp of 32, or of the hardware's width."""

    LANE32 = "lane of 32"
    WARP32 = "warp of 32"
    LANE = "lane of the wave"
    WARP = "wave"


@dataclass(frozen=True)
class Collective:
    """A warp function's call, without its mask."""

    call: SourceCall
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


def collective(call: SourceCall) -> Collective:
    name = call.name.strip("_")
    masked = name.endswith("_sync")
    kind = name.removesuffix("_sync")
    kind = "match" if kind.startswith("match") else "reduce" if kind.startswith("reduce") else kind
    mask = call.arguments[0] if masked and call.arguments else ""
    return Collective(call, kind, mask, call.arguments[1:] if masked else call.arguments)


def collectives(source: Source, start: int = 0, stop: int = -1) -> Iterator[Collective]:
    for call in source.calls(COLLECTIVE, start, stop):
        yield collective(call)


class LintedLanes:
    """One function's numbers, by name."""

    def __init__(self, source: Source, function: DeviceFunction) -> None:
        self.source = source
        self.function = function
        self.body = source.body(function)

    @cached_property
    def collectives(self) -> tuple[Collective, ...]:
        return tuple(collectives(self.source, self.function.open, self.function.close))

    @cached_property
    def varying(self) -> Varying:
        return Varying(self.source, self.function)

    @cached_property
    def values(self) -> tuple[tuple[str, str], ...]:
        """The values of names: each name with each expression that is assigned to it."""
        values = self.varying.values
        return tuple((name, value.text) for name in values for value in values[name])

    @cached_property
    def kinds(self) -> dict[str, Lane]:
        """The names that are a lane's or a warp's number."""
        kinds: dict[str, Lane] = {}
        for name, expression in self.values:
            kind = self.kind(expression)
            if kind is not None and name not in kinds:
                kinds[name] = kind
        return kinds

    def kind(self, expression: str) -> Lane | None:
        """The meaning of an expression that is nothing but the number of a lane or a warp; None
        for others."""
        text = expression.strip()
        if re.fullmatch(r"__lane_id\s*\(\s*\)|\(?int\)?\s*__lane_id\s*\(\s*\)", text):
            return Lane.LANE
        if re.search(r"[?=,\[]|<(?!<)|(?<!>)>(?!>)", text):
            return None
        pieces = list(self.pieces(text))
        return pieces[0][1] if len(pieces) == 1 else None

    def pieces(self, text: str) -> Iterator[tuple[int, Lane]]:
        """The places in ``text`` where a lane or warp is computed from the thread's index."""
        for match in PIECE.finditer(text):
            kind = self._piece(match)
            if kind is not None and self._is_thread(text, match):
                yield match.start(), kind

    def _is_thread(self, text: str, match: re.Match[str]) -> bool:
        operand = match["operand"]
        if operand == ")":
            start = opening(text, match.start())
            operand = text[start : match.start() + 1]
        if match["mask"] and operand.strip().isdigit():
            return False
        words = set(re.findall(r"(?<![\w.])[A-Za-z_]\w*", operand))
        return THREAD_X.search(operand) is not None or bool(words & self._threads)

    @cached_property
    def _threads(self) -> frozenset[str]:
        """Names that are a thread's index, in the block or the grid."""
        names: set[str] = set()
        for name, expression in self.values:
            if THREAD_X.search(expression) and not re.search(r"[%&\[?<>]|>>|/", expression):
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
            if divisor == "warpSize" and not self.source.own_warp_size:
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
