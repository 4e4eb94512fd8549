"""The text of a module's forward: what in it a trace would not see.

A trace sees one way through a forward. Only forwards in which nothing else can happen are taken.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
import types
from typing import Any

import torch

from ._call import GONE, PLAIN, ForwardCall, NoTrace, TraceGuard


def unseen(module: torch.nn.Module, call: ForwardCall) -> tuple[str, TraceGuard]:
    """Why a trace of the forward could say less than its code, or '', and what it takes for
    granted."""
    reader = _Reader(module)
    try:
        reader.function(type(module).forward, call)
    except NoTrace as error:
        return str(error), TraceGuard(())
    return "", TraceGuard(tuple(sorted(reader.values.items(), key=lambda one: one[0])))


class _Reader:
    """Reads the text of a forward and of the functions that it calls."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module
        self.values: dict[str, Any] = {}
        self.names: dict[str, Any] = {}
        self.local: set[str] = set()
        self.fixed: set[str] = set()
        self.own = ""

    def function(self, function: Any, call: ForwardCall) -> None:
        if not isinstance(function, types.FunctionType) or hasattr(function, "__wrapped__"):
            raise NoTrace("its forward is not a plain function")
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
        except (OSError, TypeError, SyntaxError, IndexError) as error:
            raise NoTrace("the text of its forward is not to be had") from error
        if not isinstance(tree, ast.FunctionDef) or tree.decorator_list:
            raise NoTrace("its forward is decorated")
        taken = tree.args
        if taken.vararg or taken.kwarg:
            raise NoTrace("its forward takes any arguments")
        closed = inspect.getclosurevars(function)
        self.names = {**closed.builtins, **function.__globals__, **closed.nonlocals}
        arguments = [one.arg for one in (*taken.posonlyargs, *taken.args, *taken.kwonlyargs)]
        self.own = arguments[0] if arguments else ""
        stored = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and _stored(n)}
        self.local = {*arguments[1:], *stored}
        given = dict(zip(arguments[1:], call.given, strict=False)) | dict(call.named)
        defaults = {
            name: value.default
            for name, value in inspect.signature(function).parameters.items()
            if value.default is not value.empty
        }
        known = {**defaults, **given}
        self.fixed = {name for name in known if known[name] is not torch.Tensor} - stored
        # That an argument is None is known, as it is of the same kind in each call.
        self.asked = {*arguments[1:]} - stored
        for statement in tree.body:
            self.statement(statement)

    def statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Expr(value=ast.Constant()) | ast.Pass():
                return
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self.target(target)
                self.expression(value)
            case ast.AnnAssign(target=target, value=optional):
                self.target(target)
                if optional is not None:
                    self.expression(optional)
            case ast.Return(value=optional):
                if optional is not None:
                    self.expression(optional)
            case ast.If(test=test, body=body, orelse=orelse):
                self.decided(test)
                for one in (*body, *orelse):
                    self.statement(one)
            case _:
                raise NoTrace(f"its forward has {_named(node)}")

    def target(self, node: ast.expr) -> None:
        parts = node.elts if isinstance(node, ast.Tuple | ast.List) else [node]
        if not all(isinstance(part, ast.Name) for part in parts):
            raise NoTrace("its forward stores into something")

    def decided(self, node: ast.expr) -> None:
        """A condition that is the same for all calls of one kind."""
        match node:
            case ast.Compare(
                left=ast.Name(id=name), ops=[ast.Is() | ast.IsNot()], comparators=[ast.Constant()]
            ) if name in self.asked:
                return
            case ast.BoolOp(values=values):
                for one in values:
                    self.decided(one)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                self.decided(operand)
            case ast.Compare(left=left, comparators=others):
                for one in (left, *others):
                    self.decided(one)
            case ast.Constant():
                return
            case ast.Name(id=name) if name in self.fixed:
                return
            case ast.Attribute() if self.path(node):
                self.attribute(self.path(node))
            case _:
                raise NoTrace("its forward depends on a condition")

    def expression(self, node: ast.expr) -> None:
        match node:
            case ast.Constant():
                return
            case ast.Name(id=name):
                if name not in self.local and name != self.own:
                    raise NoTrace(f"its forward reads {name!r}, which may change")
            case ast.Attribute():
                self.read(node)
            case ast.Call():
                self.called(node)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                self.decided(test)
                self.expression(body)
                self.expression(orelse)
            case (
                ast.BinOp()
                | ast.UnaryOp()
                | ast.Subscript()
                | ast.Slice()
                | ast.Tuple()
                | ast.List()
                | ast.Dict()
            ):
                for child in ast.iter_child_nodes(node):
                    if isinstance(child, ast.expr):
                        self.expression(child)
            case _:
                raise NoTrace(f"its forward has {_named(node)}")

    def path(self, node: ast.expr) -> str:
        """``a.b`` of ``self.a.b``, else ''."""
        names: list[str] = []
        while isinstance(node, ast.Attribute):
            names.append(node.attr)
            node = node.value
        return (
            ".".join(reversed(names)) if isinstance(node, ast.Name) and node.id == self.own else ""
        )

    def read(self, node: ast.Attribute) -> None:
        if path := self.path(node):
            self.attribute(path)
        elif (found := self.outer(node)) is not None:
            if not isinstance(found, (torch.dtype, float)):
                raise NoTrace(f"its forward reads {ast.unparse(node)}, which may change")
        else:
            self.expression(node.value)

    def attribute(self, path: str) -> None:
        """A child, a parameter or a buffer is read at each call; of others the value is kept."""
        value: Any = self.module
        for name in path.split("."):
            if isinstance(value, torch.Tensor):
                return  # x.dtype, x.shape: of a tensor that the trace knows
            if not isinstance(inspect.getattr_static(type(value), name, None), _SLOTS):
                raise NoTrace(f"its attribute {path!r} is computed")
            value = getattr(value, name, GONE)
        if value is GONE:
            raise NoTrace(f"it has no attribute {path!r}")
        if isinstance(value, (torch.Tensor, torch.nn.Module)):
            return
        if isinstance(value, PLAIN) or (
            isinstance(value, tuple) and all(isinstance(one, PLAIN) for one in value)
        ):
            self.values[path] = value
            return
        raise NoTrace(f"its attribute {path!r} is a {type(value).__name__}")

    def outer(self, node: ast.expr) -> Any:
        """Returns what a name of the surrounding module leads to, else None."""
        if isinstance(node, ast.Name):
            return None if node.id in self.local or node.id == self.own else self.names.get(node.id)
        if isinstance(node, ast.Attribute) and (parent := self.outer(node.value)) is not None:
            return getattr(parent, node.attr, None) if inspect.ismodule(parent) else None
        return None

    def called(self, node: ast.Call) -> None:
        inner = [*node.args, *(one.value for one in node.keywords)]
        for one in inner:
            self.expression(one)
        if path := self.path(node.func):
            child: Any = self.module
            for name in path.split("."):
                child = getattr(child, name, None)
            if not isinstance(child, torch.nn.Module):
                raise NoTrace(f"its forward calls its own {path!r}")
            return
        function = self.outer(node.func)
        if function is None:
            if isinstance(node.func, ast.Attribute):
                self.expression(node.func.value)  # a method of a tensor
                return
            raise NoTrace(f"its forward calls {ast.unparse(node.func)[:40]!r}")
        if not _of_torch(function):
            raise NoTrace(f"its forward calls {ast.unparse(node.func)[:40]!r}")
        seen = {n.id for one in inner for n in ast.walk(one) if isinstance(n, ast.Name)}
        if not seen & self.local and not function.__module__ == "math":
            raise NoTrace(f"its forward calls {ast.unparse(node.func)[:40]!r} without a tensor")


#: What a class has under the name of an attribute that an instance keeps.
_SLOTS = (type(None), *PLAIN, tuple)


def _of_torch(function: Any) -> bool:
    place = str(getattr(function, "__module__", None) or "")
    return (callable(function) and (place in ("torch", "math") or place.startswith("torch."))) or (
        isinstance(function, types.BuiltinFunctionType) and place in ("", "torch._C._nn")
    )


def _stored(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store | ast.Del)


def _named(node: ast.AST) -> str:
    known = {
        ast.For: "a loop",
        ast.While: "a loop",
        ast.With: "a context",
        ast.AugAssign: "a change in place",
        ast.Expr: "a statement without a result",
        ast.Try: "a handler of errors",
        ast.Raise: "an error of its own",
        ast.Assert: "an assertion",
    }
    return known.get(type(node), f"a {type(node).__name__}")
