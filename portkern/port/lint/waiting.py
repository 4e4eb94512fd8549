"""Threads that wait in a loop for others, and what makes data visible to them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from portkern.port.lint.regions import Region, around, regions
from portkern.port.lint.rule import Match, Platform, Rule
from portkern.port.lint.source import DeviceFunction, Source
from portkern.simt.diagnostics import Severity

#: A free lock, 0 or -1, is exchanged for a taken one.
_TAKE = re.compile(
    r"\batomicCAS(?:_system)?\s*\([^;]*,\s*(?:0|-1|false|FREE|UNLOCKED)\s*,[^;]*\)"
    r"|\batomicExch(?:_system)?\s*\([^;]*,\s*(?:1|true|LOCKED)\s*\)"
)
_IDLE = re.compile(r"\{?\s*(?:__nanosleep\s*\([^)]*\)\s*|__threadfence\w*\s*\(\s*\)\s*|;|\}|\s)*")
_ONE_THREAD = re.compile(
    r"threadIdx\s*\.\s*x\s*==\s*0|==\s*0\b|^\s*!\s*\w+\s*$|\bis_?leader\b|\bis_?master\b|elect"
)
_GRID = re.compile(r"\bgridDim\b|\bnum_?[bB]locks\b|\bgrid_?size\b|\bgoal\w*\b|\bexpected\b")
_VOLATILE_PARAMETER = r"\bvolatile\s+[\w ]+\*\s*(?:__restrict__\s*)?(\w+)"
_VOLATILE_CAST = r"\(\s*volatile\s+[\w ]+\*\s*\)\s*&?\s*(\w+)"
_FENCED = re.compile(
    r"\b__threadfence(?:_system)?\s*\(|\b__(?:atomic|hip_atomic|scoped_atomic)_|memory_order"
    r"|atomicAdd|atomicExch|atomicCAS"
)


def _idle_loop(source: Source, region: Region) -> bool:
    """A loop whose body does nothing but wait."""
    if region.keyword == "do":
        return True
    body = source.code[region.body : region.stop]
    return region.keyword == "while" and _IDLE.fullmatch(body) is not None


def waits(source: Source, platform: Platform) -> Iterator[Match]:
    """PK049: a lock that every lane takes by waiting, or a barrier over the grid."""
    cooperative = any("LaunchCooperative" in word for word in source.words)
    for function in source.functions:
        for region in regions(source, function):
            if region.keyword == "for" or not _idle_loop(source, region):
                continue
            if _TAKE.search(region.header):
                if _every_lane(source, function, region):
                    message = (
                        "each lane waits for a lock whose holder may be in its own wave, which "
                        "hangs on AMD; put the critical section into the branch that took the lock"
                    )
                    yield Match("PK049", region.start, message)
            elif not cooperative and _waits_for_grid(source, function, region):
                message = (
                    "blocks wait for all others, and hang unless all are resident; launch "
                    "cooperatively with the device's own number of blocks"
                )
                yield Match("PK049", region.start, message)


def _every_lane(source: Source, function: DeviceFunction, region: Region) -> bool:
    outer = around(source, function, region.start)
    return not any(r.keyword == "if" and _ONE_THREAD.search(r.header) for r in outer)


def _waits_for_grid(source: Source, function: DeviceFunction, region: Region) -> bool:
    """Whether the loop loads what others change until it reaches the number of blocks."""
    if not _GRID.search(region.header):
        return False
    if re.search(r"\batomic\w+\s*\(|\bvolatile\b|__ldcg|\bload\b", region.header):
        return True
    names = re.findall(r"\*\s*(\w+)|(\w+)\s*\[", region.header)
    declared = f"{function.parameters}){source.body(function)}"
    volatile = set(re.findall(r"\bvolatile\b[^;,()]*?(\w+)\s*[;,=)]", declared))
    return any((first or second) in volatile for first, second in names)


def _is_ordered(body: str, flag: str) -> bool:
    """Whether what stands last before the store to the flag, or anywhere where there is none,
    orders the data for other blocks."""
    stored = re.search(rf"(?:\*\s*{flag}|\b{flag}\s*\[[^;{{}}]*\])\s*=(?!=)", body)
    before = body[: stored.start()] if stored else body
    fences = re.findall(r"\b__threadfence_block\s*\(", before)
    last = re.search(r"\b__threadfence_block\s*\((?!.*\b__threadfence_block)", before, re.DOTALL)
    after = before[last.end() :] if stored and fences and last else before
    return _FENCED.search(after) is not None


def unfenced_flags(source: Source, platform: Platform) -> Iterator[Match]:
    """PK051: blocks signal through volatile memory and nothing orders the data before the flag."""
    for function in source.functions:
        body = source.body(function)
        if "volatile" not in body and "volatile" not in function.parameters:
            continue
        pointers = re.findall(_VOLATILE_PARAMETER, function.parameters)
        pointers += re.findall(_VOLATILE_CAST, body)
        pointers = [name for name in pointers if not _is_ordered(body, name)]
        if not pointers:
            continue
        shared = set(re.findall(r"__shared__[^;]*?\b(\w+)\s*\[", body))
        for name in dict.fromkeys(pointers):
            use = re.search(rf"\bwhile\s*\([^;{{}}]*\b{name}\b", body)
            if use is None and "__threadfence_block" in body:
                use = re.search(rf"\b{name}\b[^;={{}}]*=(?!=)", body)
            if use is not None and name not in shared:
                message = (
                    f"{name} is a flag between blocks without a fence of the device's scope; add "
                    "__threadfence() between data and flag, or store it by an atomic"
                )
                yield Match("PK051", function.open + use.start(), message)


def device_clocks(source: Source, platform: Platform) -> Iterator[Match]:
    """PK052: cycles are counted in a kernel."""
    if not platform.amd or not {"clock", "clock64"} & source.words:
        return
    level = None if platform.clock64 else Severity.WARNING
    for match in re.finditer(r"(?<![\w.:>])clock(?:64)?\s*\(\s*\)", source.code):
        if source.function_at(match.start()) is not None:
            message = f"{match[0]} counts at another rate on {platform.name}; use wall_clock64()"
            yield Match("PK052", match.start(), message, level)


RULES: tuple[Rule, ...] = (waits, unfenced_flags, device_clocks)
