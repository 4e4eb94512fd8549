"""Expressions of the Python code that launches a Triton kernel, as far as its text decides them."""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import islice

from portkern.port.proof.guesses import is_of_launch, is_of_machine
from portkern.port.triton_arithmetic import (
    IS_TILES,
    MOST_BITS,
    called,
    compared,
    is_known,
    is_of_mathematics,
    is_of_tiles,
    last_name,
    operated,
    signed,
)
from portkern.port.triton_infer import Constant

_DEPTH = 8
#: The most names of an expression that are replaced, and the most nodes of a value.
_MOST_NODES, _MOST_OF_VALUE = 200, 200
#: What a grid's function is given, in a resolved expression.
SETTINGS = "<settings>"
#: Attributes of a kernel that launch nothing.
_SAID = frozenset("__name__ __qualname__ __doc__ __module__ arg_names best_config cache".split())
_CHANGES = frozenset(
    "append extend insert pop remove clear sort reverse update setdefault popitem "
    "__setitem__ __delitem__".split()
)
#: Names of what a launch is made of, beside those of CUDA's.
_OF_TILES = re.compile(
    r"tile|chunk|split|program|stage|warp|worker|wave|cluster|^b[mnk]$", re.IGNORECASE
)
#: Host code asks a tensor, or a list, how large it is.
_MEASURES = frozenset("numel nelement dim stride size element_size ndimension".split())
_OF_AXES = frozenset("dim ndim ndimension element_size".split())
_MEASURED = frozenset(["ndim", "shape"])
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef)


def calls_of(module: ast.Module, kernel: str) -> list[ast.Call]:
    """The calls ``kernel[grid](…)``."""
    return [
        node
        for node in ast.walk(module)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Subscript)
        and last_name(node.func.value) == kernel
    ]


def has_others(module: ast.Module, kernel: str) -> bool:
    """Whether the kernel may be launched otherwise than by those calls: its name is used for more
    than them, a call in another kernel, and its attributes that say something; or it is another
    function's too."""
    read: set[int] = set()
    nodes = [*ast.walk(module)]
    if sum(isinstance(node, _SCOPES) and node.name == kernel for node in nodes) > 1:
        return True
    for node in nodes:
        match node:
            case ast.Call(
                func=(ast.Name() | ast.Attribute() as name)
                | ast.Subscript(value=ast.Name() | ast.Attribute() as name)
            ):
                read.add(id(name))
            case ast.Attribute(value=name, attr=attribute) if attribute in _SAID:
                read.add(id(name))
            case (
                ast.FunctionDef(decorator_list=decorators) | ast.ClassDef(decorator_list=decorators)
            ):
                read |= {id(part) for decorator in decorators for part in ast.walk(decorator)}
    return any(_uses(node, kernel) and id(node) not in read for node in nodes)


def _uses(node: ast.AST, kernel: str) -> bool:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name == kernel
        case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value=name), *_]):
            return name == kernel
        case ast.Subscript(value=ast.Call(), slice=ast.Constant(value=name)):
            return name == kernel
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return any(kernel in (alias.name, alias.asname) for alias in names)
    return False


class Of(Enum):
    """The purpose of a value: a parameter of the kernel, its code (a constant of it, which a caller
    may not choose) or its grid (which is made of sizes and of what the kernel is given)."""

    DATA = "data"
    CODE = "code"
    GRID = "grid"


class LaunchHost:
    """The names around a launch that have one value, and the parameters of its function."""

    def __init__(self, module: ast.Module, call: ast.Call | None) -> None:
        own = [
            scope
            for scope in ast.walk(module)
            if isinstance(scope, _SCOPES) and any(node is call for node in ast.walk(scope))
        ]
        nodes = [*ast.walk(module)]
        changed = {name for node in nodes for name in _changed(node)}
        changed |= {n for node in nodes if isinstance(node, ast.Global) for n in node.names}
        self._scopes = [_Bindings(_own(module), (), changed)]
        if any(_is_of_any_name(node) for node in nodes):
            self._scopes[0].forget()
        inner = [*ast.walk(own[0])] if own else []
        changed = {name for node in inner for name in _changed(node)}
        changed |= {n for node in inner if isinstance(node, ast.Nonlocal) for n in node.names}
        for scope in own:
            names = [node.arg for node in ast.walk(scope.args) if isinstance(node, ast.arg)]
            self._scopes.append(_Bindings(_own(scope), names, changed))
        self._others = {
            node.name for node in nodes if isinstance(node, _SCOPES) and not _divides_up(node)
        }
        self._resolved: dict[int, tuple[ast.expr, ast.expr]] = {}

    def resolved(self, node: ast.expr) -> ast.expr:
        """The expression with names of one value replaced by it."""
        if id(node) not in self._resolved:
            made = _Resolving(self._scopes, len(self._scopes) - 1).of(node)
            # Both are kept: a node that is no more leaves its number to another.
            self._resolved[id(node)] = node, made
            self._resolved[id(made)] = made, made
        return self._resolved[id(node)][1]

    def of_module(self, node: ast.expr) -> ast.expr:
        """The expression as it stands at the module's level."""
        return _Resolving(self._scopes, 0).of(node)

    def _is_parameter(self, name: str) -> bool:
        for scope in reversed(self._scopes):
            if name in scope.values:
                return name in scope.parameters and name not in scope.repeated
        return False

    def text(self, node: ast.expr) -> str:
        return ast.unparse(self.resolved(node))

    def is_measured(self, node: ast.expr) -> bool:
        """Whether it is a size of a tensor or of a list."""
        match self.resolved(node):
            case ast.Subscript(value=of):
                return last_name(of) == "shape" or (
                    isinstance(of, ast.Call) and self.is_measured(of)
                )
            case ast.Call(func=ast.Attribute(attr=name)) if name in _MEASURES:
                return True
            case ast.Call(func=ast.Name(id="len")):
                return True
            case ast.Attribute(attr=name):
                return name in _MEASURED or is_of_machine(name)
        return False

    def is_size(self, node: ast.expr) -> bool:
        """Whether it is measured and may have any value: how many axes there are may not."""
        node = self.resolved(node)
        name = last_name(node.func if isinstance(node, ast.Call) else node)
        return self.is_measured(node) and name not in _OF_AXES

    def is_leaf(self, node: ast.expr) -> bool:
        """Whether it is data's that may have any value: a size, or a parameter of the function
        that launches which is not called as what launches are made of."""
        node = self.resolved(node)
        if self.is_measured(node):
            return True
        name = last_name(node)
        if not name or is_of_launch(name) or _OF_TILES.search(name):
            return False
        while isinstance(node, ast.Attribute):
            node = node.value
        return isinstance(node, ast.Name) and self._is_parameter(node.id)

    def is_of_data(self, node: ast.expr) -> bool:
        """Whether it is computed from data alone, by arithmetic or a function of mathematics."""
        node = self.resolved(node)
        if self.is_leaf(node):
            return True
        parts = [part for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)]
        if isinstance(node, ast.Call):
            if not is_of_mathematics(node.func):
                return False
            parts.remove(node.func)
        others = [part for part in parts if not isinstance(part, ast.Constant)]
        return bool(others) and all(map(self.is_of_data, others))

    def value(
        self,
        node: ast.expr,
        known: dict[str, int],
        settings: Mapping[str, Constant],
        any_: int,
        of: Of = Of.DATA,
    ) -> int | None:
        """The number that an expression is for known values of expressions, by their text, and a
        configuration's settings; ``any_`` for what may have any value."""
        by = {Of.DATA: self.is_leaf, Of.CODE: self.is_size, Of.GRID: self.is_measured}
        evaluating = _Evaluating(by[of], known, settings, any_, of, self._others)
        return evaluating.of(self.resolved(node))


class _Evaluating:
    def __init__(
        self,
        is_any: Callable[[ast.expr], bool],
        known: dict[str, int],
        settings: Mapping[str, Constant],
        any_: int,
        of: Of,
        others: Collection[str] = (),
    ) -> None:
        self._others = others
        self._is_any, self._known, self._settings, self._any = is_any, known, settings, any_
        self._of = of
        self._is_size = of is not Of.CODE

    def of(self, node: ast.expr) -> int | None:
        value = self._value(node)
        # A greater number is nothing's size, and what is made of it would not come to an end.
        return value if value is not None and value.bit_length() <= MOST_BITS else None

    def _value(self, node: ast.expr) -> int | None:
        text = ast.unparse(node)
        if text in self._known and (self._is_size or self._is_any(node)):
            return self._known[text]
        match node:
            case ast.Constant(value=int() as number):
                return number
            case ast.Subscript(value=ast.Name(id=of), slice=ast.Constant(value=str() as name)) if (
                of == SETTINGS
            ):
                value = self._settings.get(name)
                return value if isinstance(value, int) else None
            case ast.BinOp(left=left, op=op, right=right):
                return operated(op, self._all([left, right]))
            case ast.UnaryOp(op=ast.USub() | ast.UAdd() | ast.Invert() as op, operand=operand):
                return signed(op, self.of(operand))
            case ast.UnaryOp() | ast.Compare() | ast.BoolOp() | ast.IfExp():
                return self._chosen(node)
        if self._is_any(node):
            return self._known.setdefault(text, self._any)
        if isinstance(node, ast.Call) and not node.keywords and self._is_known(node.func):
            before, self._is_size = self._is_size, self._is_size or is_of_tiles(node.func)
            values = self._all(node.args)
            self._is_size = before
            return called(node.func, values)
        return None

    def _is_known(self, function: ast.expr) -> bool:
        is_other = isinstance(function, ast.Name) and function.id in self._others
        return is_known(function) and not is_other

    def _chosen(self, node: ast.expr) -> int | None:
        """The value of a comparison or a choice; a constant of the kernel has it where it is the
        same for all data: one way of its code is not all of it."""
        if self._of is Of.CODE:
            return _Evaluating(lambda _: False, {}, {}, 0, Of.DATA).of(node)
        match node:
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return compared(op, self._all([left, right]))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                value = self.of(operand)
                return None if value is None else not value
            case ast.IfExp(test=test, body=body, orelse=orelse):
                value = self.of(test)
                return None if value is None else self.of(body if value else orelse)
            case ast.BoolOp(op=op, values=values):
                found = self._all(values)
                ends = [value for value in found if bool(value) is isinstance(op, ast.Or)]
                return [*ends, *found[-1:]][0] if found else None
        return None

    def _all(self, nodes: Sequence[ast.expr]) -> list[int]:
        """Empty where one is not known."""
        values = [self.of(node) for node in nodes]
        whole = [value for value in values if value is not None]
        return whole if len(whole) == len(values) else []


def _own(scope: ast.Module | ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.AST]:
    """The nodes of a scope without those of the functions and classes in it."""
    left: list[ast.AST] = [*reversed(scope.body)]
    while left:
        node = left.pop()
        yield node
        if not isinstance(node, (*_SCOPES, ast.ClassDef)):
            left += reversed([*ast.iter_child_nodes(node)])


def _changed(node: ast.AST) -> Iterator[str]:
    """The names whose values a node may change in place."""
    match node:
        case ast.Subscript(ctx=ast.Store() | ast.Del()) | ast.Attribute(ctx=ast.Store()):
            changed: ast.expr = node.value
        case ast.Call(func=ast.Attribute(attr=method, value=of)) if method in _CHANGES:
            changed = of
        case _:
            return
    while isinstance(changed, ast.Subscript | ast.Attribute):
        changed = changed.value
    if isinstance(changed, ast.Name):
        yield changed.id


def _is_of_any_name(node: ast.AST) -> bool:
    """Whether it may give any name of the module a value."""
    match node:
        case ast.Call(func=ast.Name(id="globals" | "exec")):
            return True
        case ast.ImportFrom(names=[ast.alias(name="*")]):
            return True
    return False


class _Bindings:
    """The one value of each name of a scope; None where it has several, one that no expression
    says, or one that is ``changed`` in place. ``lengths`` are the numbers of what is unpacked from
    an expression, by its text."""

    def __init__(
        self, nodes: Iterable[ast.AST], parameters: Iterable[str], changed: Collection[str]
    ) -> None:
        self.parameters = frozenset(parameters)
        self.values: dict[str, ast.expr | None] = dict.fromkeys(self.parameters)
        self.lengths: dict[str, int] = {}
        self.repeated: set[str] = set()
        kept: list[str] = []
        for node in nodes:
            kept += _kept(node)
            for target, value in _bound(node):
                self._bind(target, value)
        for name in changed & self.values.keys():
            self.values[name] = None
        for name in kept:
            # Whoever else has a list may change it.
            if isinstance(self.values.get(name), ast.List | ast.Dict):
                self.values[name] = None

    def forget(self) -> None:
        self.values = dict.fromkeys(self.values)

    def _bind(self, target: ast.AST, value: ast.expr | None) -> None:
        match target:
            case ast.Name(id=name):
                if name in self.values:
                    self.repeated.add(name)
                is_first = name not in self.values and value is not None and _is_small(value)
                self.values[name] = value if is_first else None
            case ast.Tuple(elts=elts) | ast.List(elts=elts):
                is_plain = value is not None and not any(isinstance(e, ast.Starred) for e in elts)
                is_plain = is_plain and _is_small(value)
                if is_plain and not isinstance(value, ast.Tuple) and value is not None:
                    self.lengths[ast.unparse(_shape(value))] = len(elts)
                for number, part in enumerate(elts):
                    self._bind(part, _item(value, number, len(elts)) if is_plain else None)
            case ast.Starred(value=inner):
                self._bind(inner, None)


def _kept(node: ast.AST) -> Iterator[str]:
    """Names whose values a node gives to others: another name, a call or what is returned."""
    parts: Sequence[ast.AST | None] = ()
    match node:
        case ast.Assign(value=value) | ast.AnnAssign(value=value) | ast.Return(value=value):
            parts = [value]
        case ast.Call(args=args, keywords=keywords):
            parts = [*args, *(keyword.value for keyword in keywords)]
        case ast.List(elts=elts) | ast.Tuple(elts=elts):
            parts = elts
        case ast.NamedExpr(value=value) | ast.IfExp(body=value):
            parts = [value, getattr(node, "orelse", None)]
        case ast.Dict(values=values) | ast.BoolOp(values=values):
            parts = values
    yield from (part.id for part in parts if isinstance(part, ast.Name))


def _is_small(node: ast.expr | None) -> bool:
    return node is not None and len([*islice(ast.walk(node), _MOST_OF_VALUE + 1)]) <= _MOST_OF_VALUE


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
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            yield from ((_name(alias.asname or alias.name.split(".")[0]), None) for alias in names)
        case ast.Global(names=names) | ast.Nonlocal(names=names):
            yield from ((_name(name), None) for name in names for _ in range(2))
        case ast.ExceptHandler(name=str() as name) | ast.MatchAs(name=str() as name):
            yield _name(name), None
        case ast.MatchStar(name=str() as name) | ast.MatchMapping(rest=str() as name):
            yield _name(name), None
        case ast.Delete(targets=targets):
            yield from ((target, None) for target in targets)
        case ast.ClassDef(name=name) | ast.AsyncFunctionDef(name=name):
            yield _name(name), None
        case ast.FunctionDef(name=name):
            yield _name(name), _lambda(node)


def _name(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _lambda(node: ast.FunctionDef) -> ast.expr | None:
    """The function as a lambda, where it does nothing but to return an expression of one
    parameter."""
    own = [*_own(node)]
    returned = [n for n in own if isinstance(n, ast.Return)]
    last = node.body[-1]
    if len(returned) != 1 or not isinstance(last, ast.Return) or last.value is None:
        return None
    if node.decorator_list or not is_of_settings(node.args):
        return None
    names = [node.args.args[0].arg]
    local = _Bindings(own, names, {name for n in own for name in _changed(n)})
    made = _Resolving([local], 0).of(last.value)
    open_ = {n.id for n in ast.walk(made) if isinstance(n, ast.Name)} & local.values.keys()
    return ast.Lambda(node.args, made) if open_ <= set(names) - local.repeated else None


def _divides_up(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a function is what the name of such a one says."""
    names = [argument.arg for argument in node.args.args]
    returned = node.body[-1]
    if IS_TILES.match(node.name) is None or len(names) != 2:
        return False
    # Before it stands a docstring at most.
    if not all(isinstance(part, ast.Expr) for part in node.body[:-1]):
        return False
    if not isinstance(returned, ast.Return) or returned.value is None:
        return False
    value = returned.value
    return all(
        _Evaluating(lambda _: False, dict(zip(names, by, strict=True)), {}, 0, Of.DATA).of(value)
        == -(-by[0] // by[1])
        for by in ((1, 4), (4, 4), (5, 4), (24, 16), (33, 7))
    )


def is_of_settings(arguments: ast.arguments) -> bool:
    """Whether a function has one parameter, as one has that says a grid for settings."""
    others = [*arguments.posonlyargs, *arguments.kwonlyargs, *arguments.defaults]
    others += [arg for arg in (arguments.vararg, arguments.kwarg) if arg]
    return len(arguments.args) == 1 and not others


class _Resolving(ast.NodeTransformer):
    """Replaces names as they are seen from the scope of the number ``level``, the first of which
    is the module. A name of an outer scope that an inner one has too is put in brackets, and so
    are the settings that a grid's function is given: they are other things than the launch's own
    names."""

    def __init__(self, scopes: Sequence[_Bindings], level: int) -> None:
        self._scopes, self._level = scopes, level
        self._lengths = {text: n for scope in scopes for text, n in scope.lengths.items()}
        self._settings = ""
        self._depth, self._left = 0, _MOST_NODES

    def of(self, node: ast.expr) -> ast.expr:
        made = self.visit(copy.deepcopy(node))
        return made if isinstance(made, ast.expr) else node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id == self._settings:
            return _name(SETTINGS)
        seen = self._scopes[: self._level + 1]
        at = max((n for n, scope in enumerate(seen) if node.id in scope.values), default=-1)
        value = self._scopes[at].values[node.id] if at >= 0 else None
        if value is None or self._depth >= _DEPTH or self._left <= 0:
            is_hidden = any(node.id in scope.values for scope in self._scopes[self._level + 1 :])
            return _name(f"<{node.id}>") if is_hidden else node
        before = self._level, self._settings
        self._level, self._settings = at, ""
        self._depth, self._left = self._depth + 1, self._left - 1
        made = self.of(value)
        self._depth -= 1
        self._level, self._settings = before
        return made

    def visit_Lambda(self, node: ast.Lambda) -> ast.expr:
        if self._settings or not is_of_settings(node.args):
            return node
        self._settings = node.args.args[0].arg
        node.body = self.of(node.body)
        self._settings = ""
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        made = self.generic_visit(node)
        match made:
            case ast.Subscript(value=ast.Tuple(elts=elts), slice=ast.Constant(value=int() as at)):
                is_plain = not any(isinstance(part, ast.Starred) for part in elts)
                return elts[at] if is_plain and 0 <= at < len(elts) else made
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
