"""Questions to a Python tree that need no names resolved."""

from __future__ import annotations

import ast
from collections.abc import Iterator

_LOOKUPS = {"globals", "locals", "vars", "eval", "exec", "__dict__", "getattr", "__builtins__"}


def constant(node: ast.AST | None) -> str | None:
    """A string that stands there, in one piece or in several."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = constant(node.left), constant(node.right)
        return left + right if left is not None and right is not None else None
    return None


def is_true(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and bool(node.value)


def is_strict(fastmath: ast.AST) -> bool:
    """``fastmath`` of Numba that is off, or that only lets a product and a sum be rounded once, as
    C++ compilers do without being asked."""
    if isinstance(fastmath, ast.Set):
        return all(constant(elt) == "contract" for elt in fastmath.elts)
    return isinstance(fastmath, ast.Constant) and not fastmath.value


def is_main(test: ast.expr) -> bool:
    return (
        isinstance(test, ast.Compare)
        and isinstance(test.left, ast.Name)
        and test.left.id == "__name__"
        and isinstance(test.ops[0], ast.Eq)
        and constant(test.comparators[0]) == "__main__"
    )


def words(node: ast.AST) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Name | ast.Attribute):
            yield part.id if isinstance(part, ast.Name) else part.attr


def own_attributes(tree: ast.Module) -> Iterator[str]:
    """Attributes that the source itself gives to its objects."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.ClassDef):
            for part in node.body:
                if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                    yield part.target.id
                elif isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield part.name


def unused(tree: ast.Module, entry: str) -> Iterator[ast.AST]:
    """Functions and classes of the module that ``entry`` and the module's own statements do not
    lead to; none where names are looked up at run time."""
    defined: dict[str, list[ast.AST]] = {}
    todo: list[ast.AST] = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            defined.setdefault(node.name, []).append(node)
        elif not (isinstance(node, ast.If) and is_main(node.test)):
            todo.append(node)
    if entry not in defined or _LOOKUPS & set(words(tree)):
        return
    todo += defined.pop(entry)
    while todo:
        for name in words(todo.pop()):
            todo += defined.pop(name, [])
    for left in defined.values():
        yield from left


def called_by_pallas(tree: ast.Module) -> Iterator[str]:
    """Functions that run in kernels: those that stand in the first argument of a ``pallas_call``,
    perhaps by way of a variable, and those that they name in turn."""
    values: dict[str, list[ast.AST]] = {}
    calls: list[ast.AST] = []
    callers = {"pallas_call"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            callers |= {a.asname for a in node.names if a.name == "pallas_call" and a.asname}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            values.setdefault(node.name, []).append(node)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                for name in words(target):
                    values.setdefault(name, []).append(node.value)
        elif isinstance(node, ast.Call) and callers & set(list(words(node.func))[:1]):
            calls += node.args[:1]
    reached: set[str] = set()
    while calls:
        for name in words(calls.pop()):
            if name in values and name not in reached:
                reached.add(name)
                calls += values[name]
    yield from reached
