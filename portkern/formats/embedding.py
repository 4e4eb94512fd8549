"""Python text of others inside of an operator file: on no device of its own, with the modules and
files that lay beside it."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from portkern.errors import ConfigError
from portkern.spec.foreign_text import python_tree

#: What one file of code may be.
MOST_CHARACTERS, MOST_LEVELS = 2_000_000, 150
_DEVICE = re.compile(r"(cuda|npu|xpu|musa|hip|mps)(:\d+)?")
_MODULES = """\
# ---- portkern: the modules that lay beside it
import sys as _portkern_sys
import types as _portkern_types

for _portkern_name, _portkern_text in {modules!r}.items():
    _portkern_module = _portkern_types.ModuleType(_portkern_name)
    _portkern_sys.modules[_portkern_name] = _portkern_module
    exec(compile(_portkern_text, _portkern_name + ".py", "exec"), _portkern_module.__dict__)
# ---- the file itself
"""
_FILES = """

# ---- portkern: the files that lay beside it


def open(path, *args, _files={files!r}, **named):
    import builtins
    import io
    import os

    text = _files.get(os.path.basename(path))
    return builtins.open(path, *args, **named) if text is None else io.StringIO(text, newline=None)
"""


def parse(text: str, what: str) -> ast.Module:
    """Raises ConfigError."""
    if len(text) > MOST_CHARACTERS:
        raise ConfigError(f"{what} has {len(text)} characters, expected {MOST_CHARACTERS} at most")
    try:
        tree = python_tree(text)
    except SyntaxError as error:
        line = f", line {error.lineno}" * bool(error.lineno)
        raise ConfigError(f"{what} is not Python: {error}{line}") from error
    if _deeper(tree, MOST_LEVELS):
        raise ConfigError(f"{what} is nested deeper than {MOST_LEVELS} levels")
    return tree


def _deeper(tree: ast.AST, levels: int) -> bool:
    """Whether a tree is deeper than ``levels``: such a one can be read, and not written again,
    as Python's stack ends."""
    level: list[ast.AST] = [tree]
    for _ in range(levels):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return False
    return True


def on_host(text: str) -> str:
    """The text without the names of devices: portkern places tensors itself. Comments stay.
    ``text`` is Python."""
    edits: list[tuple[int, int, int, str]] = []
    for node in ast.walk(python_tree(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if _DEVICE.fullmatch(node.value) and node.lineno == node.end_lineno:
                end = node.end_col_offset or node.col_offset
                edits.append((node.lineno, node.col_offset, end, '"cpu"'))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            called, end = node.func, node.func.end_col_offset or 0
            if _DEVICE.fullmatch(called.attr) and called.end_lineno and not node.args:
                edits.append((called.end_lineno, end - len(called.attr), end, "cpu"))
    lines = text.splitlines(keepends=True)
    for number, start, end, new in sorted(edits, reverse=True):
        line = lines[number - 1].encode()
        lines[number - 1] = (line[:start] + new.encode() + line[end:]).decode()
    return "".join(lines)


def with_modules(text: str, modules: Mapping[str, str]) -> str:
    """``modules``: their texts by name, in the order they import each other in. What the file
    imports from the future stays first."""
    if not modules:
        return text
    tree = python_tree(text)
    future = [node for node in tree.body if _is_future(node)]
    lines = text.splitlines(keepends=True)
    for node in future:
        for number in range(node.lineno - 1, node.end_lineno or node.lineno):
            lines[number] = "\n"
    head = "".join(f"{ast.unparse(node)}\n" for node in future)
    return head + _MODULES.format(modules=dict(modules)) + "".join(lines)


def with_files(text: str, files: Mapping[str, str]) -> str:
    """``open`` finds these, by name, wherever it is told that they are."""
    return text.rstrip() + _FILES.format(files=dict(files)) if files else text


def functions(tree: ast.Module) -> list[str]:
    """Names of those at the top level."""
    return [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]


def _is_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"
