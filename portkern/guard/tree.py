"""Questions to a Python tree that need no names resolved."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence

_LOOKUPS = {"globals", "locals", "vars", "eval", "exec", "__dict__", "getattr", "__builtins__"}


def constant(node: ast.AST | None) -> str | None:
    """A string that stands there, in one piece or in several: a sum, an f-string, a ``join``."""
    ends: list[str] = []
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        end = constant(node.right)  # first: a sum of hundreds of terms is deep on its left
        if end is None:
            return None
        ends.insert(0, end)
        node = node.left
    if isinstance(node, ast.Constant):
        start = node.value if isinstance(node.value, str) else None
    elif isinstance(node, ast.JoinedStr):
        start = _joined("", node.values)
    elif isinstance(node, ast.FormattedValue):
        start = None if node.format_spec or node.conversion != -1 else constant(node.value)
    else:
        start = _result_of_join(node) if isinstance(node, ast.Call) else None
    return None if start is None else start + "".join(ends)


def _result_of_join(call: ast.Call) -> str | None:
    function, parts = call.func, call.args[0] if len(call.args) == 1 else None
    if not isinstance(function, ast.Attribute) or function.attr != "join":
        return None
    between = constant(function.value)
    if between is None or not isinstance(parts, ast.List | ast.Tuple):
        return None
    return _joined(between, parts.elts)


def _joined(between: str, nodes: Sequence[ast.expr]) -> str | None:
    parts = [part for part in map(constant, nodes) if part is not None]
    return between.join(parts) if len(parts) == len(nodes) else None


def is_true(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and bool(node.value)


def is_strict(fastmath: ast.AST) -> bool:
    """``fastmath`` of Numba that is off, or that only lets a product and a sum be rounded once, as
    C++ compilers do without being asked."""
    if isinstance(fastmath, ast.Set):
        return all(constant(elt) == "contract" for elt in fastmath.elts)
    return isinstance(fastmath, ast.Constant) and not fastmath.value


def is_main(test: ast.expr) -> bool:
    """Whether it holds in a program alone, and asks that first (PEP 366 asks for more)."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return is_main(test.values[0])
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
                targets = [*part.targets] if isinstance(part, ast.Assign) else []
                targets += [part.target] if isinstance(part, ast.AnnAssign) else []
                yield from (target.id for target in targets if isinstance(target, ast.Name))
                if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
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


def extension_texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The texts that may be sources of an extension in C++ or CUDA, with their lines: whatever
    is not a comment on the code and looks like it. Parts of a formatted text count each."""
    comments = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)
    }  # a text that stands alone
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
            if id(node) not in comments and any(mark in text for mark in (";", "{", "#")):
                yield node.lineno, text


def attributes_made_of(tree: ast.AST, is_layer: Callable[[ast.expr], bool]) -> set[str]:
    """Attributes that are given the result of such a call: ``self.fc = nn.Linear(4, 4)``, or a list
    of them."""
    made = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        calls = [part for part in ast.walk(node.value) if isinstance(part, ast.Call)]
        if any(is_layer(call.func) for call in calls):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            made |= {target.attr for target in targets if isinstance(target, ast.Attribute)}
            made |= {target.id for target in targets if isinstance(target, ast.Name)}
    return made


def called_by_pallas(tree: ast.Module) -> Iterator[str]:
    """Functions that run in kernels: those that stand in the first argument of a ``pallas_call``
    or of Mosaic GPU's ``kernel``, perhaps by way of a variable, and what they name in turn."""
    values: dict[str, list[ast.AST]] = {}
    calls: list[ast.AST] = []
    callers = {"pallas_call"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            callers |= {a.asname for a in node.names if a.name == "pallas_call" and a.asname}
            of_mosaic = (node.module or "").endswith("mosaic_gpu")
            callers |= {a.asname or a.name for a in node.names if of_mosaic and a.name == "kernel"}
            if any(a.name == "mosaic_gpu" for a in node.names):
                callers.add("kernel")
        elif isinstance(node, ast.Import) and any("mosaic_gpu" in a.name for a in node.names):
            callers.add("kernel")
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
