"""Names that AMD's toolchain does not have, or has with another meaning: one table."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from portkern.port.lint.rule import Match, Platform, Rule
from portkern.port.lint.source import Source
from portkern.simt.diagnostics import Severity


class NameRule(NamedTuple):
    """Whole identifiers, what is written instead, and where they count."""

    code: str
    pattern: re.Pattern[str]
    remedy: str
    device_only: bool = True  # host code may use the word for something else
    level: Severity | None = None


_NOTE = Severity.NOTE
_NAMES = (
    NameRule(
        "PK018",
        re.compile(
            r"__cluster_dims__|cluster_group|this_cluster|CUtensorMap\w*|cuTensorMapEncode\w*"
            r"|__pipeline_(?:memcpy_async|commit|wait_prior|arrive_on)|make_pipeline|cp_async_\w+"
            r"|pipeline_shared_state|thread_scope_block|cudaLaunchAttributeClusterDimension"
        ),
        "copy with plain loads into a double buffer",
        device_only=False,
    ),
    NameRule(
        "PK027", re.compile(r"__ld(?:cs|cg|ca|cv|lu)|__st(?:cs|cg|wt|wb)"), "see --explain PK027"
    ),
    NameRule("PK028", re.compile(r"__nanosleep|__trap|__brkpt"), "use the compiler's builtin"),
    NameRule(
        "PK029",
        re.compile(
            r"__dp[24]a(?:_lo|_hi)?|__v(?:abs|add|sub|min|max|avg|cmp|set|neg|sad|ibmax|ibmin|imax"
            r"|imin|haddu?|subus|addus)\w*[24]"
        ),
        "use __builtin_amdgcn_sdot4, or plain C++",
    ),
    NameRule(
        "PK036",
        re.compile(r"atomic(?:Add|Sub|Exch|Min|Max|Inc|Dec|CAS|And|Or|Xor)_block"),
        "use the plain form",
    ),
    NameRule(
        "PK044",
        re.compile(r"__nv_bfloat16[2]?|nv_bfloat16[2]?|__nv_bfloat16_raw"),
        "use __hip_bfloat16 of hip/hip_bf16.h",
        device_only=False,
    ),
    NameRule("PK046", re.compile(r"__grid_constant__"), "leave it out", device_only=False),
    NameRule(
        "PK047",
        re.compile(
            r"cudaLaunchAttributeProgrammatic\w*|cudaGridDependencySynchronize"
            r"|cudaTriggerProgrammaticLaunchCompletion|programmaticStreamSerialization\w*"
        ),
        "order the launches by the stream",
        device_only=False,
    ),
    NameRule("PK047", re.compile(r"cudaLaunchKernelExC?"), "launch plainly", device_only=False),
    NameRule(
        "PK048",
        re.compile(r"cudaMemoryTypeUnregistered"),
        "handle the error of the query as well",
        device_only=False,
    ),
)
_ROUNDED = re.compile(
    r"__(?:f(?:add|sub|mul|div|maf?|ma|rcp|sqrt)|d(?:add|sub|mul|div|rcp|sqrt)|fma(?:f)?)_r[zud]"
)
_FAST = re.compile(
    r"__(?:expf|exp10f|logf|log2f|log10f|powf|sinf|cosf|tanf|sincosf|fdividef|tanhf)"
)
_TEXTURES = re.compile(
    r"tex[123]D(?:fetch|Lod|Grad|Layered)?|texCubemap|surf[123]D(?:read|write)|tex1Dfetch"
    r"|(?:cuda|hip)TextureObject_t|(?:cuda|hip)(?:Create|Destroy)TextureObject"
    r"|(?:cuda|hip)SurfaceObject_t|(?:cuda|hip)BindTexture\w*|(?:cuda|hip)CreateSurfaceObject"
)


def _places(source: Source, words: set[str]) -> Iterator[re.Match[str]]:
    if words:
        joined = "|".join(map(re.escape, sorted(words, key=len, reverse=True)))
        yield from re.finditer(rf"(?<![\w.])(?:{joined})(?!\w)", source.code)


def _words(source: Source, pattern: re.Pattern[str]) -> set[str]:
    return {word for word in source.words if pattern.fullmatch(word)} - source.defined


def missing_names(source: Source, platform: Platform) -> Iterator[Match]:
    """PK018, PK027 to PK029, PK036, PK044, PK046 to PK048: names of CUDA alone."""
    if not platform.amd:
        return
    for entry in _NAMES:
        for match in _places(source, _words(source, entry.pattern)):
            if entry.device_only and not _in_device_code(source, match):
                continue
            message = f"{match[0]} is not in HIP; {entry.remedy}"
            yield Match(entry.code, match.start(), message, entry.level)
            if entry.code == "PK044":
                break


def _in_device_code(source: Source, match: re.Match[str]) -> bool:
    """Whether the name is called in a device function or a macro."""
    called = re.compile(r"\s*\(").match(source.code, match.end()) is not None
    start = source.code.rfind("\n", 0, match.start()) + 1
    macro = source.code[start : match.start()].lstrip().startswith("#")
    return called and (macro or source.function_at(match.start()) is not None)


def rounding(source: Source, platform: Platform) -> Iterator[Match]:
    """PK030: directed rounding, which HIP has only on request of the compiler's command. A file
    that defines the macro itself is late; one that asks for it knows."""
    macro = "OCML_BASIC_ROUNDED_OPERATIONS"
    if not platform.amd or (macro in source.words and macro not in source.defined):
        return
    for match in _places(source, _words(source, _ROUNDED)):
        message = f"{match[0]} needs -D{macro} on the compiler's command; or use _rn"
        yield Match("PK030", match.start(), message)


def fast_functions(source: Source, platform: Platform) -> Iterator[Match]:
    """PK034: once for each function and file."""
    if not platform.amd:
        return
    reported: set[str] = set()
    for match in _places(source, _words(source, _FAST)):
        if match[0] not in reported:
            reported.add(match[0])
            message = f"{match[0]} errs by other amounts on AMD; compare within an error bound"
            yield Match("PK034", match.start(), message)


def textures(source: Source, platform: Platform) -> Iterator[Match]:
    """PK045: image instructions where the target has none."""
    if not platform.amd or platform.textures:
        return
    for match in _places(source, _words(source, _TEXTURES)):
        message = f"{match[0]}: {platform.name} has no textures; use plain loads"
        if platform.target is None:
            message = f"{match[0]}: CDNA3 and CDNA4 have no textures; use plain loads"
        yield Match("PK045", match.start(), message)


def graphs(source: Source, platform: Platform) -> Iterator[Match]:
    """PK047: cudaGraphInstantiate as CUDA 12 has it."""
    if not platform.amd:
        return
    for call in source.calls(re.compile(r"\b(?:cuda|hip)GraphInstantiate(?=\s*\()")):
        if len(call.arguments) in (2, 3):
            message = (
                f"{call.name} with {len(call.arguments)} arguments matches nothing in HIP; "
                "use hipGraphInstantiateWithFlags, or five arguments"
            )
            yield Match("PK047", call.start, message)


def memory_types(source: Source, platform: Platform) -> Iterator[Match]:
    """PK048: a memory type compared with a number."""
    if not platform.amd or not re.search(r"(?:cuda|hip)PointerGetAttributes", source.code):
        return
    for match in re.finditer(r"(?:\.|->)\s*(?:type|memoryType)\s*[!=]=\s*(\d)\b", source.code):
        message = f"memory type {match[1]} is another one in HIP; compare with hipMemoryTypeDevice"
        yield Match("PK048", match.start(), message)


RULES: tuple[Rule, ...] = (
    missing_names,
    rounding,
    fast_functions,
    textures,
    graphs,
    memory_types,
)
