"""Barriers and warp functions that not every thread reaches."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from portkern.port.lint.lanes import Collective, LintedLanes
from portkern.port.lint.regions import Region, around, regions
from portkern.port.lint.rule import Match, Platform, Rule
from portkern.port.lint.source import DeviceFunction, Source
from portkern.port.lint.varying import THREAD, WARP_NAME, WAVE_CALL
from portkern.port.lint.width import lanes_of
from portkern.simt.diagnostics import Severity

_BARRIER = re.compile(r"\b__syncthreads(?:_or|_and|_count)?(?=\s*\()")
_FULL_MASK = re.compile(
    r"(?i)\(?\s*(?:~0\w*|-1\w*|0xf{8,16}\w*|U?INT_MAX|\w*FULL\w*|\w*ALL\w*)\s*\)?|"
)


def _barriers(source: Source, function: DeviceFunction) -> list[int]:
    return [m.start() for m in _BARRIER.finditer(source.code, function.open, function.close)]


@lru_cache(maxsize=256)
def _returns(source: Source, function: DeviceFunction) -> tuple[Region, ...]:
    """Every 'if (…) return;' of a function."""
    return tuple(
        region
        for region in regions(source, function)
        if region.keyword == "if"
        and re.match(r"\{?\s*return\b", source.code[region.body : region.body + 80])
        and "else" not in source.code[region.body : region.stop]
    )


def _returns_before(source: Source, function: DeviceFunction, at: int) -> list[Region]:
    return [region for region in _returns(source, function) if region.stop <= at]


def _has_twin(source: Source, region: Region, barriers: list[int]) -> bool:
    """A branch that meets its own barriers and returns, while the others meet theirs behind it."""
    body = source.code[region.body : region.stop]
    return re.search(r"\breturn\s*;\s*\}?\s*$", body) is not None and barriers[-1] >= region.stop


def barriers_missed(source: Source, platform: Platform) -> Iterator[Match]:
    """PK014: a barrier after a thread's return, or in a thread's branch."""
    for function in source.functions:
        barriers = _barriers(source, function)
        if not barriers:
            continue
        lanes = lanes_of(source, function)
        reported: set[int] = set()
        for at in barriers:
            for region in (*_returns_before(source, function, at), *around(source, function, at)):
                if region.keyword != "if" or region.start in reported:
                    continue
                if lanes.varying.in_block(region.header, region.start):
                    reported.add(region.start)
                    header = " ".join(region.header.split())
                    line = source.line(at)
                    way = "are behind" if region.contains(at) else "return at"
                    message = (
                        f"threads {way} 'if ({header})', so not all reach the barrier in line "
                        f"{line}; guard the work and keep the barrier outside"
                    )
                    # Waves that have ended are not waited for, on AMD and on NVIDIA.
                    if region.contains(at):
                        mild = _has_twin(source, region, barriers)
                    else:
                        mild = not lanes.varying.in_wave(region.header, region.start)
                    yield Match("PK014", region.start, message, Severity.NOTE if mild else None)


def barriers_in_loops(source: Source, platform: Platform) -> Iterator[Match]:
    """PK015: a barrier in a loop that threads leave at different times."""
    for function in source.functions:
        barriers = _barriers(source, function)
        if not barriers:
            continue
        lanes = lanes_of(source, function)
        for region in regions(source, function):
            if region.keyword == "if" or not any(region.contains(at) for at in barriers):
                continue
            why = _uneven(lanes, region)
            if why:
                message = (
                    f"a barrier in a loop whose trip count depends on the thread ({why}); "
                    "count from a number that all threads share"
                )
                yield Match("PK015", region.start, message)


def _uneven(lanes: LintedLanes, loop: Region) -> str:
    """The part of a loop's header that makes the trip count differ between threads; empty where
    none can be seen."""
    varying = lanes.varying
    if loop.keyword != "for":
        return loop.header.strip() if _thread_decides(lanes, loop) else ""
    parts = loop.header.split(";")
    if len(parts) != 3:
        return ""
    first = re.search(r"(\w+)\s*=\s*(.+)", parts[0], re.DOTALL)
    condition = parts[1].strip()
    if first is None or not re.search(rf"\b{first[1]}\b", condition):
        return ""
    others = re.sub(rf"\b{first[1]}\b", "0", condition)
    start, bound = varying.in_block(first[2], loop.start), varying.in_block(others, loop.start)
    if start == bound or _even_anyway(lanes, condition, parts[2]):
        return ""
    return " ".join(f"{first[0].strip()}; {condition}".split())


def _thread_decides(lanes: LintedLanes, loop: Region) -> bool:
    """while (i < n) with i a thread's own number that the loop steps on."""
    condition = re.fullmatch(r"\s*(\w+)\s*(?:<|>|<=|>=|!=)\s*[\w.]+\s*", loop.header)
    if condition is None or not lanes.varying.in_block(condition[1], loop.body):
        return False
    last = lanes.varying.last_in(condition[1], loop.body, loop.stop)
    first = lanes.varying.values.get(condition[1])
    step = last is not None and re.match(
        rf"{condition[1]}\s*[-+]=", lanes.source.code[last.at : last.at + 60]
    )
    return bool(step and first and lanes.varying.in_block(first[0].text, first[0].at))


_ROUNDED = re.compile(r"(?i)\b\w*(?:round|pad|align|ceil)\w*\b")
_ROUNDED_UP = re.compile(r"(?i)(?:/|div|ceil|round).*\*", re.DOTALL)


def _even_anyway(lanes: LintedLanes, condition: str, step: str) -> bool:
    """Whether the bound is a multiple of the step: by constants, or rounded up to one."""
    bound = re.search(r"<\s*(.+)$", condition, re.DOTALL)
    stride = re.search(r"\+=\s*(.+)$", step, re.DOTALL)
    if bound is None or stride is None:
        return False
    texts = [bound[1], *(value.text for value in lanes.varying.values.get(bound[1].strip(), []))]
    if _ROUNDED.search(bound[1]) or any(_ROUNDED_UP.search(text) for text in texts):
        return True
    size, by = lanes.source.integer(bound[1]), lanes.source.integer(stride[1])
    return bool(size and by and size % by == 0)


def absent_lanes(source: Source, platform: Platform) -> Iterator[Match]:
    """PK013: a shuffle that some lanes of its wave do not reach."""
    for function in source.functions:
        lanes = lanes_of(source, function)
        for c in lanes.collectives:
            if not _needs_all(lanes, c):
                continue
            region = _splits_wave(source, function, lanes, c.at)
            if region is not None:
                header = " ".join(region.header.split())
                message = (
                    f"{c.call.name} reads lanes that are absent by '{region.keyword} ({header})'; "
                    "call it where the whole wave is, and use the value in the branch"
                )
                yield Match("PK013", c.at, message)
                break


def _needs_all(lanes: LintedLanes, c: Collective) -> bool:
    """Whether a shuffle counts on every lane: neither a chosen leader nor a chosen mask."""
    if not c.shuffles or not _FULL_MASK.fullmatch(lanes.source.macros.get(c.mask, c.mask)):
        return False
    return c.kind != "shfl" or lanes.source.integer(c.operand) is not None


def _splits_wave(
    source: Source, function: DeviceFunction, lanes: LintedLanes, at: int
) -> Region | None:
    returns = _returns_before(source, function, at)
    for region in (*around(source, function, at), *returns):
        if region.keyword == "do" or _whole_warps(lanes, region):
            continue
        if region.keyword == "for":
            if _uneven_in_wave(lanes, region):
                return region
        elif lanes.varying.in_wave(region.header, region.start):
            return region
    return None


def _uneven_in_wave(lanes: LintedLanes, loop: Region) -> bool:
    parts = loop.header.split(";")
    first = re.search(r"(\w+)\s*=\s*(.+)", parts[0], re.DOTALL) if len(parts) == 3 else None
    if first is None or not re.search(rf"\b{first[1]}\b", parts[1]):
        return False
    if WAVE_CALL.search(parts[1]):
        return False
    others = re.sub(rf"\b{first[1]}\b", "0", parts[1])
    varying = lanes.varying
    uneven = varying.in_wave(first[2], loop.start) != varying.in_wave(others, loop.start)
    return uneven and not _even_anyway(lanes, parts[1], parts[2])


def _whole_warps(lanes: LintedLanes, region: Region) -> bool:
    """'t < 32', 't < WARP', 't >= 64': whole halves of a wave stay together."""
    limits = re.findall(r"(?:<|>=)(?!<)\s*=?\s*(\w+)", region.header)
    if len(limits) != 1 or "&&" in region.header:
        return False
    size = lanes.source.integer(limits[0])
    if size is None:
        return WARP_NAME.fullmatch(limits[0]) is not None
    return size is not None and size > 0 and size % 32 == 0


_TAIL = re.compile(
    r"\b(\w+)\s*\[\s*([\w.]+)\s*\]\s*(?:[-+*&|]?=)(?!=)[^;{}]{0,200}?\b\1\s*\[\s*\2\s*\+\s*(\d+)\s*\][^;{}]*;"
)


def lockstep_tails(source: Source, platform: Platform) -> Iterator[Match]:
    """PK011: a reduction's last steps without a barrier between them."""
    for function in source.functions:
        body = source.body(function)
        chain: list[re.Match[str]] = []
        for match in [*_TAIL.finditer(body), None]:
            if match is not None and (not chain or _goes_on(body, chain[-1], match)):
                chain.append(match)
                continue
            if len(chain) >= 2:
                yield from _tail(source, function, chain, platform)
            chain = [match] if match is not None else []


def _goes_on(body: str, before: re.Match[str], after: re.Match[str]) -> bool:
    between = body[before.end() : after.start()]
    return before.group(1, 2) == after.group(1, 2) and not re.search(
        r"sync|barrier|for\s*\(|while\s*\(", between, re.IGNORECASE
    )


def _tail(
    source: Source, function: DeviceFunction, chain: list[re.Match[str]], platform: Platform
) -> Iterator[Match]:
    array, steps = chain[0][1], [int(match[3]) for match in chain]
    volatile = re.search(
        rf"\bvolatile\b[^;(){{}}]*\b{array}\b", function.parameters + source.body(function)
    )
    at = function.open + chain[0].start()
    shown = ", ".join(str(step) for step in steps[:4])
    if not volatile:
        message = f"{array}[t + {shown} …] without a barrier between, and {array} is not volatile"
        yield Match("PK011", at, f"{message}; add __syncwarp(), or shuffle")
    elif steps[0] >= 64 and platform.wave32:
        message = f"{array}[t + {shown} …] counts on 64 lanes in step, and a wave may have 32"
        yield Match("PK011", at, f"{message}; add __syncthreads()")
    elif not platform.amd or platform.target is None:
        message = f"{array}[t + {shown} …] counts on lanes in step, which NVIDIA does not promise"
        yield Match("PK011", at, f"{message}; add __syncwarp()", Severity.NOTE)


_DECLARED = re.compile(r"__shared__\s+([\w ]+?)\s+(\w+)\s*((?:\[[^\]]*\])+)\s*;")
_STOP = re.compile(r"[{}]|sync|barrier|fence|\breturn\b|\b(?:if|for|while)\b|asm")


def missing_barriers(source: Source, platform: Platform) -> Iterator[Match]:
    """PK016: a store to s[t], then a load of another thread's element, with nothing between."""
    for function in source.functions:
        lanes = lanes_of(source, function)
        for array in _DECLARED.finditer(source.code, function.open, function.close):
            if "volatile" not in array[1]:
                yield from _unguarded_loads(lanes, array[2])


def _unguarded_loads(lanes: LintedLanes, array: str) -> Iterator[Match]:
    store = re.compile(rf"(?<![\w.]){array}((?:\s*\[[^\[\];]*\])+)\s*=(?!=)[^;{{}}]*;")
    load = re.compile(rf"(?<![\w.&]){array}((?:\s*\[[^\[\];]*\])+)")
    body = lanes.body
    for match in store.finditer(body):
        mine = {_plain(match[1])}
        place = lanes.function.open + match.start()
        if not _own_element(lanes, match[1], place) or _one_thread(lanes, place):
            continue
        at = match.end()
        while (end := body.find(";", at)) >= 0:
            statement = body[at : end + 1]
            if _STOP.search(statement) or _calls(lanes.source, statement):
                break
            written = store.search(statement)
            reads = statement[written.end(1) - written.start() :] if written else statement
            for use in load.finditer(reads):
                if _plain(use[1]) not in mine and _neighbour(lanes, use[1], place):
                    message = (
                        f"{array}{use[1]} is read after {array}{match[1]} was stored, with no "
                        "barrier between; add __syncthreads()"
                    )
                    yield Match("PK016", lanes.function.open + at + _lead(statement), message)
                    return
            if written:
                mine.add(_plain(written[1]))
            at = end + 1


def _lead(statement: str) -> int:
    return len(statement) - len(statement.lstrip())


def _plain(index: str) -> str:
    return re.sub(r"\s+", "", index)


def _own_element(lanes: LintedLanes, index: str, at: int) -> bool:
    """[t], [ty][tx]: a thread's own, by plain names."""
    parts = re.findall(r"\[\s*([\w.]+)\s*\]", index)
    whole = "".join(f"[{part}]" for part in parts) == _plain(index)
    return whole and any(_thread_number(lanes, part, at) for part in parts)


def _thread_number(lanes: LintedLanes, name: str, at: int) -> bool:
    values = lanes.varying.values.get(name, [])
    return THREAD.fullmatch(name) is not None or (
        len(values) == 1 and lanes.varying.in_block(name, at)
    )


def _one_thread(lanes: LintedLanes, at: int) -> bool:
    regions = around(lanes.source, lanes.function, at)
    return any(r.keyword == "if" and re.search(r"==\s*0\b|\b0\s*==", r.header) for r in regions)


def _neighbour(lanes: LintedLanes, index: str, at: int) -> bool:
    """A constant, or a thread's number plus, minus or xor something."""
    parts = [part.strip() for part in re.findall(r"\[([^\]]*)\]", index)]
    if all(lanes.source.integer(part) is not None for part in parts):
        return True
    return any(re.search(r"[-+^]", part) and lanes.varying.in_block(part, at) for part in parts)


def _calls(source: Source, statement: str) -> bool:
    """Whether something of the file's own is called, which may hold a barrier."""
    return any(
        name in source.defined for name in re.findall(r"\b(\w+)\s*(?:<[^<>;]*>)?\s*\(", statement)
    )


RULES: tuple[Rule, ...] = (
    barriers_missed,
    barriers_in_loops,
    absent_lanes,
    lockstep_tails,
    missing_barriers,
)
