"""Packages that a library imports and that this machine lacks: where its tests need no more of them
than that they can be imported, they run."""

from __future__ import annotations

import ast
import importlib.abc
import importlib.machinery
import importlib.util
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

#: Files of a library that are read, and characters of each.
_MOST_FILES, _MOST_CHARACTERS = 2000, 1_000_000


def packages(files: Sequence[Path]) -> frozenset[str]:
    """The packages that these files import without an alternative and that are not here. One that
    any file asks for in a ``try`` is none of them: its absence has a meaning there."""
    needed, tried = set[str](), set[str]()
    for file in files[:_MOST_FILES]:
        try:
            tree = ast.parse(file.read_text("utf-8", errors="replace")[:_MOST_CHARACTERS])
        except (SyntaxError, ValueError, RecursionError, OSError):
            continue
        in_try = {
            id(node)
            for block in ast.walk(tree)
            if isinstance(block, ast.Try)
            for part in block.body
            for node in ast.walk(part)
        }
        for node in ast.walk(tree):
            for name in _imported(node):
                (tried if id(node) in in_try else needed).add(name)
    return frozenset(name for name in needed - tried if _is_absent(name))


def _imported(node: ast.AST) -> Iterator[str]:
    """The packages of an import; none for one from the library's own package by dots."""
    if isinstance(node, ast.Import):
        yield from (alias.name.partition(".")[0] for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        yield node.module.partition(".")[0]


def _is_absent(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is None
    except (ImportError, ValueError):
        return True


class Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports packages as modules in which each name is a class of which nothing can be made."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names

    def find_spec(
        self, fullname: str, path: object, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] not in self._names:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


class _Module(ModuleType):
    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        package = self.__name__.partition(".")[0]

        def absent(cls: type, *_: object, **__: object) -> object:
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)

        made = type(name, (), {"__new__": absent, "__module__": self.__name__})
        setattr(self, name, made)
        return made
