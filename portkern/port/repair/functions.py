"""The functions of a source, and whose they are: the device's or the host's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from portkern.cuda_source.syntax import Syntax

if TYPE_CHECKING:
    from tree_sitter import Node

_DEVICE = re.compile(r"\b__(?:device|global)__\b")
_MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)[^\n]*\b__(?:device|global)__\b", re.M)
_NAME = re.compile(r"(~?\w+)\s*(?:<[^()]*>)?\s*$")


@dataclass(frozen=True)
class RepairFunction:
    """A definition, with ``template <…>`` and its body; offsets are in characters."""

    name: str
    start: int
    stop: int
    text: str
    device: bool
    kernel: bool

    @property
    def span(self) -> tuple[int, int]:
        return self.start, self.stop


def functions(source: Syntax) -> tuple[RepairFunction, ...]:
    """Kernels as :attr:`Syntax.kernels` has them, all others as the tree has; none that stands
    within another."""
    kernels = [
        RepairFunction(k.name, k.start, k.stop, source.text[k.start : k.stop], True, True)
        for k in source.kernels
    ]
    spans = [function.span for function in kernels]
    others: list[RepairFunction] = []
    marks = set(_MACRO.findall(source.text))
    for node in _definitions(source):
        start, stop = source.span(node)
        if any(start < last and first < stop for first, last in spans):
            continue
        spans.append((start, stop))
        others.append(_function(source, node, marks))
    return tuple(sorted([*kernels, *others], key=lambda function: function.start))


def _definitions(source: Syntax) -> Iterator[Node]:
    for node in source.nodes("template_declaration", "function_definition"):
        if node.type == "function_definition" or any(
            child.type == "function_definition" for child in node.children
        ):
            yield node


def _function(source: Syntax, node: Node, marks: set[str]) -> RepairFunction:
    start, stop = source.span(node)
    text = source.text[start:stop]
    body = next((child for child in _inner(node) if child.type == "compound_statement"), None)
    head = text[: source.span(body)[0] - start] if body is not None else text
    device = bool(_DEVICE.search(head) or marks & set(re.findall(r"\w+", head)))
    return RepairFunction(_name(source, node), start, stop, text, device, False)


def _inner(node: Node) -> list[Node]:
    """Children of the definition itself, without a template's head."""
    inner = next((c for c in node.children if c.type == "function_definition"), node)
    return inner.children


def _name(source: Syntax, node: Node) -> str:
    declarator = next((c for c in _inner(node) if c.type.endswith("declarator")), None)
    while declarator is not None and declarator.type != "function_declarator":
        declarator = next((c for c in declarator.children if c.type.endswith("declarator")), None)
    if declarator is None:
        return ""
    match = _NAME.search(source.text_of(declarator.child_by_field_name("declarator")))
    return match[1] if match else ""
