"""How OpenCL C calls what CUDA has names for."""

from __future__ import annotations

import re
from collections.abc import Mapping

_INDEX = {
    "threadIdx": "get_local_id",
    "blockIdx": "get_group_id",
    "blockDim": "get_local_size",
    "gridDim": "get_num_groups",
}
_SINGLE = (
    "sqrt exp exp2 exp10 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh "
    "asinh acosh atanh floor ceil round trunc rint fabs erf erfc cbrt pow fmod fma atan2 hypot "
    "rsqrt copysign fdim fmax fmin tgamma lgamma remainder sinpi cospi"
).split()
_OF_TWO = frozenset("pow fmod atan2 hypot copysign fdim fmax fmin remainder".split())
#: Native forms stand for what was approximate before.
_OTHERS: Mapping[str, str] = {
    "__expf": "native_exp",
    "__exp10f": "native_exp10",
    "__logf": "native_log",
    "__log2f": "native_log2",
    "__log10f": "native_log10",
    "__sinf": "native_sin",
    "__cosf": "native_cos",
    "__tanf": "native_tan",
    "__powf": "pow",
    "__fdividef": "native_divide",
    "fdividef": "native_divide",
    "__fmaf_rn": "fma",
    "__float_as_int": "as_int",
    "__float_as_uint": "as_uint",
    "__int_as_float": "as_float",
    "__uint_as_float": "as_float",
    "__float2int_rn": "convert_int_rte",
    "__float2int_rz": "convert_int_rtz",
    "__float2int_rd": "convert_int_rtn",
    "__int2float_rn": "convert_float",
    "__popc": "popcount",
    "__clz": "clz",
    "__mul24": "mul24",
    "__umul24": "mul24",
    "CUDART_INF_F": "INFINITY",
    "CUDART_NAN_F": "NAN",
    "nullptr": "0",
    "uint8_t": "uchar",
    "int8_t": "char",
    "uint16_t": "ushort",
    "int16_t": "short",
    "uint32_t": "uint",
    "int32_t": "int",
    "uint64_t": "ulong",
    "int64_t": "long",
    "longlong2": "long2",
    "ulonglong2": "ulong2",
}
_MACROS = {
    "ldexpf": "static float ldexpf(float x, int n) { return ldexp(x, n); }",
    "__ldg": "#define __ldg(at) (*(at))",
    "__ldcs": "#define __ldcs(at) (*(at))",
    "__stcs": "#define __stcs(at, value) (*(at) = (value))",
    "__saturatef": "#define __saturatef(x) clamp(x, 0.0f, 1.0f)",
    "__frcp_rn": "#define __frcp_rn(x) (1.0f / (x))",
    "__fadd_rn": "#define __fadd_rn(x, y) ((x) + (y))",
    "__fmul_rn": "#define __fmul_rn(x, y) ((x) * (y))",
    "__ffs": "#define __ffs(x) ((x) == 0 ? 0 : 32 - (int)clz((x) & -(x)))",
    "__threadfence": "#define __threadfence() mem_fence(CLK_GLOBAL_MEM_FENCE)",
    "__threadfence_block": "#define __threadfence_block() mem_fence(CLK_LOCAL_MEM_FENCE)",
}
_WORD = re.compile(r"[A-Za-z_]\w*")
_MEMBER = re.compile(r"\b(threadIdx|blockIdx|blockDim|gridDim)\s*\.\s*([xyz])\b")
_MAKE = re.compile(r"\bmake_((?:float|double|int|uint|char|uchar|short|ushort)[234])\b")
_FUNCTION_CAST = re.compile(
    r"(?<![\w(] )(?<![\w(])\b(float|double|int|uint|unsigned|long|char|bool)\s*\((?!\s*\))"
)
_TYPES = (
    (re.compile(r"\bunsigned\s+long(\s+long)?(\s+int)?\b"), "ulong"),
    (re.compile(r"\blong\s+long(\s+unsigned)(\s+int)?\b"), "ulong"),
    (re.compile(r"\blong\s+long(\s+int)?\b"), "long"),
    (re.compile(r"\bunsigned\s+(int|char|short)\b"), r"u\1"),
    (re.compile(r"\bunsigned\b(?!\s*\()"), "uint"),
    (re.compile(r"\bstd\s*::\s*"), ""),
    (re.compile(r"(?<![\w.])::(?=\w)"), ""),
    (re.compile(r"\b(__forceinline__|__noinline__|__device__|__host__|inline|static)\b[ \t]*"), ""),
    (re.compile(r"__launch_bounds__\s*\([^)]*\)\s*"), ""),
    (re.compile(r"\b(__restrict__|__restrict)\b"), "restrict"),
    (re.compile(r"\bconstexpr\b"), "const"),
)

_ATOMICS: Mapping[str, str] = {
    "atomicAdd": "old + value",
    "atomicSub": "old - value",
    "atomicMax": "fmax(old, value)",
    "atomicMin": "fmin(old, value)",
    "atomicExch": "value",
}
_OF_INTEGERS: Mapping[str, str] = {
    "atomicAdd": "atomic_add",
    "atomicSub": "atomic_sub",
    "atomicMax": "atomic_max",
    "atomicMin": "atomic_min",
    "atomicAnd": "atomic_and",
    "atomicOr": "atomic_or",
    "atomicXor": "atomic_xor",
    "atomicExch": "atomic_xchg",
    "atomicCAS": "atomic_cmpxchg",
}
ATOMICS = frozenset(_OF_INTEGERS)
_LOOP = """static float {name}(volatile __{space} float* at, float value) {{
    union {{ float number; uint bits; }} before, after;
    do {{
        before.number = *at;
        const float old = before.number;
        after.number = {result};
    }} while (atomic_cmpxchg((volatile __{space} uint*)at, before.bits, after.bits) != before.bits);
    return before.number;
}}
"""


def respelled(text: str) -> str:
    """Types, members of shapes and functions by OpenCL's names."""
    for pattern, replacement in _TYPES:
        text = pattern.sub(replacement, text)
    text = _MEMBER.sub(lambda m: f"(uint){_INDEX[m[1]]}({'xyz'.index(m[2])})", text)
    text = _MAKE.sub(r"(\1)", text)
    text = _FUNCTION_CAST.sub(r"(\1)(", text)
    return _WORD.sub(lambda word: _OTHERS.get(word[0], word[0]), text)


def macros(text: str) -> list[str]:
    """The definitions of the names in the text that OpenCL does not have."""
    words = set(_WORD.findall(text))
    return [define for name, define in _MACROS.items() if name in words] + [
        _single(name) for name in _SINGLE if f"{name}f" in words
    ]


def _single(name: str) -> str:
    """OpenCL's own is ambiguous for a whole number, which C makes a float."""
    count = 3 if name == "fma" else 2 if name in _OF_TWO else 1
    given = "xyz"[:count]
    parameters = ", ".join(f"float {letter}" for letter in given)
    return f"static float {name}f({parameters}) {{ return {name}({', '.join(given)}); }}"


def atomic(name: str, type_: str, space: str) -> tuple[str, str] | None:
    """The function for it, and its text where it is none of OpenCL's; None for other types."""
    if type_ in ("int", "unsigned", "unsigned int", "uint", "uint32_t", "int32_t"):
        return _OF_INTEGERS[name], ""
    if type_ != "float" or name not in _ATOMICS:
        return None
    words = re.sub("([A-Z])", r"_\1", name).lower()
    called = f"{words}_{space}_float"
    return called, _LOOP.format(name=called, space=space, result=_ATOMICS[name])
