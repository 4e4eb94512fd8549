"""Values of constant integer expressions, such as array sizes and launch arguments."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from functools import lru_cache

#: A greater value is nothing's size, and products of such values would not come to an end.
MOST = 1 << 128

#: Bytes of the types whose size is the same everywhere.
SIZES = {
    **dict.fromkeys(["char", "bool", "int8_t", "uint8_t", "uchar", "unsigned char"], 1),
    **dict.fromkeys(["__nv_fp8_e4m3", "__nv_fp8_e5m2", "signed char"], 1),
    **dict.fromkeys(["short", "half", "__half", "int16_t", "uint16_t", "ushort"], 2),
    **dict.fromkeys(["unsigned short", "__nv_bfloat16", "nv_bfloat16", "__hip_bfloat16"], 2),
    **dict.fromkeys(["int", "unsigned", "unsigned int", "float", "int32_t", "uint32_t"], 4),
    **dict.fromkeys(["uint", "half2", "__half2", "__nv_bfloat162", "char4", "uchar4"], 4),
    **dict.fromkeys(["double", "long long", "unsigned long long", "int64_t", "uint64_t"], 8),
    **dict.fromkeys(["float2", "int2", "uint2", "size_t", "long", "unsigned long"], 8),
    **dict.fromkeys(["float4", "int4", "uint4", "double2"], 16),
}
_SIZEOF = re.compile(r"\bsizeof\s*+\(\s*+((?:const\s++)?\w++(?: ++\w++)*+)\s*+\)")
_CAST = re.compile(r"\(\s*(?:size_t|int|unsigned|unsigned int|u?int\d+_t)\s*\)|static_cast<[\w ]+>")
_SUFFIX = re.compile(r"\b(0[xX][0-9a-fA-F]+|\d+)(?:[uUlL]+|'(?=\d))")
_NAME = re.compile(r"(?<!\w)[A-Za-z_]\w*")
_PLAIN = re.compile(r"[\w\s+\-*/%()<>&|~^]+")
_DEEPEST = 8


def integer(expression: str, names: Mapping[str, str]) -> int | None:
    """The value with ``names`` put in; None for what is not a constant."""
    text = expression
    for _ in range(_DEEPEST):
        text = _CAST.sub("", _SIZEOF.sub(lambda m: str(SIZES.get(m[1], m[0])), text))
        if not _PLAIN.fullmatch(text):
            return None
        text = _SUFFIX.sub(r"\1", text)
        if not _NAME.search(text):
            return _value(text)
        if len(text) > 400 or any(name not in names for name in _NAME.findall(text)):
            return None
        text = _NAME.sub(lambda m: f"({names[m[0]]})", text)
    return None


@lru_cache(maxsize=4096)
def _value(text: str) -> int | None:
    octal = re.sub(r"\b0(\d+)\b", r"0o\1", text.strip())
    try:
        return _evaluated(ast.parse(octal, mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError, ArithmeticError):
        return None


def _evaluated(node: ast.expr) -> int | None:
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            inner = _evaluated(operand)
            return None if inner is None else -inner
        case ast.BinOp(left=left, op=op, right=right):
            first, second = _evaluated(left), _evaluated(right)
            if first is None or second is None:
                return None
            made = _combined(first, op, second)
            return made if made is None or abs(made) <= MOST else None
        case _:
            return None


def _combined(first: int, op: ast.operator, second: int) -> int | None:
    match op:
        case ast.Add():
            return first + second
        case ast.Sub():
            return first - second
        case ast.Mult():
            return first * second
        case ast.Div() | ast.FloorDiv():
            return abs(first) // abs(second) * (1 if (first < 0) == (second < 0) else -1)
        case ast.Mod():
            return first % second
        case ast.LShift() if 0 <= second < 64:
            return first << second
        case ast.RShift() if 0 <= second < 64:
            return first >> second
        case ast.BitAnd():
            return first & second
        case ast.BitOr():
            return first | second
        case _:
            return None
