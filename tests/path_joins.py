"""Where names become paths in the code, by its syntax: ``folder / name``, ``joinpath`` and
``with_name``, as far as a module says what is a path."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

#: What gives a path, of a path.
_OF_PATHS = frozenset(
    "parent resolve absolute with_suffix with_name joinpath expanduser relative_to cwd home".split()
)
#: What may be joined to a path as it is: made by the type that checks it, or of a path itself.
_SAFE_CALLS = frozenset({"SafeName", "like", "relative_to"})
_JOINING = frozenset({"joinpath", "with_name", "with_stem"})


def _is_path(annotation: ast.expr | None) -> bool:
    if annotation is None or isinstance(annotation, ast.Subscript):
        return False
    return any(isinstance(node, ast.Name) and node.id == "Path" for node in ast.walk(annotation))


class Paths:
    """Names of attributes and functions that are annotated as paths anywhere."""

    def __init__(self, modules: Mapping[Path, ast.Module]) -> None:
        self.names: set[str] = set(_OF_PATHS)
        for tree in modules.values():
            for node in ast.walk(tree):
                if isinstance(node, ast.AnnAssign) and _is_path(node.annotation):
                    self.names.add(ast.unparse(node.target).rpartition(".")[2])
                if isinstance(node, ast.FunctionDef) and _is_path(node.returns):
                    self.names.add(node.name)

    def joins(self, tree: ast.Module) -> Iterator[str]:
        """Each expression that joins what is not known to be safe."""
        yield from self._within(tree, set())

    def _within(self, node: ast.AST, known: set[str]) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef):
                yield from self._within(child, known | self._local(child))
                continue
            if self._joins(child, known):
                yield ast.unparse(child)
            yield from self._within(child, known)

    def _local(self, function: ast.FunctionDef) -> set[str]:
        taken = function.args
        arguments = [*taken.posonlyargs, *taken.args, *taken.kwonlyargs]
        found = {argument.arg for argument in arguments if _is_path(argument.annotation)}
        for node in [*ast.walk(function)] * 2:  # of what is assigned later, too
            if isinstance(node, ast.Assign) and self._path(node.value, found):
                found |= {one.id for one in node.targets if isinstance(one, ast.Name)}
        return found

    def _joins(self, node: ast.AST, known: set[str]) -> bool:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            return self._path(node.left, known) and not self._safe(node.right, known)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            joined = node.func.attr in _JOINING
            return joined and not all(self._safe(argument, known) for argument in node.args)
        return False

    def _path(self, node: ast.expr, known: set[str]) -> bool:
        match node:
            case ast.Name(id=name):
                return name in known or name == "folder"
            case ast.Attribute(attr=name):
                return name in self.names
            case ast.Call(func=ast.Name(id=name)) | ast.Call(func=ast.Attribute(attr=name)):
                return name == "Path" or name in self.names
            case ast.BinOp(left=left, op=ast.Div(), right=right):
                text = isinstance(right, ast.JoinedStr) or (
                    isinstance(right, ast.Constant) and isinstance(right.value, str)
                )
                return text or self._path(left, known)
            case ast.IfExp(body=first, orelse=second):
                return self._path(first, known) or self._path(second, known)
            case ast.Subscript(value=inner):
                return self._path(inner, known)
        return False

    def _safe(self, node: ast.expr, known: set[str]) -> bool:
        match node:
            case ast.Constant():
                return True
            case ast.Name(id=name) | ast.Attribute(attr=name) if name.isupper():
                return True
            case ast.Attribute(value=inner, attr="name" | "stem" | "suffix"):
                return self._path(inner, known)
            case ast.Call(func=ast.Name(id=name)) | ast.Call(func=ast.Attribute(attr=name)):
                return name in _SAFE_CALLS
            case ast.JoinedStr(values=parts):
                return all(self._safe(part, known) for part in parts)
            case ast.FormattedValue(value=inner):
                return self._safe(inner, known)
        return False
