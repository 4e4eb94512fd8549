"""Lane masks and ballots: how many bits they have, and what is done with them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from portkern.port.lint.lanes import Lane
from portkern.port.lint.rule import Match, Platform, Rule
from portkern.port.lint.source import DeviceFunction, Source
from portkern.port.lint.width import blocks_of_half_a_wave, lanes_of
from portkern.simt.diagnostics import Severity

_MASK_TAKERS = re.compile(
    r"\b__(?:shfl(?:_up|_down|_xor)?|ballot|any|all|match_any|match_all|reduce_\w+)_sync(?=\s*\()"
)
_SYNCWARP = re.compile(r"\b__syncwarp(?=\s*\()")
_LITERAL = re.compile(
    r"\(*\s*(?:\(\s*\w[\w ]*\)\s*)?(~?-?(?:0[xX][0-9a-fA-F]+|\d+))([uUlL]*)\s*\)*"
)
_WIDE_CAST = re.compile(r"\(\s*(?:unsigned\s+long\s+long|uint64_t|lane_mask_t|unsigned long)\s*\)")
_NARROW = r"(?:unsigned\s+int|unsigned|int|u?int32_t|uint|u32|U32)"
_BALLOT = re.compile(
    r"\b(?:__ballot(?:_sync)?|__activemask|__match_any(?:_sync)?|__match_all(?:_sync)?)(?=\s*\()"
)
_BITS = re.compile(r"\b(?:__popc|__ffs|__clz|__brev|__builtin_popcount|__fns)(?=\s*\()")
_LANE_NAME = re.compile(r"(?i)(?:my_?)?lane(?:_?id)?|laneid\w*")
_SHIFT = re.compile(
    r"(?<![\w.])(0[xX][0-9a-fA-F]+|\d+)([uUlL]*)\s*\)?\s*<<\s*(\(?[\w.]+(?:\s*[%&]\s*\w+)?\)?)"
)


def _narrow_mask(source: Source, function: DeviceFunction | None, text: str, depth: int = 3) -> str:
    """Why ``text`` is a mask of 32 bits; empty where it is none, or cannot be known."""
    literal = _LITERAL.fullmatch(text)
    if literal is not None:
        if _WIDE_CAST.search(text) or "l" in literal[2].lower():
            return ""
        return f"{text} has 32 bits" if not _wide(literal[1]) else ""
    if text in ("UINT_MAX", "UINT32_MAX"):
        return f"{text} has 32 bits"
    name = text.strip("() ")
    if depth and re.fullmatch(r"\w+", name):
        declared = declared_type(source, function, name)
        if declared is not None:
            return f"{name} is {declared}" if re.fullmatch(_NARROW, declared) else ""
        if name in source.macros:
            inner = _narrow_mask(source, function, source.macros[name], depth - 1)
            return inner and f"{name} is {source.macros[name]}"
    return ""


def _wide(literal: str) -> bool:
    digits = literal.lstrip("~-")
    return int(digits, 16 if digits[:2] in ("0x", "0X") else 10) > 0xFFFFFFFF


_DECLARES = re.compile(
    r"(?:^|[;{}(,\s])(?:const(?:expr)?\s+|static\s+|__device__\s+|volatile\s+)*"
    r"((?:unsigned\s+|long\s+|signed\s+)*\w+)\s+(?:\w+\s*(?:=[^;,]*)?,\s*){0,8}$"
)
_LOOK_BACK = 160


@lru_cache(maxsize=1024)
def declared_type(source: Source, function: DeviceFunction | None, name: str) -> str | None:
    """The type by which a scalar of this name is declared, in the function or the file."""
    if function is not None:
        for text in (source.body(function), function.parameters):
            types = _types(text, name)
            if types:
                return types[-1]
    outside = set(_types(source.code, name))
    return outside.pop() if len(outside) == 1 else None


def _types(text: str, name: str) -> list[str]:
    types = []
    for match in re.finditer(rf"\b{re.escape(name)}\b\s*(?:[=;,){{]|$)", text):
        before = text[max(0, match.start() - _LOOK_BACK) : match.start()]
        declared = _DECLARES.search(before[max(before.rfind(mark) for mark in ";{}") + 1 :])
        if declared and declared[1] not in ("return", "else", "define", "const"):
            types.append(" ".join(declared[1].split()))
    return types


def lane_masks(source: Source, platform: Platform) -> Iterator[Match]:
    """PK003, PK012: a mask that HIP refuses."""
    if not platform.amd:
        return
    for code, pattern, index in (("PK003", _MASK_TAKERS, 0), ("PK012", _SYNCWARP, 0)):
        for call in source.calls(pattern):
            if not call.arguments or call.name in source.defined:
                continue
            mask = call.arguments[index]
            why = _narrow_mask(source, source.function_at(call.start), mask)
            if why:
                remedy = "drop it" if code == "PK012" else "write 0xffffffffffffffffull"
                message = f"{call.name} is given a 32-bit mask ({why}); {remedy}"
                yield Match(code, call.start, message)
            elif platform.wave64 and re.fullmatch(r"0[xX][fF]{8}[uU]?[lL]{2}[uU]?", mask):
                message = f"{mask} names the lower half of a wave of 64; write ~0ull"
                yield Match(code, call.start, message, Severity.WARNING)


def narrow_ballots(source: Source, platform: Platform) -> Iterator[Match]:
    """PK004: what a ballot gives is kept, returned or cast to 32 bits."""
    if not platform.wave64:
        return
    for call in source.calls(_BALLOT):
        function = source.function_at(call.start)
        if call.name in source.defined or _one_half(source, function):
            continue
        target = _receiver(source, call.start, call.stop, function)
        if target:
            message = f"{call.name}() of 64 lanes is kept in {target}; write unsigned long long"
            yield Match("PK004", call.start, message)


def _one_half(source: Source, function: DeviceFunction | None) -> bool:
    return function is not None and blocks_of_half_a_wave(source, function)


def _receiver(source: Source, start: int, stop: int, function: DeviceFunction | None) -> str:
    """The 32-bit type and name that the value at [start, stop) ends up in; empty: none."""
    before = source.code[max(0, start - 200) : start]
    begin = max(before.rfind(mark) for mark in ";{}")
    before = before[begin + 1 :]
    after = re.compile(r"[^;{}]*").match(source.code, stop)
    rest = after[0] if after else ""
    cast = re.search(
        rf"\(\s*({_NARROW})\s*\)\s*\(*\s*$|static_cast<\s*({_NARROW})\s*>\s*\(\s*$", before
    )
    if re.match(r"\s*\)*\s*(?:==|!=|<(?!<)|>|\?|&&|\|\||>>)", rest):
        return ""
    if re.match(r"\s*\)*\s*&\s*(?:0[xX][0-9a-fA-F]{1,8}|1)[uU]?\b(?!\s*<<)", rest):
        return ""
    if cast is not None:
        return f"a cast to {cast[1] or cast[2]}"
    lead = re.fullmatch(r"(?P<left>[^=]*?)(?P<op>\breturn\b|[|&]?=)(?P<right>[\s(~\w&|]*)", before)
    if lead is None or re.search(r"\w\s*\(", lead["right"]) or "!" in lead["right"]:
        return ""
    if lead["op"] == "return":
        head = re.search(rf"({_NARROW})\s+\w*\s*$", function.head) if function else None
        return f"the {head[1]} that is returned" if head else ""
    declared = re.search(rf"(?:^|\s|,)({_NARROW})\s+(\w+)\s*$", lead["left"])
    if declared is not None:
        return f"{declared[1]} {declared[2]}"
    name = re.search(r"(\w+)\s*$", lead["left"])
    kind = declared_type(source, function, name[1]) if name else None
    return f"{kind} {name[1]}" if name and kind and re.fullmatch(_NARROW, kind) else ""


@lru_cache(maxsize=64)
def _ballot_names(source: Source, function: DeviceFunction) -> set[str]:
    """Names that hold a ballot, or one narrowed by '&'."""
    names: set[str] = set()
    body = source.body(function)
    for match in re.finditer(r"\b(\w+)\s*=(?!=)\s*([^;{}]*)", body):
        value = match[2]
        held = re.match(r"[\s(~]*(\w+)", value)
        if _BALLOT.match(value, len(value) - len(value.lstrip(" (~\n\t"))) or (
            held is not None and held[1] in names and re.match(r"[\s(~]*\w+\s*(?:&|$)", value)
        ):
            names.add(match[1])
    return names


def narrow_counts(source: Source, platform: Platform) -> Iterator[Match]:
    """PK006: bits of a ballot are counted or searched by a function of 32 bits."""
    if not platform.wave64:
        return
    for call in source.calls(_BITS):
        function = source.function_at(call.start)
        if not call.arguments or call.name in source.defined or _one_half(source, function):
            continue
        argument = call.arguments[0]
        if ">>" in argument or re.search(r"0[xX][fF]{8}\b", argument.replace("0xffffffff,", "")):
            continue
        names = _ballot_names(source, function) if function else set()
        held = next((w for w in re.findall(r"\b[A-Za-z_]\w*", argument) if w in names), "")
        if held or _BALLOT.search(argument):
            wide = {"__fns": "__fns64", "__builtin_popcount": "__popcll"}
            better = wide.get(call.name, f"{call.name}ll")
            message = f"{call.name} sees 32 bits of the ballot {held}".rstrip() + f"; use {better}"
            yield Match("PK006", call.start, message)


def lane_bits(source: Source, platform: Platform) -> Iterator[Match]:
    """PK005: a lane's bit in a literal of 32 bits, or a shift by the whole width."""
    if not platform.wave64:
        return
    for match in _SHIFT.finditer(source.code):
        function = source.function_at(match.start())
        if function is None or _one_half(source, function):
            continue
        wide = "l" in match[2].lower()  # long has 64 bits wherever HIP runs
        operand = match[3].strip("() ")
        size = source.integer(operand)
        if operand == "warpSize" or size == (64 if wide else 32):
            one = f"{match[1]}{match[2]} << {operand}"
            message = f"{one} shifts by all of its bits; use ~0ull for every lane"
            if _mask_like(source, match.end()):
                yield Match("PK005", match.start(), message)
        elif not wide and _is_lane(source, function, operand):
            message = f"1 << {operand} has 32 bits and a wave 64 lanes; write 1ull << {operand}"
            yield Match("PK005", match.start(), message)


def _mask_like(source: Source, at: int) -> bool:
    """Whether 1 is taken off the shifted bit, which makes it a mask."""
    return re.compile(r"\s*\)*\s*-\s*1").match(source.code, at) is not None


def _is_lane(source: Source, function: DeviceFunction, operand: str) -> bool:
    lanes = lanes_of(source, function)
    kind = lanes.kinds.get(operand) or lanes.kind(operand)
    if kind is Lane.LANE:
        return True
    if kind is Lane.LANE32 or (kind is None and _LANE_NAME.fullmatch(operand)):
        return any(c.kind in ("ballot", "activemask", "match") for c in lanes.collectives)
    return False


RULES: tuple[Rule, ...] = (lane_masks, narrow_ballots, narrow_counts, lane_bits)
