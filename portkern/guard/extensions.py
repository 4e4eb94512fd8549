"""Finds the extensions that a Python source builds itself: an extension's functions are the
source's own, whatever they are called."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterator

#: Operators registered in C++ or in Python, by the namespace under ``torch.ops``.
_REGISTERED = re.compile(r"\bTORCH_LIBRARY(?:_FRAGMENT)?\s*\(\s*(\w+)\s*,|^(\w+)::\w+")
#: The framework's own, which a source may add to, but not make its own by that.
_OF_OTHERS = frozenset(
    "aten prim prims quantized quantized_decomposed mkldnn onednn c10d inductor nvprims profiler "
    "rngprims torchvision torchaudio xformers flash_attn triton higher_order".split()
)


def held(tree: ast.AST, is_loader: Callable[[ast.expr], bool]) -> set[str]:
    """Names and attributes that are an extension wherever the source gives them a value, and
    functions that return one. ``is_loader``: whether a call of this builds one."""
    given, others = defaultdict(list), set(_given_otherwise(tree))
    for name, value in _given(tree):
        if name not in others and not _is_none(value):
            given[name].append(value)
    found: set[str] = set()
    while True:
        more = {
            name
            for name, values in given.items()
            if name not in found and all(_is_one(value, found, is_loader) for value in values)
        }
        if not more:
            return found
        found |= more


def is_held(receiver: ast.expr, held: set[str], is_loader: Callable[[ast.expr], bool]) -> bool:
    """Whether a method of ``receiver`` is an extension's function."""
    return _is_one(receiver, held, is_loader)


def registered(tree: ast.AST) -> set[str]:
    """Namespaces under ``torch.ops`` whose operators the source defines."""
    texts = (
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    names = (name for text in texts for match in _REGISTERED.findall(text) for name in match)
    return {name for name in names if name} - _OF_OTHERS


def _is_one(value: ast.expr, held: set[str], is_loader: Callable[[ast.expr], bool]) -> bool:
    if isinstance(value, ast.Call):
        return is_loader(value.func) or _word(value.func) in held
    if isinstance(value, ast.BoolOp | ast.IfExp):
        parts = value.values if isinstance(value, ast.BoolOp) else [value.body, value.orelse]
        kept = [part for part in parts if not _is_none(part)]
        return bool(kept) and all(_is_one(part, held, is_loader) for part in kept)
    if isinstance(value, ast.NamedExpr):
        return _is_one(value.value, held, is_loader)
    return _word(value) in held


def _word(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


def _is_none(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is None


def _given(tree: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """The values of names and attributes, and the results of functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield _word(target), node.value
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            yield _word(node.target), node.value
        elif isinstance(node, ast.FunctionDef):
            for inner in ast.walk(node):
                if isinstance(inner, ast.Return) and inner.value is not None:
                    yield node.name, inner.value


def _given_otherwise(tree: ast.AST) -> Iterator[str]:
    """Names whose value nobody can tell from the text."""
    yield ""
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).partition(".")[0]
        elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension | ast.AugAssign):
            yield from (_word(part) for part in _targets(node.target))
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            yield from (_word(part) for part in _targets(node.optional_vars))
        elif isinstance(node, ast.Assign):
            several = (target for target in node.targets if isinstance(target, ast.Tuple))
            yield from (_word(part) for target in several for part in _targets(target))
        elif isinstance(node, ast.Call) and _word(node.func) == "setattr":
            yield from (
                str(part.value) for part in node.args[1:2] if isinstance(part, ast.Constant)
            )


def _targets(target: ast.expr) -> Iterator[ast.expr]:
    return (part for part in ast.walk(target) if isinstance(part, ast.Name | ast.Attribute))
