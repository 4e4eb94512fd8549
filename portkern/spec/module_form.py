"""How a class ``ModelNew`` is constructed and called in place of an operator's own ``Model``."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from portkern.spec.foreign_text import python_tree
from portkern.spec.from_torch.traced import Argument

#: The class that a candidate defines, as KernelBench calls it.
CLASS = "ModelNew"
#: Ways to give a file's numbers other values that are tried before the sizes count as fixed.
_MOST_CHOICES = 64


@dataclass(frozen=True)
class ModuleForm:
    """``constructor``: Python that defines ``get_init_inputs``, empty where the class takes
    nothing; it holds nothing of the operator's own code. ``state``: inputs that stand for a
    parameter or buffer, and its name in the module. ``arguments``: what ``forward`` takes, in
    order. ``numbers``: the file's top-level integers; one with an axis' name is as long as it.
    ``lengths``: those of the axes in the file.
    """

    constructor: str = ""
    state: Mapping[str, str] = field(default_factory=dict)
    arguments: tuple[Argument, ...] = ()
    numbers: Mapping[str, int] = field(default_factory=dict)
    lengths: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ModuleForm:
        arguments = tuple(Argument(one["name"], one["value"]) for one in data["arguments"])
        mappings = {key: dict(data[key]) for key in ("state", "numbers", "lengths")}
        return cls(data["constructor"], arguments=arguments, **mappings)

    def choices(self, dims: Mapping[str, int]) -> Iterator[dict[str, int]]:
        """Values of the file's numbers for these lengths: first those with an axis' name, then
        with others that are as long in the file as an axis that no number is named after."""
        named = {name: dims[name] for name in self.numbers if name in dims}
        yield named
        options = {axis: self._candidates(axis) for axis in self._unnamed(dims)}
        several = itertools.product(*([None, *names] for names in options.values()))
        for names in itertools.islice(several, 1, _MOST_CHOICES):
            chosen = zip(options, names, strict=True)
            yield named | {name: dims[axis] for axis, name in chosen if name is not None}

    def fixed(self, dims: Mapping[str, int], shapes: Mapping[str, tuple[int | str, ...]]) -> str:
        """The first axis of a parameter whose length in ``dims`` no constructor can be told;
        '' where there is none. ``shapes`` are those of the inputs."""
        used = {axis for name in self.state for axis in shapes[name] if isinstance(axis, str)}
        unnamed = [axis for axis in self._unnamed(dims) if axis in used]
        return next((axis for axis in unnamed if not self._candidates(axis)), "")

    def _unnamed(self, dims: Mapping[str, int]) -> list[str]:
        """Axes of another length than in the file that no number is named after."""
        return [
            axis
            for axis, length in self.lengths.items()
            if axis not in self.numbers and dims.get(axis, length) != length
        ]

    def _candidates(self, axis: str) -> list[str]:
        return [
            name
            for name, value in self.numbers.items()
            if value == self.lengths[axis] and name not in self.lengths
        ]


def defines_class(source: str) -> bool:
    """Whether a Python source defines :data:`CLASS` at its top level."""
    if CLASS not in source:
        return False
    try:
        body = python_tree(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return any(isinstance(node, ast.ClassDef) and node.name == CLASS for node in body)


def constructor_source(text: str, operator: str) -> str:
    """The part of a file that says what its class is constructed with: ``get_init_inputs`` and
    what it is made of. Empty where the file says nothing, or needs the class itself for it."""
    body = python_tree(text).body
    defined: dict[str, ast.stmt] = {}
    for node in body:
        for name in _bound(node):
            defined[name] = node
    own = defined.get(operator)
    start = _declared(own) or defined.get("get_init_inputs")
    if start is None:
        return ""
    needed: dict[int, ast.stmt] = {}
    todo = [start]
    while todo:
        node = todo.pop()
        if node is own:
            return ""
        if id(node) not in needed:
            needed[id(node)] = node
            names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
            todo += [defined[name] for name in names if name in defined]
    kept = [node for node in body if id(node) in needed]
    kept += [start] if start not in kept else []
    return "\n".join(map(ast.unparse, kept)) + "\n"


def _declared(own: ast.stmt | None) -> ast.stmt | None:
    """``@portkern.operator(arguments=[...])`` as a function."""
    for decorator in own.decorator_list if isinstance(own, ast.ClassDef) else ():
        for keyword in decorator.keywords if isinstance(decorator, ast.Call) else ():
            if keyword.arg == "arguments":
                value = ast.unparse(keyword.value)
                return ast.parse(f"def get_init_inputs():\n    return {value}").body[0]
    return None


def _bound(node: ast.stmt) -> Iterator[str]:
    """The names that a statement of a module gives something to."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Import | ast.ImportFrom):
        for alias in node.names:
            yield alias.asname or alias.name.partition(".")[0]
    else:
        for part in ast.walk(node):
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                yield part.id


def integers(text: str) -> dict[str, int]:
    """The integers that a file's top level names, by name."""
    known: dict[str, int] = {}
    for node in python_tree(text).body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            pairs = _pairs(node.targets[0], node.value)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            pairs = _pairs(node.target, node.value)
        else:
            continue
        known |= dict(pairs)
    return known


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, int]]:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for part, other in zip(target.elts, value.elts, strict=False):
            yield from _pairs(part, other)
    elif isinstance(target, ast.Name) and isinstance(value, ast.Constant):
        if type(value.value) is int:
            yield target.id, value.value
