"""Values of a Python source's expressions, as far as constants alone decide them."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from itertools import islice, product

from portkern.spec.expression import MOST

MOST_CONFIGS = 64
_MOST_VALUES = 20_000
_BINARY: Mapping[type[ast.operator], Callable[[object, object], object]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
}
_COMPARE: Mapping[type[ast.cmpop], Callable[[object, object], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,  # type: ignore[dict-item]
    ast.LtE: operator.le,  # type: ignore[dict-item]
    ast.Gt: operator.gt,  # type: ignore[dict-item]
    ast.GtE: operator.ge,  # type: ignore[dict-item]
    ast.In: lambda a, b: operator.contains(b, a),  # type: ignore[arg-type]
    ast.NotIn: lambda a, b: not operator.contains(b, a),  # type: ignore[arg-type]
}


class Unknown(Exception):
    """Raised when an expression needs something that is not in the source."""

    def __init__(self, node: ast.AST, what: str = "") -> None:
        super().__init__(what or f"{ast.unparse(node)[:60]!r}, which only a run knows")
        self.line = getattr(node, "lineno", 0)


def _bounded(node: ast.AST, value: object) -> object:
    """Raises Unknown for a number or a list that only an attacker means."""
    if isinstance(value, int) and abs(value) > MOST:
        raise Unknown(node, "a number that is too large")
    if isinstance(value, str | list | tuple) and len(value) > _MOST_VALUES:
        raise Unknown(node, "a value that is too long")
    return value


class Constants:
    """Names of a module that have one value, and its functions without parameters that return
    a constant, which is how libraries list their configurations."""

    def __init__(self, module: ast.Module) -> None:
        self._names: dict[str, ast.expr] = {}
        self._functions = {n.name: n for n in module.body if isinstance(n, ast.FunctionDef)}
        self._left = _MOST_VALUES
        for node in module.body:
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=given):
                    self._names[name] = given
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as given):
                    self._names[name] = given

    def value(self, node: ast.expr, local: Mapping[str, object] | None = None) -> object:
        """A ``triton.Config`` is a mapping. Raises Unknown."""
        self._left = _MOST_VALUES
        return self._value(node, dict(local or {}), 0)

    def _value(self, node: ast.expr, local: Mapping[str, object], depth: int) -> object:
        self._left -= 1
        if self._left < 0 or depth > 60:
            raise Unknown(node, "more values than are evaluated here")
        method = getattr(self, f"_{type(node).__name__}", None)
        if method is None:
            raise Unknown(node)
        try:
            return method(node, local, depth + 1)
        except (TypeError, ValueError, ArithmeticError, KeyError, IndexError) as error:
            raise Unknown(node, f"{ast.unparse(node)[:60]!r}: {error}") from error

    def _Constant(self, node: ast.Constant, _l: Mapping[str, object], _d: int) -> object:
        return node.value

    def _Name(self, node: ast.Name, local: Mapping[str, object], depth: int) -> object:
        if node.id in local:
            return local[node.id]
        if node.id not in self._names:
            raise Unknown(node, f"{node.id!r}, which is not a constant of the file")
        return self._value(self._names[node.id], {}, depth)

    def _elements(self, node: ast.List | ast.Tuple, local: Mapping[str, object], d: int) -> object:
        parts: list[object] = []
        for part in node.elts:
            if isinstance(part, ast.Starred):
                parts += self._listed(part.value, local, d)
            else:
                parts.append(self._value(part, local, d))
        return parts

    _List = _Tuple = _elements

    def _Dict(self, node: ast.Dict, local: Mapping[str, object], d: int) -> object:
        values: dict[object, object] = {}
        for key, given in zip(node.keys, node.values, strict=True):
            value = self._value(given, local, d)
            if key is None:
                if not isinstance(value, Mapping):
                    raise Unknown(node)
                values.update(value)
            else:
                values[self._value(key, local, d)] = value
        return values

    def _BinOp(self, node: ast.BinOp, local: Mapping[str, object], d: int) -> object:
        left, right = self._value(node.left, local, d), self._value(node.right, local, d)
        if isinstance(node.op, ast.Pow) and isinstance(left, int) and isinstance(right, int):
            if 0 <= right <= 64 and abs(left) <= MOST:
                return _bounded(node, left**right)
        if type(node.op) not in _BINARY or (isinstance(left, str) and not isinstance(right, str)):
            raise Unknown(node)
        if isinstance(node.op, ast.Mult) and not (_number(left) and _number(right)):
            raise Unknown(node)
        return _bounded(node, _BINARY[type(node.op)](left, right))

    def _UnaryOp(self, node: ast.UnaryOp, local: Mapping[str, object], d: int) -> object:
        value = self._value(node.operand, local, d)
        if isinstance(node.op, ast.Not):
            return not value
        if isinstance(node.op, ast.USub) and isinstance(value, int | float):
            return -value
        raise Unknown(node)

    def _BoolOp(self, node: ast.BoolOp, local: Mapping[str, object], d: int) -> object:
        value: object = None
        for part in node.values:
            value = self._value(part, local, d)
            if bool(value) == isinstance(node.op, ast.Or):
                break
        return value

    def _Compare(self, node: ast.Compare, local: Mapping[str, object], d: int) -> object:
        left = self._value(node.left, local, d)
        for kind, given in zip(node.ops, node.comparators, strict=True):
            right = self._value(given, local, d)
            if type(kind) not in _COMPARE:
                raise Unknown(node)
            if not _COMPARE[type(kind)](left, right):
                return False
            left = right
        return True

    def _IfExp(self, node: ast.IfExp, local: Mapping[str, object], d: int) -> object:
        chosen = node.body if self._value(node.test, local, d) else node.orelse
        return self._value(chosen, local, d)

    def _Subscript(self, node: ast.Subscript, local: Mapping[str, object], d: int) -> object:
        value, key = self._value(node.value, local, d), self._value(node.slice, local, d)
        if isinstance(value, Mapping):
            return value[key]
        if isinstance(value, list) and isinstance(key, int):
            return value[key]
        raise Unknown(node)

    def _ListComp(self, node: ast.ListComp, local: Mapping[str, object], d: int) -> object:
        scopes: list[dict[str, object]] = [dict(local)]
        for loop in node.generators:
            wider: list[dict[str, object]] = []
            for scope in scopes:
                for value in self._listed(loop.iter, scope, d):
                    inner = scope | _bound(loop.target, value)
                    if all(self._value(test, inner, d) for test in loop.ifs):
                        wider.append(inner)
            scopes = wider
        return [self._value(node.elt, scope, d) for scope in scopes]

    _GeneratorExp = _ListComp

    def _Call(self, node: ast.Call, local: Mapping[str, object], d: int) -> object:
        name = ast.unparse(node.func).rpartition(".")[2]
        if name == "Config":
            return self._config(node, local, d)
        if name in ("list", "tuple", "sorted") and len(node.args) == 1:
            return self._listed(node.args[0], local, d)
        numbers = [self._value(a, local, d) for a in node.args]
        whole = [n for n in numbers if isinstance(n, int)]
        plain = [n for n in numbers if isinstance(n, int | float)]
        lists = [n for n in numbers if isinstance(n, list)]
        if name == "range" and 0 < len(whole) == len(numbers) <= 3:
            return list(range(*whole)[:_MOST_VALUES])
        if name in ("min", "max") and 0 < len(plain) == len(numbers):
            return min(plain) if name == "min" else max(plain)
        if name == "product" and len(lists) == len(numbers):
            return [list(row) for row in islice(product(*lists), _MOST_VALUES)]
        function = self._functions.get(name)
        if function is not None and not node.args and not node.keywords:
            return self._returned(function, d)
        raise Unknown(node)

    def _config(self, node: ast.Call, local: Mapping[str, object], d: int) -> object:
        values: dict[object, object] = {}
        for part in [*node.args, *(k.value for k in node.keywords if k.arg in ("kwargs", None))]:
            given = self._value(part, local, d)
            if isinstance(given, Mapping):
                values |= given
        for keyword in node.keywords:
            if keyword.arg not in ("kwargs", None, "pre_hook"):
                values[keyword.arg] = self._value(keyword.value, local, d)
        return values

    def _returned(self, function: ast.FunctionDef, d: int) -> object:
        body = [n for n in function.body if not isinstance(n, ast.Expr)]
        local: dict[str, object] = {}
        for node in body:
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=given):
                    local[name] = self._value(given, local, d)
                case ast.Return(value=ast.expr() as given):
                    return self._value(given, local, d)
                case _:
                    raise Unknown(node, f"a run of {function.name}()")
        raise Unknown(function, f"a run of {function.name}()")

    def _listed(self, node: ast.expr, local: Mapping[str, object], d: int) -> list[object]:
        value = self._value(node, local, d)
        if not isinstance(value, list):
            raise Unknown(node)
        return value


def _bound(target: ast.expr, value: object) -> dict[str, object]:
    if isinstance(target, ast.Name):
        return {target.id: value}
    if isinstance(target, ast.Tuple) and isinstance(value, list):
        names = [part.id for part in target.elts if isinstance(part, ast.Name)]
        return dict(zip(names, value, strict=True))
    raise Unknown(target)


def _number(value: object) -> bool:
    return isinstance(value, int | float)
