"""Rules for what only NVIDIA's devices understand: PTX, tensor cores, launches from kernels."""

from __future__ import annotations

import re
from collections.abc import Iterator

from portkern.cuda_source import conditions
from portkern.port.lint.rule import Match, Platform, Rule
from portkern.port.lint.source import Source
from portkern.port.lint.width import lanes_of

_ASM = re.compile(r"\b(?:asm|__asm__|__asm)\b\s*(?:volatile|__volatile__|__volatile)?\s*(?=\()")
#: An opcode of PTX has types or spaces behind dots; AMD's has underscores.
_PTX = re.compile(
    r"(?<![\w.])@?[a-z]\w*(?:\.[a-z]\w*|::\w+)*\.(?:[bsuf](?:8|16|32|64)|f16x2|bf16x2?|pred|aligned"
    r"|sync\w*|global|shared|cta|gpu|sys|async|noftz|approx|level\w*|wide|L1\w*|L2\w*)\b"
    r"|%%?(?:laneid|lanemask_\w+|warpid|smid|clock\d*|globaltimer\w*|tid|ctaid|ntid|nctaid)\b"
    r"|\b(?:trap|exit|brkpt|membar\.\w+|fence\.\w+|griddepcontrol\.\w+|isspacep\.\w+);"
)
_MATRIX = re.compile(r"\b(?:w?mma|wgmma|tcgen05|ldmatrix|stmatrix|mma_async)\b(?:\.\w+)+")
_TIES = re.compile(r"\bcvt\.rn[ai]\b")
_WMMA = re.compile(r"#\s*include\s*<mma\.h>|\bnvcuda\s*::\s*(?:experimental\s*::\s*)?wmma\b")
_FRAGMENT = re.compile(r"\b(\w+)\s*(?:/\s*4|%\s*4|>>\s*2|&\s*0?x?3)\b")
_LANE = re.compile(r"(?i)(?:lane|t_?id|group)\w*")
_CONDITIONAL = re.compile(r"^[ \t]*#[ \t]*(if|el|endif)", re.MULTILINE)
_HEADERS = {
    "cooperative_groups/reduce.h": ("PK017", "use tile shuffles"),
    "cooperative_groups/scan.h": ("PK017", "use tile shuffles"),
    "cooperative_groups/memcpy_async.h": ("PK017", "copy with plain loads"),
    "cuda_pipeline.h": ("PK018", "copy with plain loads into a double buffer"),
    "cuda_pipeline_primitives.h": ("PK018", "copy with plain loads into a double buffer"),
    "cuda_awbarrier.h": ("PK018", "use __syncthreads()"),
    "cuda/barrier": ("PK018", "use __syncthreads()"),
    "cuda/pipeline": ("PK018", "copy with plain loads into a double buffer"),
    "cuda/ptx": ("PK018", "use plain C++"),
    "cudaTypedefs.h": ("PK018", "copy with plain loads"),
    "cuda_bf16.h": ("PK044", "include <hip/hip_bf16.h>"),
}
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]', re.MULTILINE)
_GROUPS = re.compile(
    r"\b(?:cg|cooperative_groups)\s*::\s*(reduce|inclusive_scan|exclusive_scan|labeled_partition"
    r"|binary_partition|memcpy_async|wait|wait_prior|invoke_one\w*)\s*(?:<[^;(){}]*>)?\s*\("
)
_LIBCU = re.compile(
    r"\bcuda\s*::\s*(barrier|pipeline|memcpy_async|aligned_size_t|ptx|annotated_ptr|access_property"
    r"|thread_scope_\w+|device\s*::\s*\w+)\b"
)


def assembly(source: Source, platform: Platform) -> Iterator[Match]:
    """PK019, PK020, PK031: inline PTX, by what it does."""
    if not platform.amd or not {"asm", "__asm__", "__asm"} & source.words:
        return
    for match in _ASM.finditer(source.code):
        close = source.partner(match.end())
        statement = source.quoted[match.end() : close + 1 if close > 0 else match.end()]
        template = _template(statement)
        tensor = _MATRIX.search(template)
        if tensor is not None:
            message = f"{tensor[0]} is NVIDIA's matrix unit; use rocWMMA or a matrix builtin"
            yield Match("PK020", match.start(), message)
            continue
        opcode = _PTX.search(template)
        if opcode is not None:
            message = f"PTX ({opcode[0]}); use a builtin or plain C++"
            yield Match("PK019", match.start(), message)
        ties = _TIES.search(template)
        if ties is not None:
            other = "rintf, to even" if ties[0].endswith("i") else "roundf, away from zero"
            yield Match("PK031", match.start(), f"{ties[0]} rounds ties as {other} does")


def _template(statement: str) -> str:
    """The instructions: the strings before the first ':' outside of strings."""
    plain = re.sub(r'"[^"\\\n]*(?:\\.[^"\\\n]*)*"', lambda m: "x" * len(m[0]), statement)
    end = re.search(r"(?<!:):(?!:)", plain)
    strings = re.findall(
        r'"([^"\\\n]*(?:\\.[^"\\\n]*)*)"', statement[: end.start() if end else None]
    )
    raw = re.findall(r'R"\w*\((.*?)\)\w*"', statement, re.DOTALL)
    return " ".join([*strings, *raw]).replace(r"\n", " ").replace(r"\t", " ")


def matrix_classes(source: Source, platform: Platform) -> Iterator[Match]:
    """PK020: nvcuda::wmma, once at its first use."""
    if not platform.amd:
        return
    match = _WMMA.search(source.code)
    if match is not None:
        message = "nvcuda::wmma is not in HIP; use rocwmma, whose classes have the same names"
        yield Match("PK020", match.start(), message)


def fragment_layouts(source: Source, platform: Platform) -> Iterator[Match]:
    """PK021: lanes of a matrix fragment taken apart by hand."""
    if not platform.amd or not re.search(r"\bmma\.|ldmatrix|\bH?MMA\w*\s*\(", source.quoted):
        return
    for function in source.functions:
        body = source.quoted[function.open : function.close]
        if not re.search(
            r"\b(?:w?mma|ldmatrix)\.|\b(?:H?MMA|LDMATRIX)\w*\s*\(|\bmma_\w+\s*\(", body
        ):
            continue
        kinds = lanes_of(source, function).kinds
        for match in _FRAGMENT.finditer(source.body(function)):
            if match[1] in kinds or _LANE.fullmatch(match[1]):
                message = (
                    f"'{match[0]}' is NVIDIA's fragment layout, and {platform.name}'s differs; "
                    "load and store through rocWMMA"
                )
                yield Match("PK021", function.open + match.start(), message)
                break


def headers(source: Source, platform: Platform) -> Iterator[Match]:
    """PK017, PK018, PK044: headers that HIP lacks."""
    if not platform.amd:
        return
    for match in _INCLUDE.finditer(source.quoted):
        entry = _HEADERS.get(match[1])
        if entry is not None:
            code, remedy = entry
            yield Match(code, match.start(), f"<{match[1]}> is not in HIP; {remedy}")


def groups(source: Source, platform: Platform) -> Iterator[Match]:
    """PK017, PK018: cooperative groups' algorithms and libcu++'s asynchronous part."""
    if not platform.amd:
        return
    for match in _GROUPS.finditer(source.code):
        message = f"cooperative_groups::{match[1]} is not in HIP; use shuffles of the tile"
        yield Match("PK017", match.start(), message)
    for match in _LIBCU.finditer(source.code):
        message = f"cuda::{match[1]} is not in HIP; copy plainly and use __syncthreads()"
        yield Match("PK018", match.start(), message)


def architecture_guards(source: Source, platform: Platform) -> Iterator[Match]:
    """PK026: device code on AMD takes another branch than on a current NVIDIA device."""
    if not platform.amd:
        return
    for guard in source.guards:
        if "__CUDA_ARCH__" not in guard.condition:
            continue
        here = conditions.value(guard.condition, conditions.AMD_DEVICE)
        there = conditions.value(guard.condition, conditions.NVIDIA_DEVICE)
        if here is None or there is None or here == there:
            continue
        if not here and guard.alternative and _ASM.search(_under(source, guard)):
            continue  # PTX for NVIDIA, and what all others take instead
        condition = " ".join(guard.condition.split())
        effect = "is left out" if not here else "is compiled, where NVIDIA leaves it out"
        message = (
            f"__CUDA_ARCH__ is undefined on AMD, so the code under '{condition}' {effect}; "
            "add defined(__HIP_DEVICE_COMPILE__)"
        )
        yield Match("PK026", guard.start, message)


def _under(source: Source, guard: conditions.Guard) -> str:
    """The text that a condition decides on, up to its #else, #elif or #endif; dead branches too."""
    depth = 0
    for match in _CONDITIONAL.finditer(source.text, guard.start):
        if depth == 1 and match[1] in ("el", "endif"):
            return source.text[guard.start : match.start()]
        depth += {"if": 1, "endif": -1}.get(match[1], 1 if not depth else 0)
    return source.text[guard.start :]


def launches_in_kernels(source: Source, platform: Platform) -> Iterator[Match]:
    """PK038: dynamic parallelism."""
    if not platform.amd or "<<<" not in source.code:
        return
    for match in re.finditer(r"<<<", source.code):
        function = source.function_at(match.start())
        if function is not None and "__host__" not in function.head:
            message = f"{function.name} launches a kernel; HIP can do that on the host only"
            yield Match("PK038", match.start(), message)


def host_services(source: Source, platform: Platform) -> Iterator[Match]:
    """PK039: malloc, printf and assert in device code, once for each kind."""
    if not platform.amd or not {"malloc", "new", "printf", "assert"} & source.words:
        return
    cassert = re.search(r"#\s*include\s*[<\"](?:cassert|assert\.h)", source.text)
    reported: set[str] = set()
    for match in re.finditer(
        r"(?<![\w.:>])(malloc|printf|assert)\s*\(|(?<![\w.])(new)\s+\w", source.code
    ):
        name = match[1] or match[2]
        function = source.function_at(match.start())
        if function is None or not function.kernel or name in reported:
            continue
        if name == "assert" and cassert:
            continue
        reported.add(name)
        remedy = "include <cassert>" if name == "assert" else "keep it to debugging"
        yield Match("PK039", match.start(), f"{name} in a kernel is slow on AMD; {remedy}")


RULES: tuple[Rule, ...] = (
    assembly,
    matrix_classes,
    fragment_layouts,
    headers,
    groups,
    architecture_guards,
    launches_in_kernels,
    host_services,
)
