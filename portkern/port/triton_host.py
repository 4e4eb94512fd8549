"""Expressions of the Python code that launches a Triton kernel, as far as its text decides them."""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from portkern.port.proof.guesses import is_of_launch, is_of_machine
from portkern.port.triton_infer import Constant

_DEPTH = 8
_MOST_NODES = 2000
_IS_TILES = re.compile(r"^(ceil_?div|cdiv)$", re.IGNORECASE)
#: Names of what a launch is made of, beside those of CUDA's.
_OF_TILES = re.compile(r"tile|chunk|split|program|stage|warp|^b[mnk]$", re.IGNORECASE)
#: Host code asks a tensor, or a list, how large it is.
_MEASURES = frozenset("numel nelement dim stride size element_size item ndimension".split())
_MEASURED = frozenset(["ndim", "shape"])
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef)


def calls_of(module: ast.Module, kernel: str) -> list[ast.Call]:
    """The calls ``kernel[grid](…)``."""
    return [
        node
        for node in ast.walk(module)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Subscript)
        and _last(node.func.value) == kernel
    ]


class Host:
    """The names around a launch that have one value, and the parameters of its function."""

    def __init__(self, module: ast.Module, call: ast.Call | None) -> None:
        own = [
            scope
            for scope in ast.walk(module)
            if isinstance(scope, _SCOPES) and any(node is call for node in ast.walk(scope))
        ]
        arguments = [node for scope in own for node in ast.walk(scope.args)]
        parameters = [node.arg for node in arguments if isinstance(node, ast.arg)]
        top = [n for n in module.body if not isinstance(n, (*_SCOPES, ast.ClassDef))]
        inner = _Bindings(ast.walk(own[0]) if own else (), parameters)
        outer = _Bindings(node for statement in top for node in ast.walk(statement))
        self._values = outer.values | inner.values
        self._lengths = outer.lengths | inner.lengths
        self._parameters = {name for name in parameters if self._values[name] is None}
        self._parameters -= inner.repeated

    def resolved(self, node: ast.expr) -> ast.expr:
        """The expression with names of one value replaced by it."""
        return _Resolving(self._values, self._lengths).of(node)

    def text(self, node: ast.expr) -> str:
        return ast.unparse(self.resolved(node))

    def is_measured(self, node: ast.expr) -> bool:
        """Whether it is a size of a tensor or of a list."""
        match self.resolved(node):
            case ast.Subscript(value=of):
                return _last(of) == "shape" or (isinstance(of, ast.Call) and self.is_measured(of))
            case ast.Call(func=ast.Attribute(attr=name)) if name in _MEASURES:
                return True
            case ast.Call(func=ast.Name(id="len")):
                return True
            case ast.Attribute(attr=name):
                return name in _MEASURED or is_of_machine(name)
        return False

    def is_leaf(self, node: ast.expr) -> bool:
        """Whether it is data's that may have any value: a size, or a parameter of the function
        that launches which is not called as what launches are made of."""
        node = self.resolved(node)
        if self.is_measured(node):
            return True
        name = _last(node)
        if not name or is_of_launch(name) or _OF_TILES.search(name):
            return False
        while isinstance(node, ast.Attribute):
            node = node.value
        return isinstance(node, ast.Name) and node.id in self._parameters

    def is_of_data(self, node: ast.expr) -> bool:
        """Whether it is computed from data alone."""
        node = self.resolved(node)
        if isinstance(node, ast.Constant) or self.is_leaf(node):
            return True
        parts = [part for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)]
        if isinstance(node, ast.Call):
            return False
        return bool(parts) and all(map(self.is_of_data, parts))

    def value(
        self,
        node: ast.expr,
        known: dict[str, int],
        settings: Mapping[str, Constant],
        any_: int,
        *,
        is_code: bool = False,
    ) -> int | None:
        """The number that an expression is for known values of expressions, by their text, and a
        configuration's settings; ``any_`` for what may have any value: of what chooses a kernel's
        code sizes of tensors alone."""
        is_any = self.is_measured if is_code else self.is_leaf
        return _Evaluating(is_any, known, settings, any_).of(self.resolved(node))


class _Evaluating:
    def __init__(
        self,
        is_any: Callable[[ast.expr], bool],
        known: dict[str, int],
        settings: Mapping[str, Constant],
        any_: int,
    ) -> None:
        self._is_any, self._known, self._settings, self._any = is_any, known, settings, any_

    def of(self, node: ast.expr) -> int | None:
        text = ast.unparse(node)
        if text in self._known:
            return self._known[text]
        match node:
            case ast.Constant(value=int() as number):
                return number
            case ast.Subscript(value=ast.Name(), slice=ast.Constant(value=str() as name)):
                value = self._settings.get(name)
                return value if isinstance(value, int) else None
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                value = self.of(operand)
                return None if value is None else -value
            case ast.BinOp(left=left, op=op, right=right):
                return _operated(op, self._all([left, right]))
            case ast.Compare(left=left, ops=[compared], comparators=[right]):
                return _compared(compared, self._all([left, right]))
        if self._is_any(node):
            return self._known.setdefault(text, self._any)
        if isinstance(node, ast.Call) and not node.keywords:
            return _called(node.func, self._all(node.args))
        return None

    def _all(self, nodes: Sequence[ast.expr]) -> list[int]:
        """Empty where one is not known."""
        values = [self.of(node) for node in nodes]
        whole = [value for value in values if value is not None]
        return whole if len(whole) == len(values) else []


class _Bindings:
    """The one value of each name; None where it has several, or one that no expression says.
    ``lengths`` are the numbers of what is unpacked from an expression, by its text."""

    def __init__(self, nodes: Iterable[ast.AST], parameters: Iterable[str] = ()) -> None:
        self.values: dict[str, ast.expr | None] = dict.fromkeys(parameters)
        self.lengths: dict[str, int] = {}
        self.repeated: set[str] = set()
        for node in nodes:
            for target, value in _bound(node):
                self._bind(target, value)

    def _bind(self, target: ast.AST, value: ast.expr | None) -> None:
        match target:
            case ast.Name(id=name):
                if name in self.values:
                    self.repeated.add(name)
                self.values[name] = None if name in self.values else value
            case ast.Tuple(elts=elts) | ast.List(elts=elts):
                is_plain = value is not None and not any(isinstance(e, ast.Starred) for e in elts)
                if is_plain and not isinstance(value, ast.Tuple) and value is not None:
                    self.lengths[ast.unparse(_shape(value))] = len(elts)
                for number, part in enumerate(elts):
                    self._bind(part, _item(value, number, len(elts)) if is_plain else None)
            case ast.Starred(value=inner):
                self._bind(inner, None)


def _item(value: ast.expr | None, number: int, count: int) -> ast.expr | None:
    if isinstance(value, ast.Tuple):
        return value.elts[number] if len(value.elts) == count else None
    return None if value is None else ast.Subscript(_shape(value), ast.Constant(number), ast.Load())


def _shape(node: ast.expr) -> ast.expr:
    """``x.shape`` of ``x.size()``."""
    match node:
        case ast.Call(func=ast.Attribute(value=tensor, attr="size"), args=[], keywords=[]):
            return ast.Attribute(tensor, "shape", ast.Load())
    return node


def _bound(node: ast.AST) -> Iterator[tuple[ast.AST, ast.expr | None]]:
    """The targets of a statement, each with its value."""
    match node:
        case ast.Assign(targets=targets, value=value):
            yield from ((target, value) for target in targets)
        case ast.AnnAssign(target=target, value=ast.expr() as value):
            yield target, value
        case ast.AugAssign() | ast.For() | ast.comprehension() | ast.NamedExpr():
            # A name that is counted has at least two values.
            yield from ((node.target, None), (node.target, None))
        case ast.withitem(optional_vars=ast.expr() as target):
            yield target, None
        case ast.Global(names=names) | ast.Nonlocal(names=names):
            yield from ((ast.Name(name, ast.Load()), None) for name in names for _ in range(2))
        case ast.FunctionDef(name=name):
            returned = [n.value for n in ast.walk(node) if isinstance(n, ast.Return) and n.value]
            is_one = len(returned) == 1 and len(node.args.args) <= 1
            yield ast.Name(name, ast.Load()), returned[0] if is_one else None


class _Resolving(ast.NodeTransformer):
    def __init__(self, values: Mapping[str, ast.expr | None], lengths: Mapping[str, int]) -> None:
        self._values, self._lengths = values, lengths
        self._depth, self._left = 0, _MOST_NODES

    def of(self, node: ast.expr) -> ast.expr:
        made = self.visit(copy.deepcopy(node))
        return made if isinstance(made, ast.expr) else node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        value = self._values.get(node.id)
        if value is None or self._depth >= _DEPTH or self._left <= 0:
            return node
        self._depth, self._left = self._depth + 1, self._left - 1
        made = self.of(value)
        self._depth -= 1
        return made

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        made = self.generic_visit(node)
        match made:
            case ast.Subscript(value=ast.Tuple(elts=elts), slice=ast.Constant(value=int() as at)):
                return elts[at] if 0 <= at < len(elts) else made
            case ast.Subscript(value=of, slice=ast.UnaryOp(ast.USub(), ast.Constant(value=back))):
                length = self._lengths.get(ast.unparse(of), 0)
                if isinstance(back, int) and length >= back:
                    return ast.Subscript(of, ast.Constant(length - back), ast.Load())
        return made if isinstance(made, ast.expr) else node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        made = self.generic_visit(node)
        match made:
            case ast.Call(func=ast.Attribute(value=tensor, attr="size"), args=[axis], keywords=[]):
                shape = ast.Attribute(tensor, "shape", ast.Load())
                return self.visit_Subscript(ast.Subscript(shape, axis, ast.Load()))
            case ast.Call():
                return _shape(made)
        return node


def _operated(op: ast.operator, values: Sequence[int]) -> int | None:
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
    return None


def _compared(op: ast.cmpop, values: Sequence[int]) -> bool | None:
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


def _called(function: ast.expr, values: Sequence[int]) -> int | None:
    name = _last(function)
    if _IS_TILES.match(name) and len(values) == 2 and values[1] > 0:
        return -(-values[0] // values[1])
    if name == "next_power_of_2" and len(values) == 1 and values[0] > 0:
        return 1 << (values[0] - 1).bit_length()
    if name in ("min", "max") and values:
        return min(values) if name == "min" else max(values)
    if name == "int" and len(values) == 1:
        return values[0]
    return None


def _last(node: ast.expr) -> str:
    return getattr(node, "attr", getattr(node, "id", ""))
