"""Lengths as C expressions over the axes that a kernel is called with."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sympy

from portkern.worker.lowering.body import Body, Index, LoweredValue
from portkern.worker.tracing import symbols

_SIGNS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "/", ast.Div: "/", ast.Mod: "%"}
#: Where the dividend may be negative: C's own round to zero, Python's and the graph's to -infinity.
_FLOORED = {
    ast.FloorDiv: "({a} >= 0 ? {a} / {b} : -(({b} - 1 - {a}) / {b}))",
    ast.Mod: "(({a} % {b} + {b}) % {b})",
}


@dataclass(frozen=True)
class Lengths:
    """``names``: of symbols, axes and the numbers that a kernel is called with; ``known``: what
    stands in the place of other symbols."""

    names: Mapping[sympy.Symbol, str]
    known: Mapping[sympy.Symbol, sympy.Expr]

    def of(self, length: object) -> sympy.Expr:
        """The expression of a length, be it an int or a symbolic number."""
        return symbols.size_of(length).xreplace(dict(self.known))

    def text(self, value: sympy.Expr) -> str:
        """Raises ConfigError for what is not arithmetic over axes."""
        if isinstance(value, sympy.Integer):
            return str(int(value)) if value >= 0 else f"({int(value)})"
        written = symbols.text(sympy.expand(value), self.names)
        made = _c(ast.parse(written, mode="eval").body)
        return made

    def number(self, value: sympy.Expr) -> str:
        """The text of a number that is computed from lengths, as a double. Raises ConfigError."""
        parts = [self.number(part) for part in value.args]
        match type(value).__name__:
            case "ToFloat":
                return parts[0]
            case "FloatTrueDiv" | "IntTrueDiv":
                return f"({parts[0]} / {parts[1]})"
            case "OpaqueUnaryFn_sqrt":
                return f"sqrt({parts[0]})"
            case "FloatPow" | "Pow":
                plain = {"-1": "(1 / {})", "1/2": "sqrt({})", "-1/2": "(1 / sqrt({}))"}
                return plain.get(str(value.args[1]), f"pow({{}}, {parts[1]})").format(parts[0])
            case "Mul" | "Add" as kind:
                return f"({(' * ' if kind == 'Mul' else ' + ').join(parts)})"
        if value.is_number:
            return repr(float(value))
        return f"(double){self.text(value)}"

    def count(self, shape: Sequence[sympy.Expr]) -> str:
        return self.text(sympy.Mul(*shape))

    def flat(self, body: Body, index: Index, shape: Sequence[sympy.Expr]) -> str:
        """The place of an element in a contiguous tensor."""
        place = "0"
        for counter, length in zip(index, shape, strict=True):
            if length == 1:
                continue
            at = self.text(length)
            place = counter if place == "0" else f"{place} * {at} + {counter}"
            place = body.let("int64_t", place)
        return place

    def split(self, body: Body, place: str, shape: Sequence[sympy.Expr]) -> Index:
        """The index of the element at a place."""
        index: list[str] = []
        left = [n for n, length in enumerate(shape) if length != 1]
        for n in reversed(range(len(shape))):
            if shape[n] == 1:
                index.append("0")
            elif n == left[0]:
                index.append(place)
            else:
                length = self.text(shape[n])
                index.append(body.let("int64_t", f"{place} % {length}"))
                place = body.let("int64_t", f"{place} / {length}")
        return tuple(reversed(index))

    def reshaped(self, value: LoweredValue, shape: Sequence[sympy.Expr]) -> LoweredValue:
        """Contiguous, as ``view`` sees it. Axes that stay are not divided."""
        old, new = list(value.shape), list(shape)
        first = 0
        while first < min(len(old), len(new)) and old[first] == new[first]:
            first += 1
        last = 0
        while last < min(len(old), len(new)) - first and old[-1 - last] == new[-1 - last]:
            last += 1
        inner_old, inner_new = old[first : len(old) - last], new[first : len(new) - last]

        def load(body: Body, index: Index) -> str:
            middle = index[first : len(new) - last]
            place = self.flat(body, middle, inner_new)
            inner = self.split(body, place, inner_old)
            return value.at(body, (*index[:first], *inner, *index[len(new) - last :]))

        return LoweredValue(tuple(shape), value.kind, load, value.cost)


def _c(node: ast.expr) -> str:
    match node:
        case ast.Name():
            return node.id
        case ast.Constant():
            return str(int(node.value))  # type: ignore[arg-type]
        case ast.UnaryOp(op=ast.USub()):
            return f"(-{_c(node.operand)})"
        case ast.BinOp(op=ast.Pow(), right=ast.Constant(value=int(exponent))):
            return "(" + " * ".join([_c(node.left)] * exponent) + ")"
        case ast.BinOp(op=ast.FloorDiv() | ast.Mod()) if not _never_negative(node.left):
            return _FLOORED[type(node.op)].format(a=_c(node.left), b=_c(node.right))
        case ast.BinOp():
            return f"({_c(node.left)} {_SIGNS[type(node.op)]} {_c(node.right)})"
        case ast.Call(func=ast.Name(id="max" | "min" as which), args=args):
            made = _c(args[0])
            for other in map(_c, args[1:]):
                sign = ">" if which == "max" else "<"
                made = f"({made} {sign} {other} ? {made} : {other})"
            return made
    raise ValueError(ast.dump(node))


def _never_negative(node: ast.expr) -> bool:
    """Whether a length is certainly not negative, given that no axis is."""
    match node:
        case ast.Name():
            return True
        case ast.Constant(value=int(value)):
            return value >= 0
        case ast.BinOp(op=ast.Sub()):
            return False
        case ast.BinOp():
            return _never_negative(node.left) and _never_negative(node.right)
        case ast.Call(func=ast.Name(id="max"), args=args):
            return any(map(_never_negative, args))
        case ast.Call(args=args):
            return all(map(_never_negative, args))
    return False
