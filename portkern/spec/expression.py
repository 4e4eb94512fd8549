"""Arithmetic over the names of axes, as a person writes it and as a tracer finds it:
``h + kh - 1``, ``features % 8 == 0``, ``2*m*n*k``. Nothing else can be said, so nothing else runs.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from portkern.errors import ConfigError

Number = int | float

#: A longer text is not an expression that anybody reads, and a deeper one ends Python's stack.
MOST_CHARACTERS, MOST_LEVELS = 20_000, 400
#: ``2 ** 10 ** 9`` would not come to an end.
_MOST_EXPONENT = 16

#: A greater number is nothing's size, and what is made of such numbers would not come to an end.
MOST = 1 << 128


def bounded(value: Number) -> Number:
    """Raises OverflowError for what is greater than anything that is counted."""
    if not -MOST <= value <= MOST:
        raise OverflowError("a number in it is too large")
    return value


_BINARY: Mapping[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    ast.Pow: lambda base, exponent: base**exponent,
}
_COMPARED: Mapping[type[ast.cmpop], Callable[[Number, Number], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_CALLED: Mapping[str, Callable[..., Number]] = {"max": max, "min": min}


@dataclass(frozen=True)
class Expression:
    """An expression, given as text; raises ConfigError for what is not arithmetic over names."""

    text: str

    def __post_init__(self) -> None:
        try:
            if len(self.text) > MOST_CHARACTERS:
                raise ValueError(f"it has {len(self.text)} characters")
            _check(self._tree, 0)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            short = self.text if len(self.text) <= 60 else f"{self.text[:57]}..."
            raise ConfigError(
                f"Got {short!r}, expected arithmetic over axes such as 'h + kh - 1' "
                f"({getattr(error, 'msg', error)})"
            ) from None

    @cached_property
    def _tree(self) -> ast.expr:
        return ast.parse(self.text.strip(), mode="eval").body

    @cached_property
    def names(self) -> frozenset[str]:
        called = {id(node.func) for node in ast.walk(self._tree) if isinstance(node, ast.Call)}
        return frozenset(
            node.id
            for node in ast.walk(self._tree)
            if isinstance(node, ast.Name) and id(node) not in called
        )

    def __call__(self, values: Mapping[str, Number]) -> Number:
        """Raises ConfigError for a name without a value and for a division by zero."""
        try:
            return _value(self._tree, values)
        except KeyError as error:
            raise ConfigError(f"{self.text!r} names {error}, which is not an axis") from None
        except (ZeroDivisionError, OverflowError, TypeError) as error:
            raise ConfigError(f"{self.text!r} has no value: {error}") from None

    def holds(self, values: Mapping[str, Number]) -> bool:
        """Whether the expression holds as a condition; one without a value does not."""
        try:
            return bool(self(values))
        except ConfigError:
            return False

    def __str__(self) -> str:
        return self.text


def _check(node: ast.expr, level: int) -> None:
    if level > MOST_LEVELS:
        raise ValueError("it is too deep")
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return
        case ast.Name():
            return
        case ast.UnaryOp(op=ast.USub() | ast.Not(), operand=inner):
            parts = [inner]
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _BINARY:
            if isinstance(sign, ast.Pow) and not (
                isinstance(right, ast.Constant)
                and isinstance(right.value, int)
                and 0 <= right.value <= _MOST_EXPONENT
            ):
                raise ValueError(f"an exponent is a number up to {_MOST_EXPONENT}")
            parts = [left, right]
        case ast.BoolOp(values=values):
            parts = values
        case ast.Compare(left=left, comparators=[right], ops=[sign]) if type(sign) in _COMPARED:
            parts = [left, right]
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _CALLED:
            parts = arguments
        case _:
            raise ValueError(f"{ast.unparse(node)[:40]!r} is none")
    for part in parts:
        _check(part, level + 1)


def _value(node: ast.expr, values: Mapping[str, Number]) -> Number:
    match node:
        case ast.Constant(value=int() | float() as value):
            return bounded(value)
        case ast.Name(id=name):
            return values[name]
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -_value(inner, values)
        case ast.UnaryOp(operand=inner):
            return not _value(inner, values)
        case ast.BinOp(left=left, op=sign, right=right):
            return bounded(_BINARY[type(sign)](_value(left, values), _value(right, values)))
        case ast.BoolOp(op=ast.And(), values=parts):
            return all(_value(part, values) for part in parts)
        case ast.BoolOp(values=parts):
            return any(_value(part, values) for part in parts)
        case ast.Compare(left=left, ops=[sign], comparators=[right]):
            return _COMPARED[type(sign)](_value(left, values), _value(right, values))
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return _CALLED[name](*(_value(part, values) for part in arguments))
    raise TypeError(ast.unparse(node))
