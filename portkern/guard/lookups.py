"""Texts that lead a Python source to the evaluator's modules, where they are looked up.

A name of a module is an ordinary text until something in the source imports, or reads names, by
text: then neither the way of the text there nor the way of the lookup matters.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from portkern.guard import rules
from portkern.guard.tree import constant


@dataclass
class Lookups:
    """Facts about a source's parts, seen in any order; ``hits`` once all have been seen."""

    by_text: bool = False
    of_own_names: bool = False
    texts: list[ast.AST] = field(default_factory=list)
    relative_imports: list[ast.AST] = field(default_factory=list)

    def name(self, name: str) -> None:
        """A dotted name that is used."""
        self.by_text |= _is_in(name, rules.LOOKUPS)
        self.of_own_names |= _is_in(name, rules.NAMESPACES)

    def attribute(self, name: str) -> None:
        """An attribute of any object; '' if that is known at run time alone."""
        self.by_text |= not name or name in rules.LOOKUP_ATTRIBUTES

    def text(self, node: ast.expr) -> None:
        text = constant(node)
        if isinstance(node, ast.Constant) and isinstance(node.value, bytes):
            named = b"portkern" in node.value  # in a pickle, say
        else:
            named = text is not None and rules.EVALUATOR_TEXT.fullmatch(text) is not None
        if named:
            self.texts.append(node)

    def hits(self) -> Iterator[ast.AST]:
        if self.by_text:
            yield from self.texts
        # A candidate is in no package, so they fail unless it says by text that it is in one.
        if self.of_own_names:
            yield from self.relative_imports


def _is_in(name: str, modules: frozenset[str]) -> bool:
    """Whether it is among them, or in one."""
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return bool(name)
