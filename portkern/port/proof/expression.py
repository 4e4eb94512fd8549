"""Integer expressions of C++ as far as sizes of launches need them."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping

from portkern.port.proof.recording import Size

#: How often a name may lead to another.
_DEPTH = 8
_SIZES = {"char": 1, "bool": 1, "half": 2, "__half": 2, "double": 8, "size_t": 8}
_CAST = re.compile(r"\((?:unsigned|int|unsigned int|size_t|long|long long|float|double)\)")
_STATIC_CAST = re.compile(r"\b(?:static_cast|reinterpret_cast)\s*<[^<>]*>")
_SUFFIX = re.compile(r"\b(0[xX][0-9a-fA-F]+|\d+)[uUlL]+\b")
_FLOAT_SUFFIX = re.compile(r"\b(\d+\.\d*)[fF]\b")
_SIZEOF = re.compile(r"\bsizeof\s*\(\s*([\w: ]+?)\s*\)")
_UP = re.compile(
    r"(ceil_?div|div_?up|cdiv|divup|div_round_up|idiv|divide_?up|i_div_up)", re.IGNORECASE
)
_NAMED = re.compile(
    r"\b(?:int|unsigned|unsigned int|size_t|long|auto|uint32_t|int32_t|int64_t|uint64_t|uint|"
    r"dim3)\s+(\w+)\s*(?:=\s*([^;{}]+?)|\(([^;{}]*)\)|\{([^;{}]*)\})\s*;"
)
_DEFINED = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+(.+?)[ \t]*(?://.*)?$", re.MULTILINE)


class Names:
    """What names stand for: ``given`` values, then what the text before an offset declares last,
    then its macros."""

    def __init__(self, text: str, given: Mapping[str, int]) -> None:
        self.given = dict(given)
        self._macros = {m[1]: m[2] for m in _DEFINED.finditer(text)}
        self._declared = [
            (m.start(), m[1], m[2] or m[3] or m[4] or "") for m in _NAMED.finditer(text)
        ]

    def before(self, offset: int) -> Mapping[str, str]:
        """A later declaration hides an earlier one."""
        names = dict(self._macros)
        names.update({name: text for begin, name, text in self._declared if begin < offset})
        return names

    def value(self, expression: str, offset: int) -> int | None:
        """None where a part of it is not known."""
        return self._value(expression, self.before(offset), _DEPTH)

    def shape(self, expression: str, offset: int) -> Size | None:
        """Of a ``dim3`` or a number."""
        return self._shape(expression, self.before(offset))

    def _shape(self, expression: str, known: Mapping[str, str]) -> Size | None:
        text = expression.strip()
        for _ in range(_DEPTH):
            if text not in known or text in self.given:
                break
            text = known[text].strip()
        text = re.sub(r"^(?:::)?dim3\s*(?=[({])", "", text)
        whole = text[1:-1] if text[:1] in "({" and text[-1:] in ")}" else text
        parts = [self._value(part, known, _DEPTH) for part in split(whole)]
        if not 1 <= len(parts) <= 3 or any(part is None or part <= 0 for part in parts):
            return None
        x, y, z = [*(part or 1 for part in parts), 1, 1][:3]
        return x, y, z

    def free(self, expression: str) -> list[str]:
        """Names in it that no macro gives a value, in their order."""
        names = re.findall(r"(?<![\w.])[A-Za-z_]\w*(?!\s*[\w(<])", _SIZEOF.sub("1", expression))
        return [name for name in dict.fromkeys(names) if name not in self._macros]

    def _value(self, expression: str, known: Mapping[str, str], depth: int) -> int | None:
        if depth == 0:
            return None
        text = _SIZEOF.sub(lambda m: str(_SIZES.get(m[1], 4)), expression)
        text = _STATIC_CAST.sub("", _CAST.sub("", text))
        text = _FLOAT_SUFFIX.sub(r"\1", _SUFFIX.sub(r"\1", text))
        text = text.replace("std::", "").replace("&&", " and ").replace("||", " or ")
        try:
            tree = ast.parse(text.strip(), mode="eval")
            number = self._evaluate(tree.body, known, depth)
        except (SyntaxError, ValueError, ZeroDivisionError, OverflowError, RecursionError):
            return None
        return None if number is None else int(number)

    def _evaluate(self, node: ast.expr, known: Mapping[str, str], depth: int) -> float | None:
        match node:
            case ast.Constant(value=int() | float() as value):
                return value
            case ast.Name(id=name):
                if name in self.given:
                    return self.given[name]
                return self._value(known[name], known, depth - 1) if name in known else None
            case ast.BinOp(left=left, op=op, right=right):
                a, b = (self._evaluate(part, known, depth) for part in (left, right))
                return None if a is None or b is None else _binary(op, a, b)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                inner = self._evaluate(operand, known, depth)
                return None if inner is None else -inner
            case ast.Attribute(value=ast.Name(id=name), attr="x" | "y" | "z" as axis):
                shape = self._shape(name, known)
                return shape["xyz".index(axis)] if shape else None
            case ast.Call(func=ast.Name(id=name), args=arguments):
                values = [self._evaluate(part, known, depth) for part in arguments]
                return _call(name, [v for v in values if v is not None], len(values))
            case ast.Tuple(elts=[only]):
                return self._evaluate(only, known, depth)
        return None


def _binary(op: ast.operator, a: float, b: float) -> float | None:
    whole = isinstance(a, int) and isinstance(b, int)
    operators: Mapping[type[ast.operator], Callable[[], float]] = {
        ast.Add: lambda: a + b,
        ast.Sub: lambda: a - b,
        ast.Mult: lambda: a * b,
        ast.Div: lambda: a // b if whole else a / b,
        ast.Mod: lambda: a % b,
        ast.LShift: lambda: int(a) << min(int(b), 63),
        ast.RShift: lambda: int(a) >> int(b),
        ast.BitAnd: lambda: int(a) & int(b),
        ast.BitOr: lambda: int(a) | int(b),
    }
    chosen = operators.get(type(op))
    return chosen() if chosen else None


def _call(name: str, values: list[float], expected: int) -> float | None:
    if len(values) != expected or not values:
        return None
    if len(values) == 2 and _UP.fullmatch(name):
        return -(-values[0] // values[1])
    if name in ("min", "max") and len(values) == 2:
        return min(values) if name == "min" else max(values)
    if name in ("ceil", "ceilf") and len(values) == 1:
        return -int(-values[0] // 1)
    return values[0] if name in ("int", "size_t", "unsigned") and len(values) == 1 else None


def split(text: str) -> list[str]:
    """At commas outside parentheses."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]
