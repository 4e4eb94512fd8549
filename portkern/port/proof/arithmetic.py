"""Constant expressions of C++, as far as sizes of launches and arguments of templates need them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from portkern.cuda_source import syntax
from portkern.port.proof.element import element_of
from portkern.spec.expression import bounded

if TYPE_CHECKING:
    from tree_sitter import Node

#: What a name stands for, and what ``x``, ``y`` or ``z`` of one does; None where it is not known.
Named = Callable[[str], float | None]
Member = Callable[[str, str], float | None]
#: What a function of the source returns for these arguments.
Called = Callable[[str, Sequence[float]], float | None]

_UP = re.compile(
    r"(ceil_?div|div_?ceil|div_?up|cdiv|div_round_up|idiv|divide_?up|i_div_up)", re.IGNORECASE
)
_POINTER = 8
_CASTS = frozenset(["static_cast", "reinterpret_cast"])
_FLOATS = frozenset(["float", "double"])
_BINARY: Mapping[str, Callable[[float, float], float]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a // b if isinstance(a, int) and isinstance(b, int) else a / b,
    "%": lambda a, b: int(a) % int(b),
    "<<": lambda a, b: int(a) << min(int(b), 63),
    ">>": lambda a, b: int(a) >> int(b),
    "&": lambda a, b: int(a) & int(b),
    "|": lambda a, b: int(a) | int(b),
    "^": lambda a, b: int(a) ^ int(b),
    "<": lambda a, b: int(a < b),
    "<=": lambda a, b: int(a <= b),
    ">": lambda a, b: int(a > b),
    ">=": lambda a, b: int(a >= b),
    "==": lambda a, b: int(a == b),
    "!=": lambda a, b: int(a != b),
    "&&": lambda a, b: int(bool(a) and bool(b)),
    "||": lambda a, b: int(bool(a) or bool(b)),
}
_UNARY: Mapping[str, Callable[[float], float]] = {
    "-": lambda a: -a,
    "+": lambda a: a,
    "!": lambda a: int(not a),
    "~": lambda a: ~int(a),
}


def evaluate(
    expression: str, named: Named, member: Member, called: Called, types: Mapping[str, str]
) -> float | None:
    """The value of an expression; None for what is not one, and where a part of it is not known.
    ``types`` says what names of types stand for."""
    node = _parsed(expression.strip())
    if node is None:
        return None
    try:
        return _Evaluation(named, member, called, types).of(node)
    except (ValueError, ZeroDivisionError, OverflowError, RecursionError):
        return None


@lru_cache(maxsize=4096)
def _parsed(expression: str) -> Node | None:
    """The value of a variable that the expression initialises."""
    tree = syntax.parse(f"int _ = {expression};")
    node = next(tree.nodes("init_declarator"), None)
    return None if node is None or tree.root.has_error else node.child_by_field_name("value")


class _Evaluation:
    def __init__(
        self, named: Named, member: Member, called: Called, types: Mapping[str, str]
    ) -> None:
        self._named, self._member, self._called, self._types = named, member, called, types

    def of(self, node: Node | None) -> float | None:
        match node.type if node is not None else "":
            case "number_literal":
                return _number(_text(node))
            case "true" | "false" as word:
                return int(word == "true")
            case "identifier" | "qualified_identifier":
                return self._named(_text(node).rpartition("::")[2])
            case "parenthesized_expression":
                return self.of(node.named_children[0]) if node else None
            case "sizeof_expression":
                return _size_of(_text(node), self._types)
        return self._composed(node) if node is not None else None

    def _composed(self, node: Node) -> float | None:
        part = node.child_by_field_name
        match node.type:
            case "binary_expression":
                a, b = self.of(part("left")), self.of(part("right"))
                operator = _BINARY.get(_text(part("operator")))
                if operator is None or a is None or b is None:
                    return None
                return bounded(operator(a, b))
            case "unary_expression":
                a, sign = self.of(part("argument")), _UNARY.get(_text(part("operator")))
                return sign(a) if sign and a is not None else None
            case "conditional_expression":
                asked = self.of(part("condition"))
                chosen = "consequence" if asked else "alternative"
                return None if asked is None else self.of(part(chosen))
            case "cast_expression":
                return _cast(_text(part("type")), self.of(part("value")))
            case "field_expression":
                return self._member(_text(part("argument")), _text(part("field")))
            case "subscript_expression":
                return self.of(part("argument"))  # elements of one array are alike
            case "call_expression":
                return self._call(part("function"), part("arguments"))
        return None

    def _call(self, function: Node | None, arguments: Node | None) -> float | None:
        values = [self.of(node) for node in arguments.named_children] if arguments else []
        known = [value for value in values if value is not None]
        if function is None or len(known) != len(values):
            return None
        name = _text(function)
        if function.type == "template_function":
            name, _, type_ = name.partition("<")
            is_cast = name.strip() in _CASTS and len(known) == 1
            return _cast(type_.rstrip("> "), known[0]) if is_cast else None
        name = name.rpartition("::")[2]
        value = _called(name, known)
        return self._called(name, known) if value is None else value


def _called(name: str, values: Sequence[float]) -> float | None:
    if len(values) == 2 and _UP.fullmatch(name):
        return -(-values[0] // values[1])
    if name in ("min", "max") and len(values) == 2:
        return min(values) if name == "min" else max(values)
    if len(values) != 1:
        return None
    if name in ("ceil", "ceilf"):
        return -int(-values[0] // 1)
    return _cast(name, values[0]) if element_of(name, {}) else None


def _cast(type_: str, value: float | None) -> float | None:
    if value is None:
        return None
    return float(value) if type_.strip() in _FLOATS else int(value)


def _number(text: str) -> float | None:
    plain = text.replace("'", "").lower()
    if plain.startswith(("0x", "0b")) or re.fullmatch(r"\d+[ul]*", plain):
        return bounded(int(plain.rstrip("ul"), 0))
    return float(plain.rstrip("fl"))


def _size_of(text: str, types: Mapping[str, str]) -> int | None:
    spelled = text.removeprefix("sizeof").strip("() ")
    known = element_of(spelled, types)
    return known[0].size * known[1] if known else _POINTER if spelled.endswith("*") else None


def _text(node: Node | None) -> str:
    text = node.text if node is not None else None
    return text.decode("utf-8", "replace") if text is not None else ""
