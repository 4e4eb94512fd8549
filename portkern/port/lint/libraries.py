"""Vendors' libraries and types: what has a counterpart, and what the counterpart does otherwise."""

from __future__ import annotations

import re
from collections.abc import Iterator

from portkern.port.lint.lanes import Lane
from portkern.port.lint.rule import Match, Platform, Rule
from portkern.port.lint.source import Source, split
from portkern.port.lint.varying import WARP_NAME
from portkern.port.lint.width import lanes_of
from portkern.simt.diagnostics import Severity

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]', re.MULTILINE)
_LIBRARIES = (
    (
        r"cutlass/.*|cute/.*",
        "CUTLASS and CuTe",
        "write the tiles out, or use Composable Kernel",
        None,
    ),
    (r"cudnn\w*\.h", "cuDNN", "use MIOpen, whose interface is another", None),
    (r"cublas\w*\.h", "cuBLAS", "use hipBLAS or hipBLASLt", Severity.NOTE),
    (r"cufft\w*\.h", "cuFFT", "use hipFFT", Severity.NOTE),
    (r"curand\w*\.h", "cuRAND", "use hipRAND; its streams differ", Severity.NOTE),
    (r"cusparse\w*\.h", "cuSPARSE", "use hipSPARSE", Severity.NOTE),
    (r"cusolver\w*\.h", "cuSOLVER", "use hipSOLVER", Severity.NOTE),
    (r"nccl\.h", "NCCL", "use RCCL, under the same names", Severity.NOTE),
    (
        r"(?:nvml|NvInfer|nvToolsExt|nvtx3/\w+|nvshmem\w*|npp\w*|nvjpeg)\.h(?:pp)?",
        "this library",
        "nobody has a counterpart",
        None,
    ),
)
_CUB_WARP = re.compile(
    r"\b(?:hip)?cub\s*::\s*(Warp(?:Reduce|Scan|MergeSort|Exchange|Load|Store))\s*<"
)
_TF32 = re.compile(
    r"(?:CUBLAS|HIPBLAS)_(?:TF32_TENSOR_OP_MATH|XF32_XDL_MATH|COMPUTE_32F_FAST_TF32)"
)
_OCP = re.compile(
    r"__nv_fp8\w*|__NV_E[45]M[32]|nv_fp8_e[45]m[32]|fp8_e4m3|Float8_e(?:4m3fn|5m2)|float8_e4m3fn"
)
_FNUZ = re.compile(r"__hip_fp8_e[45]m[32]_fnuz|Float8_e(?:4m3|5m2)fnuz|__HIP_E[45]M[32]_FNUZ")
_HIP_OCP = re.compile(r"__hip_fp8_e[45]m[32](?:x2|x4)?|__HIP_E[45]M[32]")
_FP8_UNIT = re.compile(r"__builtin_amdgcn_(?:mfma|cvt|smfmac)\w*(?:fp8|bf8)\w*")


def includes(source: Source, platform: Platform) -> Iterator[Match]:
    """PK042: headers of NVIDIA's libraries."""
    if not platform.amd:
        return
    for match in _INCLUDE.finditer(source.quoted):
        for pattern, library, remedy, level in _LIBRARIES:
            if re.fullmatch(pattern, match[1]):
                message = f"<{match[1]}> is {library}; {remedy}"
                yield Match("PK042", match.start(), message, level)


def warp_primitives(source: Source, platform: Platform) -> Iterator[Match]:
    """PK040: cub's warp primitives without their width."""
    if not platform.wave64:
        return
    for match in _CUB_WARP.finditer(source.code):
        close = _angle(source.code, match.end() - 1)
        arguments = split(source.code[match.end() : close])
        place = {"WarpReduce": 1, "WarpScan": 1}.get(match[1])
        if close < 0 or place is None or len(arguments) > place:
            continue
        kinds = {
            kind
            for function in source.functions
            for _, kind in lanes_of(source, function).pieces(source.body(function))
        }
        if kinds & {Lane.LANE, Lane.WARP} and not kinds & {Lane.LANE32, Lane.WARP32}:
            continue
        if not kinds and source.hip and _width_is_given(source):
            continue
        by_32 = bool(kinds & {Lane.LANE32, Lane.WARP32}) or not source.hip
        message = (
            f"{match[0].rstrip('< ')}<{', '.join(arguments)}> takes 64 lanes on gfx9; add , 32"
        )
        yield Match("PK040", match.start(), message, None if by_32 else Severity.NOTE)


def _width_is_given(source: Source) -> bool:
    """Whether warps are numbered by a template's parameter, as code for both widths does it."""
    parameters = set(re.findall(r"\b(?:int|unsigned|size_t)\s+(\w+)\s*[,>=]", source.code))
    divisors = set(re.findall(r"[/%]\s*([A-Za-z_]\w*)", source.code))
    return any(WARP_NAME.fullmatch(name) for name in parameters & divisors - source.macros.keys())


def _angle(code: str, opening: int) -> int:
    depth = 0
    for at in range(opening, min(len(code), opening + 400)):
        depth += (code[at] == "<") - (code[at] == ">")
        if depth == 0:
            return at
        if code[at] in ";{}":
            return -1
    return -1


def tf32(source: Source, platform: Platform) -> Iterator[Match]:
    """PK041: TF32 in a BLAS, by what the target has."""
    if not platform.amd:
        return
    for match in _TF32.finditer(source.code):
        level = Severity.NOTE if platform.xf32 else None
        has = "has xf32, at another accuracy" if platform.xf32 else "may have no TF32"
        message = f"{match[0]}: {platform.name} {has}; use HIPBLAS_COMPUTE_32F and check the error"
        yield Match("PK041", match.start(), message, level)


def fp8(source: Source, platform: Platform) -> Iterator[Match]:
    """PK043: an encoding that the target's units do not use."""
    if not platform.amd:
        return
    patterns = [_OCP] if platform.fp8 != "ocp" else []
    patterns += [_FNUZ] if platform.fp8 in ("ocp", "none") else []
    if platform.fp8 == "fnuz" and any(_FP8_UNIT.fullmatch(word) for word in source.words):
        patterns.append(_HIP_OCP)
    meaning = {
        "fnuz": "computes in FNUZ, half the value of the same byte; convert",
        "ocp": "computes in OCP, twice the value of the same byte; convert",
        "none": "has no fp8; compute in half or float",
    }.get(platform.fp8, "may compute in FNUZ (gfx942) or not at all; convert for each target")
    for pattern in patterns:
        words = sorted(word for word in source.words if pattern.fullmatch(word))
        for word in words[:1]:
            at = re.search(rf"\b{word}\b", source.code)
            if at is not None:
                yield Match("PK043", at.start(), f"{word}: {platform.name} {meaning}")


_VECTOR = re.compile(r"(?<![\w.])((?:float|double|int|uint)[234])\s*(?=\()")
_SCALAR = re.compile(r"[-+]?(?:\d[\w.]*|\.\d\w*)")
_MINMAX = re.compile(r"(?<![\w.>])(?<!std::)(?<!::)(?:min|max)(?=\s*\()")


def constructors(source: Source, platform: Platform) -> Iterator[Match]:
    """PK053: float4(x), and min or max of two integer types."""
    if not platform.amd:
        return
    for call in source.calls(_VECTOR):
        if len(call.arguments) == 1 and _SCALAR.fullmatch(call.arguments[0]):
            text = f"{call.name}({call.arguments[0]})"
            message = f"{text} sets the first element alone since HIP 7; use make_{call.name}"
            yield Match("PK053", call.start, message)
    for call in source.calls(_MINMAX):
        kinds = {_integer_kind(argument) for argument in call.arguments} - {""}
        if len(call.arguments) == 2 and len(kinds) == 2 and source.function_at(call.start):
            message = f"{call.name} of {' and '.join(sorted(kinds))}; cast one of them"
            yield Match("PK053", call.start, message, Severity.NOTE)


def _integer_kind(argument: str) -> str:
    """The type of an integer operand that says it itself."""
    if re.fullmatch(r"-?\d+", argument):
        return "int"
    if re.fullmatch(
        r"\d+[uU]?[lL]{1,2}[uU]?|\(\s*(?:size_t|long|long long|int64_t)\s*\)\s*\w+|sizeof\s*\(.*\)",
        argument,
    ):
        return "long"
    return ""


_EXTERN = re.compile(
    r"\bextern\s+__shared__\s+(?:__align__\s*\([^)]*\)\s*|alignas\s*\([^)]*\)\s*)*"
    r"([\w: ]+?)\s+(\w+)\s*\[\s*\]"
)


def dynamic_arrays(source: Source, platform: Platform) -> Iterator[Match]:
    """PK054: one name of dynamic shared memory with several types."""
    types: dict[str, str] = {}
    for match in _EXTERN.finditer(source.code):
        kind, name = " ".join(match[1].split()), match[2]
        function = source.function_at(match.start())
        before = source.code[max(0, function.start - 300) : function.start] if function else ""
        template = re.search(
            rf"template\s*<[^;{{}}]*\b(?:typename|class)\s+{re.escape(kind)}\b[^;{{}}]*$", before
        )
        if template is not None:
            message = f"{name}[] has the template's type {kind}; declare aligned bytes and cast"
            yield Match("PK054", match.start(), message)
        elif types.setdefault(name, kind) != kind:
            message = f"{name}[] is {kind} here and {types[name]} above; declare aligned bytes"
            yield Match("PK054", match.start(), message)


RULES: tuple[Rule, ...] = (includes, warp_primitives, tf32, fp8, constructors, dynamic_arrays)
