"""Sums whose order of terms is the device's, and hosts that compare them to the last bit."""

from __future__ import annotations

import re
from collections.abc import Iterator

from portkern.port.lint.masks import declared_type
from portkern.port.lint.rule import Match, Platform, Rule
from portkern.port.lint.source import Source, SourceCall

_FLOAT = r"(?:float|double|(?:__)?half|__nv_bfloat16|__hip_bfloat16|hip_bfloat16)"
_SHUFFLE = re.compile(r"\b__shfl(?:_up|_down|_xor)?(?:_sync)?(?=\s*\()")
_LIBRARY_SUM = re.compile(rf"\b(?:hip)?cub\s*::\s*(?:Warp|Block)(?:Reduce|Scan)\s*<\s*{_FLOAT}\b")
#: ``float* a, *b``, ``float a[8]`` and ``std::vector<float> a``; of any other type as well.
_BUFFER = re.compile(
    r"\b(?:vector\s*<\s*(?P<of>[\w:]+)\s*>\s*&?\s*|(?P<type>[A-Za-z_]\w*)\s*\*+\s*"
    r"(?:const\b|__restrict__\b|__restrict\b|\s)*|(?P<array>[A-Za-z_]\w*)\s+(?=\w+\s*\[))"
    r"(?P<name>[A-Za-z_]\w*)"
    r"(?P<more>(?:\s*(?:=[^,;(){}]*)?,\s*\*\s*\w+)*)"
)
_COMPARE = re.compile(r"\b(?:std\s*::\s*)?(?:memcmp|equal)(?=\s*\()")
_ELEMENTS = re.compile(r"(?<![\w.>])(\w+)\s*\[[^\]=]*\]\s*[!=]=\s*(\w+)\s*\[")


def exact_sums(source: Source, platform: Platform) -> Iterator[Match]:
    """PK037: floating-point results are held to be equal to the last bit."""
    if not platform.amd or not _sums(source, platform):
        return
    held = _float_buffers(source.code)
    for call in source.calls(_COMPARE):
        names = [_first_name(argument) for argument in call.arguments[:3]]
        name = next((name for name in names if name in held), "")
        if name and source.function_at(call.start) is None:
            yield _match(call.start, f"{call.name} compares the bits of {name}")
    for match in _ELEMENTS.finditer(source.code):
        both = {match[1], match[2]}
        if len(both) == 2 and both <= held and source.function_at(match.start()) is None:
            yield _match(match.start(), f"{match[1]} and {match[2]} are compared by their bits")


def _match(at: int, what: str) -> Match:
    remedy = "sums over lanes have another order on AMD; allow for rounding"
    return Match("PK037", at, f"{what}, and {remedy}")


def _sums(source: Source, platform: Platform) -> bool:
    """Whether lanes add values of floating point, in an order that the width sets. Atomics have
    none on any device: who compares their sums exactly has terms that add up exactly."""
    if _LIBRARY_SUM.search(source.code):
        return True
    return platform.wave64 and any(_adds(source, call) for call in source.calls(_SHUFFLE))


def _adds(source: Source, call: SourceCall) -> bool:
    """Whether a value of floating point is added that comes from another lane of the whole wave, by
    steps that follow from its width."""
    function = source.function_at(call.start)
    places = 3 if call.name.endswith("_sync") else 2
    if function is None or not set(call.arguments[places:]) <= {"warpSize"}:
        return False
    if not re.search(r"\+=?\s*\(*\s*$", source.code[max(0, call.start - 20) : call.start]):
        return False
    kind = declared_type(source, function, call.arguments[places - 2].strip("() "))
    by_width = re.search(r"\bwarpSize\b", source.body(function)) is not None
    return by_width and kind is not None and re.fullmatch(_FLOAT, kind) is not None


def _float_buffers(code: str) -> set[str]:
    """Names that are of buffers of floating point wherever they are declared."""
    floats, others = set[str](), set[str]()
    for match in _BUFFER.finditer(code):
        kind = match["of"] or match["type"] or match["array"]
        names = [match["name"], *re.findall(r"\*\s*(\w+)", match["more"])]
        (floats if re.fullmatch(_FLOAT, kind) else others).update(names)
    return floats - others


def _first_name(argument: str) -> str:
    """``out`` of ``&out[0]``, ``out.data()`` and ``(void*)out``."""
    plain = re.sub(r"\([\w\s]*\*+\s*\)|\w+_cast\s*<[^>]*>\s*\(", "", argument)
    name = re.search(r"[A-Za-z_]\w*", plain)
    return name[0] if name else ""


RULES: tuple[Rule, ...] = (exact_sums,)
