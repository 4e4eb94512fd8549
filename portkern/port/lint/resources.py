"""Shared memory, registers and blocks: what a kernel asks of a compute unit."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from portkern.cuda_source.constants import SIZES
from portkern.port.lint.launches import launches
from portkern.port.lint.rule import Match, Platform, Rule
from portkern.port.lint.source import DeviceFunction, Source
from portkern.simt.diagnostics import Severity
from portkern.spec.target import AmdLimits

_ARRAY = re.compile(
    r"(?<!extern )__shared__\s+(?:__align__\s*\([^)]*\)\s*|alignas\s*\([^)]*\)\s*|volatile\s+)*"
    r"([\w: ]+?)\s+(\w+)\s*((?:\[[^\]]*\]\s*)+)"
)
_ATTRIBUTE = re.compile(r"\b(?:cuda|hip)FuncSetAttribute(?=\s*\()")
_PREFERENCE = re.compile(
    r"\b(?:cuda|hip)(?:FuncSetCacheConfig|DeviceSetCacheConfig|FuncSetSharedMemConfig"
    r"|DeviceSetSharedMemConfig)(?=\s*\()"
)
_BOUNDS = re.compile(r"\b__launch_bounds__(?=\s*\()")
_MULTIPROCESSORS = re.compile(r"(?<![\w.])(108|132|114|142|148|80|84|82|72)(?:\s*\*|\s*$)")


def shared_arrays(source: Source, platform: Platform) -> Iterator[Match]:
    """PK022: static arrays that do not fit."""
    for function in source.functions:
        total, largest = 0, (0, function.start)
        for match in _ARRAY.finditer(source.code, function.open, function.close):
            size = _bytes(source, match)
            total += size
            largest = max(largest, (size, match.start()))
        if total > platform.lds_bytes and platform.amd:
            message = (
                f"{function.name} declares {total} bytes of shared memory, and a block has "
                f"{platform.lds_bytes} on {platform.name}; use smaller tiles"
            )
            yield Match("PK022", largest[1], message)


def _bytes(source: Source, array: re.Match[str]) -> int:
    """The size of one declaration; 0 where it cannot be known."""
    size = SIZES.get(" ".join(array[1].split()), 0)
    for extent in re.findall(r"\[([^\]]*)\]", array[3]):
        size *= source.integer(extent) or 0
    return size


def dynamic_shared(source: Source, platform: Platform) -> Iterator[Match]:
    """PK022, PK023: bytes at the launch, and attributes that ask for them."""
    if not platform.amd:
        return
    limit = platform.lds_bytes
    for launch in launches(source):
        if launch.shared_bytes is not None and launch.shared_bytes > limit:
            message = (
                f"{launch.kernel} is launched with {launch.shared_bytes} bytes of shared memory, "
                f"and a block has {limit} on {platform.name}; use smaller tiles"
            )
            yield Match("PK022", launch.at, message)
    for call in source.calls(_ATTRIBUTE):
        size = source.integer(call.arguments[-1]) if call.arguments else None
        if size is not None and size > limit and "Dynamic" in call.arguments[1]:
            message = (
                f"{size} bytes are asked for, and a block has {limit} on {platform.name}; "
                "use smaller tiles"
            )
            yield Match("PK022", call.start, message)
        elif len(call.arguments) == 3 and re.search(r"Dynamic|Carveout", call.arguments[1]):
            message = f"{call.arguments[1]} raises no limit on AMD; compare with sharedMemPerBlock"
            yield Match("PK023", call.start, message)
    for call in source.calls(_PREFERENCE):
        yield Match("PK023", call.start, f"{call.name} changes nothing on AMD; leave it out")


def launch_bounds(source: Source, platform: Platform) -> Iterator[Match]:
    """PK024: CUDA's blocks per multiprocessor read as HIP's waves per SIMD."""
    if not platform.amd:
        return
    for call in source.calls(_BOUNDS):
        if len(call.arguments) < 2 or not call.arguments[1]:
            continue
        threads, second = (source.integer(text) for text in call.arguments[:2])
        if source.hip:
            yield from _too_many(call.start, second, platform)
        elif second != 1:
            yield from _recomputed(call.start, call.arguments[1], threads, second, platform)


def _too_many(at: int, second: int | None, platform: Platform) -> Iterator[Match]:
    """Matches for a HIP kernel that asks for more waves than a SIMD has, or for all, which few
    kernels have the registers for."""
    if second is not None and second > platform.waves_simd:
        message = (
            f"{second} waves per SIMD are asked for, and there are {platform.waves_simd} "
            f"at most on {platform.name}; the second argument is not a number of blocks"
        )
        yield Match("PK024", at, message)
    limits = platform.target.limits if platform.target else None
    if isinstance(limits, AmdLimits) and second == limits.waves_simd:
        registers = limits.vgprs_simd // limits.waves_simd
        message = (
            f"all {second} waves that a SIMD of {platform.name} has are asked for, which leaves "
            f"{registers} registers each; ask for less where it spills"
        )
        yield Match("PK024", at, message, Severity.NOTE)


def _recomputed(
    at: int, text: str, threads: int | None, second: int | None, platform: Platform
) -> Iterator[Match]:
    message = f"{text} blocks per multiprocessor become {text} waves per SIMD"
    limits = platform.target.limits if platform.target else None
    if threads and second and isinstance(limits, AmdLimits) and platform.target is not None:
        waves = math.ceil(threads / (platform.target.warp or 64)) * second
        wanted = min(max(1, math.ceil(waves / limits.simds_unit)), limits.waves_simd)
        if wanted == second and wanted < limits.waves_simd:
            return
        registers = limits.vgprs_simd // limits.waves_simd
        if wanted == limits.waves_simd:
            message = (
                f"{message}, all that there are, with {registers} registers each; ask for less"
            )
        else:
            message = f"{message}; write {wanted} for {platform.name}"
    else:
        message = f"{message}; recompute it or leave it out"
    yield Match("PK024", at, message)


def register_limits(source: Source, platform: Platform) -> Iterator[Match]:
    """PK025: registers counted by attribute."""
    if not platform.amd:
        return
    for match in re.finditer(r"\bamdgpu_num_vgpr\b|\b__maxnreg__\b", source.code):
        message = f"{match[0]} counts otherwise on AMD; use amdgpu_waves_per_eu or launch bounds"
        yield Match("PK025", match.start(), message)


def device_sizes(source: Source, platform: Platform) -> Iterator[Match]:
    """PK050: a grid of one NVIDIA device's multiprocessors, or its L2."""
    if not platform.amd:
        return
    for launch in launches(source):
        grid = source.macros.get(launch.grid, launch.grid)
        count = _MULTIPROCESSORS.search(grid)
        if count is not None:
            message = f"{launch.kernel}'s grid counts {count[1]} multiprocessors; ask the device"
            yield Match("PK050", launch.at, message)
    for match in re.finditer(
        r"\b(?:const|constexpr)\s+int\s+(\w*(?:[nN]um_?)?(?:sms?|SMs?|SMS)\w*)\s*=\s*(\d+)\b"
        r"|#[ \t]*define[ \t]+(\w*(?:NUM_?SMS?|SM_COUNT)\w*)[ \t]+(\d+)\b"
        r"|\b(?:cuda|hip)LimitPersistingL2CacheSize\b|\baccessPolicyWindow\b",
        source.code,
    ):
        name = match[1] or match[3] or match[0]
        if (match[1] or match[3]) and int(match[2] or match[4]) < 40:
            continue
        yield Match("PK050", match.start(), f"{name} fits one NVIDIA device; ask the device")


def _pointer_type(source: Source, function: DeviceFunction, expression: str) -> str:
    """The type that an atomic's first argument points to; empty where it is not known, or in
    shared memory."""
    cast = re.search(r"(?:\(|<)\s*(?:const\s+)?([\w ]+?)\s*\*\s*(?:\)|>)", expression)
    if cast is not None:
        return cast[1].strip()
    name = re.search(r"[A-Za-z_]\w*", expression.replace("&", ""))
    if name is None:
        return ""
    body = source.body(function)
    if re.search(rf"__shared__[^;]*\b{name[0]}\b", body):
        return ""
    declared = re.search(
        rf"\b([A-Za-z_]\w*)\s*\*\s*(?:__restrict__\s+|__restrict\s+|const\s+)?{name[0]}\b",
        f"{function.parameters};{body}",
    )
    return declared[1] if declared else ""


_FLOATS = {"float", "double"}
_PAIRS = re.compile(r"(?:__)?half2|__nv_bfloat16[2]?|nv_bfloat162|__hip_bfloat162")


def atomics(source: Source, platform: Platform) -> Iterator[Match]:
    """PK035, PK036: floating-point atomics, and those that HIP lacks."""
    if not platform.amd:
        return
    managed = any(
        re.match(r"(?:cuda|hip)(?:MallocManaged|HostMalloc|MallocHost|HostAlloc)", w)
        for w in source.words
    )
    for call in source.calls(re.compile(r"\batomicAdd(?=\s*\()")):
        function = source.function_at(call.start)
        if function is None or len(call.arguments) != 2 or "atomicAdd" in source.defined:
            continue
        kind = _pointer_type(source, function, call.arguments[0])
        if _PAIRS.fullmatch(kind):
            message = f"atomicAdd on {kind} is not in HIP; use unsafeAtomicAdd or a CAS loop"
            yield Match("PK036", call.start, message)
        elif kind in _FLOATS and not platform.float_atomics:
            message = (
                f"atomicAdd on {kind} is a compare-and-swap loop; reduce within the block first"
            )
            yield Match("PK035", call.start, message)
    for call in source.calls(re.compile(r"\bunsafeAtomicAdd(?=\s*\()")):
        if managed:
            message = "unsafeAtomicAdd loses updates in managed or host memory; use hipMalloc's"
            yield Match("PK035", call.start, message, Severity.WARNING)


RULES: tuple[Rule, ...] = (
    shared_arrays,
    dynamic_shared,
    launch_bounds,
    register_limits,
    device_sizes,
    atomics,
)
