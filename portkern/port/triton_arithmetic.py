"""Whole numbers that the Python code which launches a Triton kernel computes: by operators, by
comparisons, and by functions that have known names."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

#: The most bits of a number that a launch is made of.
MOST_BITS = 64
IS_TILES = re.compile(r"^(ceil_?div|cdiv)$", re.IGNORECASE)
#: The modules whose functions have the names that are known.
_MODULES = frozenset(["triton", "tl", "language", "math"])


def operated(op: ast.operator, values: Sequence[int]) -> int | None:
    """The whole number that Python computes; None for what is not computed here, as for others."""
    match op, values:
        case ast.Add(), [a, b]:
            return a + b
        case ast.Sub(), [a, b]:
            return a - b
        case ast.Mult(), [a, b]:
            return a * b
        case ast.FloorDiv(), [a, b] if b:
            return a // b
        case ast.Mod(), [a, b] if b:
            return a % b
        case ast.BitAnd(), [a, b]:
            return a & b
        case ast.BitOr(), [a, b]:
            return a | b
        case ast.BitXor(), [a, b]:
            return a ^ b
        case ast.LShift(), [a, b] if 0 <= b <= MOST_BITS:
            return a << b
        case ast.RShift(), [a, b] if 0 <= b <= MOST_BITS:
            return a >> b
        case ast.Pow(), [a, b] if 0 <= b <= MOST_BITS:
            return int(a**b)
    return None


def signed(op: ast.unaryop, value: int | None) -> int | None:
    """The number with a sign, or with its bits inverted."""
    if value is None:
        return None
    return -value if isinstance(op, ast.USub) else ~value if isinstance(op, ast.Invert) else value


def compared(op: ast.cmpop, values: Sequence[int]) -> bool | None:
    """The answer of a comparison as Python gives it; None for an operator that no launch uses."""
    match op, values:
        case ast.Eq(), [a, b]:
            return a == b
        case ast.NotEq(), [a, b]:
            return a != b
        case ast.Lt(), [a, b]:
            return a < b
        case ast.LtE(), [a, b]:
            return a <= b
        case ast.Gt(), [a, b]:
            return a > b
        case ast.GtE(), [a, b]:
            return a >= b
    return None


def called(function: ast.expr, values: Sequence[int]) -> int | None:
    """The result of a function by its name; None for one that is not known."""
    name = last_name(function)
    if IS_TILES.match(name) and len(values) == 2 and values[1] > 0:
        return -(-values[0] // values[1])
    if name == "next_power_of_2" and len(values) == 1 and values[0] > 0:
        return 1 << (values[0] - 1).bit_length()
    if name in ("min", "max") and len(values) > 1:
        return min(values) if name == "min" else max(values)
    if name == "int" and len(values) == 1:
        return values[0]
    return None


def is_of_tiles(function: ast.expr) -> bool:
    """Whether it says how large a tile is, or how many there are."""
    name = last_name(function)
    return name == "next_power_of_2" or IS_TILES.match(name) is not None


def is_known(function: ast.expr) -> bool:
    """Whether it is a function that is known, not a method of the same name."""
    if not is_of_tiles(function) and last_name(function) not in ("min", "max", "int"):
        return False
    is_own = isinstance(function, ast.Attribute) and last_name(function.value) in _MODULES
    return is_own or isinstance(function, ast.Name)


def is_of_mathematics(function: ast.expr) -> bool:
    """Whether it makes numbers of numbers, which need not be whole."""
    match function:
        case ast.Name(id=name):
            return name in ("float", "int", "abs", "sqrt", "min", "max", "round")
        case ast.Attribute(value=ast.Name(id="math" | "np" | "numpy")):
            return True
    return False


def last_name(node: ast.expr) -> str:
    """The last part of a dotted name; an empty text for another expression."""
    return getattr(node, "attr", getattr(node, "id", ""))
