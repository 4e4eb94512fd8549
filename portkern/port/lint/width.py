"""Warp width: 32 and 64 are both AMD's, and code may rely on either without saying so."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from portkern.port.lint.lanes import Collective, Lane, LintedLanes
from portkern.port.lint.launches import launches
from portkern.port.lint.regions import around
from portkern.port.lint.rule import Match, Platform, Rule
from portkern.port.lint.source import DeviceFunction, Source
from portkern.simt.diagnostics import Severity

_LOOP = re.compile(r"\bfor\s*\(\s*(?:\w+\s+)*(\w+)\s*=\s*([^;]+);")
_SHARED = re.compile(r"__shared__\s+(?:volatile\s+|const\s+)?([\w: ]+?)\s+(\w+)\s*\[([^\]]*)\]")
_WARP_CONSTANT = re.compile(
    r"#[ \t]*define[ \t]+(\w*(?:WARP|WAVE|warp|wave)\w*)[ \t]+64\b"
    r"|\b(?:constexpr|const)\s+(?:static\s+)?(?:unsigned\s+)?\w+\s+(\w*(?:[Ww]arp|[Ww]ave|WARP|WAVE)\w*)"
    r"\s*(?:=|\{)\s*64\b"
)
_WARP_SIZE_NAME = re.compile(r"(?i)size|width|lanes|warp_?sz|^k?warp$|^wave$|threads")
_BOUNDS = re.compile(r"__launch_bounds__\s*\(\s*(\w+)")
_HALF_WAVE = 32
_LOWER_HALF = re.compile(r"(?:==\s*0\b|^\s*!\s*\w+\s*$)")


@lru_cache(maxsize=512)
def lanes_of(source: Source, function: DeviceFunction) -> LintedLanes:
    return LintedLanes(source, function)


def _callees(source: Source, function: DeviceFunction) -> list[DeviceFunction]:
    """The device functions of the file that ``function`` calls, at any depth."""
    by_name: dict[str, DeviceFunction] = {}
    for other in source.functions:
        by_name.setdefault(other.name, other)
    reached: dict[str, DeviceFunction] = {}
    waiting = [function]
    while waiting:
        body = source.body(waiting.pop())
        for name in set(re.findall(r"\b(\w+)\s*(?:<[^<>;]*>)?\s*\(", body)) & by_name.keys():
            if name not in reached and name != function.name:
                reached[name] = by_name[name]
                waiting.append(by_name[name])
    return list(reached.values())


def _bounded_threads(source: Source, function: DeviceFunction) -> int | None:
    """The most that a block has by the kernel's launch bounds, where these are a number."""
    bounds = _BOUNDS.search(function.head)
    return source.integer(bounds[1]) if bounds else None


@lru_cache(maxsize=512)
def blocks_of_half_a_wave(source: Source, function: DeviceFunction) -> bool:
    """Whether only blocks of 32 threads at most come to a function: by launch bounds, or because
    every kernel that calls it is launched in this file and never with more."""
    size = _bounded_threads(source, function)
    if size is not None:
        return size <= _HALF_WAVE
    kernels = {
        other.name
        for other in source.functions
        if other.kernel and (other.name == function.name or _calls(source, other, function))
    }
    threads: dict[str, list[int | None]] = {name: [] for name in kernels}
    for launch in launches(source):
        if launch.kernel in threads:
            threads[launch.kernel].append(launch.threads)
    return bool(threads) and all(
        sizes and all(size is not None and size <= _HALF_WAVE for size in sizes)
        for sizes in threads.values()
    )


def _calls(source: Source, kernel: DeviceFunction, function: DeviceFunction) -> bool:
    return any(callee.name == function.name for callee in _callees(source, kernel))


def _ids(lanes: LintedLanes) -> set[Lane]:
    """The kinds of lane and warp numbers that a function computes, named or in place."""
    # A lane of 32 that has no name is a mere condition, as in (t & 31) == 0.
    places = {kind for _, kind in lanes.pieces(lanes.body)} - {Lane.LANE32}
    return places | set(lanes.kinds.values())


def _offsets(lanes: LintedLanes, shuffle: Collective) -> list[int]:
    """The offsets that a shuffle goes through, as far as they are constants; -1: warpSize / 2."""
    value = lanes.source.integer(shuffle.operand)
    if value is not None:
        return [value]
    for loop in _LOOP.finditer(lanes.body):
        if loop[1] == shuffle.operand:
            start = loop[2].strip()
            if re.search(r"\bwarpSize\b", start) and not lanes.source.own_warp_size:
                return [-1]
            first = lanes.source.integer(start)
            return [first] if first is not None else []
    return []


def leaders(source: Source, platform: Platform) -> Iterator[Match]:
    """PK001: 32 lanes are added up, and a leader of the whole wave takes the sum."""
    if not platform.wave64:
        return
    for function in source.functions:
        whole = {Lane.LANE, Lane.WARP} & _ids(lanes_of(source, function))
        if not whole or blocks_of_half_a_wave(source, function):
            continue
        for inner in (function, *_callees(source, function)):
            lanes = lanes_of(source, inner)
            sums = [
                c for c in lanes.collectives if c.kind in ("shfl_down", "shfl_xor") and not c.width
            ]
            steps = {offset for c in sums for offset in _offsets(lanes, c)}
            if sums and 16 in steps and not steps & {-1, 32}:
                numbers = " and ".join(sorted(whole))
                message = (
                    f"the shuffles from 16 add up 32 lanes, but {function.name} goes by the "
                    f"{numbers}; start at warpSize / 2, or state width 32 and a leader per 32 lanes"
                )
                yield Match("PK001", sums[0].at, message)


def numbers_of_32(source: Source, platform: Platform) -> Iterator[Match]:
    """PK002: numbers by 32 beside a warp function that reaches all 64 lanes."""
    if not platform.wave64:
        return
    reported: set[int] = set()
    for function in source.functions:
        ids = _ids(lanes_of(source, function))
        if not {Lane.LANE32, Lane.WARP32} & ids or {Lane.LANE, Lane.WARP} & ids:
            continue
        if blocks_of_half_a_wave(source, function):
            continue
        for inner in (function, *_callees(source, function)):
            lanes = lanes_of(source, inner)
            for c in lanes.collectives:
                why = _crosses_halves(lanes, c)
                if why and c.at not in reported and not _lower_half_only(source, inner, c.at):
                    reported.add(c.at)
                    message = (
                        f"{c.call.name} {why}, but {function.name} numbers warps by 32; "
                        "state width 32, or use warpSize everywhere"
                    )
                    level = Severity.NOTE if c.kind in ("any", "all") else None
                    yield Match("PK002", c.at, message, level)


def _crosses_halves(lanes: LintedLanes, c: Collective) -> str:
    """How a warp function mixes two groups of 32 lanes of one wave; empty: it does not."""
    if c.kind in ("any", "all"):
        return "asks all 64 lanes"
    if c.kind == "reduce":
        return "combines all 64 lanes"
    if not c.shuffles or c.width:
        return ""
    if c.kind != "shfl":
        steps = _offsets(lanes, c)
        return "combines all 64 lanes" if any(step == -1 or step == 32 for step in steps) else ""
    value = lanes.source.integer(c.operand)
    if value is not None:
        return f"reads lane {value} of the whole wave"
    kind = lanes.kinds.get(c.operand)
    words = set(re.findall(r"\w+", c.operand))
    if kind is Lane.LANE32 or any(lanes.kinds.get(word) is Lane.LANE32 for word in words):
        return f"reads lane {c.operand} of the whole wave"
    return ""


def _lower_half_only(source: Source, function: DeviceFunction, at: int) -> bool:
    """Whether only the first 32 threads come here: 'if (warp == 0)', 'if (t < 32)'."""
    for region in around(source, function, at):
        if region.keyword != "if":
            continue
        limit = re.search(r"<\s*(\w+)", region.header)
        size = source.integer(limit[1]) if limit else None
        if _LOWER_HALF.search(region.header) or (size is not None and size <= 32):
            return True
    return False


def partials(source: Source, platform: Platform) -> Iterator[Match]:
    """PK007: an array of one slot per warp has another width's size."""
    for function in source.functions:
        lanes = lanes_of(source, function)
        arrays = list(_SHARED.finditer(source.code, function.open, function.close))
        names = [match[2] for match in arrays]
        for match in arrays:
            size = source.integer(match[3])
            if size is None or names.count(match[2]) > 1:  # one of them is under an #else
                continue
            yield from _slots_by_wave(lanes, match, size, platform)
            if platform.wave64 and size == 32:
                yield from _slots_read_by_lane(lanes, match)


def _slots_by_wave(
    lanes: LintedLanes, array: re.Match[str], size: int, platform: Platform
) -> Iterator[Match]:
    threads = _bounded_threads(lanes.source, lanes.function)
    if not platform.wave32 or size * 32 >= (threads or 1024):
        return
    for use in re.finditer(rf"\b{array[2]}\s*\[([^\]]*)\]", lanes.body):
        kind = lanes.kinds.get(use[1].strip()) or lanes.kind(use[1])
        by_size = any("warpSize" in e for n, e in lanes.values if n == use[1].strip())
        if kind is Lane.WARP and (by_size or "warpSize" in use[1]) and size in (8, 16):
            message = (
                f"{array[2]}[{size}] has a slot for each warp of 64 threads, and warpSize may be "
                f"32; write {array[2]}[{(threads or 1024) // 32}]"
            )
            yield Match("PK007", array.start(), message)
            return


def _slots_read_by_lane(lanes: LintedLanes, array: re.Match[str]) -> Iterator[Match]:
    for use in re.finditer(rf"\b{array[2]}\s*\[\s*(\w+)\s*\]", lanes.body):
        if lanes.kinds.get(use[1]) is not Lane.LANE:
            continue
        at = lanes.function.open + use.start()
        regions = around(lanes.source, lanes.function, at)
        statement = lanes.source.statement(at)
        guards = [region.header for region in regions] + [statement]
        compared = re.compile(rf"\b{use[1]}\b[^;]*[<>=!]|[<>]\s*{use[1]}\b")
        if not re.search(r"[<>].*\?", statement) and not any(map(compared.search, guards)):
            message = (
                f"{array[2]}[32] is read at [{use[1]}], which runs to 63 on a wave of 64; "
                f"guard it with {use[1]} < blockDim.x / warpSize"
            )
            yield Match("PK007", at, message)


def constants(source: Source, platform: Platform) -> Iterator[Match]:
    """PK008: warpSize where the language wants a constant."""
    if not platform.amd or "warpSize" not in source.words or source.own_warp_size:
        return
    patterns = {
        r"__shared__[^;=()]*\[[^\];]*\bwarpSize\b": "an array's size",
        r"\bif\s+constexpr\s*\([^;{]*\bwarpSize\b": "if constexpr",
        r"\bstatic_assert\s*\([^;]*\bwarpSize\b": "a static_assert",
        r"\bconstexpr\s+[\w\s]+=[^;]*(?<![\w.>])warpSize\b": "a constexpr",
        r"\bcase\s+warpSize\b": "a case label",
        r"(?<![<\s])<(?:[\w\s:*]+,)*\s*warpSize\s*(?:/\s*\w+\s*)?(?:,[^<>;()]*)?>": (
            "a template argument"
        ),
        r"\benum\b[^;{}]*\{[^}]*=\s*[^,}]*\bwarpSize\b": "an enumerator",
        r"^[ \t]*(?:float|int|double|T)\s+\w+\s*\[[^\];]*\bwarpSize\b": "an array's size",
    }
    for pattern, where in patterns.items():
        for match in re.finditer(pattern, source.code, re.MULTILINE):
            at = match.start() + match[0].rindex("warpSize")
            if source.code[at - 1] in ".>":
                continue
            message = f"warpSize is not a constant, and {where} needs one; use 32 or a template's W"
            yield Match("PK008", at, message)


def width_of_the_vendor(source: Source, platform: Platform) -> Iterator[Match]:
    """PK009: 64 is written down as the width of every AMD device."""
    if not platform.amd or not platform.wave32:
        return
    for match in _WARP_CONSTANT.finditer(source.code):
        name = match[1] or match[2]
        if not _WARP_SIZE_NAME.search(name) or re.search(r"(?i)per|num|max|count", name):
            continue
        opened = [g for g in source.guards if g.start < match.start()]
        guard = opened[-1].condition if opened else ""
        if re.search(r"GFX|gfx|WAVEFRONT|CDNA", guard):
            continue
        message = f"{name} is 64, and RDNA has 32 lanes; ask hipDeviceAttributeWarpSize"
        yield Match("PK009", match.start(), message)


def small_blocks(source: Source, platform: Platform) -> Iterator[Match]:
    """PK010: a block fills half a wave."""
    if not platform.wave64:
        return
    for launch in launches(source):
        if launch.threads == 32:
            message = f"{launch.kernel} has 32 threads in a block, half a wave; put two rows in one"
            yield Match("PK010", launch.at, message)


RULES: tuple[Rule, ...] = (
    leaders,
    numbers_of_32,
    partials,
    constants,
    width_of_the_vendor,
    small_blocks,
)
