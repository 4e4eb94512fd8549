"""Barriers that some threads of a block might not reach, which OpenCL does not allow."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from portkern.port.emit.phases import has_barrier
from portkern.port.emit.rewriting import Rewriting, declared_name, line_of, walk

if TYPE_CHECKING:
    from tree_sitter import Node

#: No member, and no suffix of a number.
_VARIABLE = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
_CONDITIONAL = (
    "if_statement for_statement while_statement do_statement conditional_expression "
    "switch_statement"
).split()


def divergence(source: Rewriting, body: Node) -> tuple[str, int] | None:
    """Why, and the line from 0, for a barrier or a return before one under a condition that
    depends on the thread."""
    barriers = [c for c in walk(body, "call_expression") if has_barrier(c)]
    if not barriers:
        return None
    varying = _varying(source, body)
    last = max(barrier.start_byte for barrier in barriers)
    for node in [*barriers, *walk(body, "return_statement", within=False)]:
        if node.start_byte <= last and _is_conditional(source, node, body, varying):
            if node.type == "return_statement":
                return "threads that return here never reach the barrier below", line_of(node)
            return "a barrier under a condition that depends on the thread", line_of(node)
    return None


def _varying(source: Rewriting, body: Node) -> set[str]:
    """Names whose values differ from thread to thread, as far as assignments show."""
    names = {"threadIdx"}
    pairs: list[tuple[str, set[str]]] = []
    for node in walk(body, "init_declarator", "assignment_expression"):
        left = node.child_by_field_name("declarator") or node.child_by_field_name("left")
        right = node.child_by_field_name("value") or node.child_by_field_name("right")
        name = source.text(declared_name(left)) if left is not None else ""
        if not name and left is not None:
            name = (re.findall(r"\w+", source.text(left)) or [""])[0]
        pairs.append((name, set(_VARIABLE.findall(source.text(right)))))
    grown = True
    while grown:
        new = {name for name, used in pairs if used & names} - names
        names |= new
        grown = bool(new)
    return names


def _is_conditional(source: Rewriting, node: Node, body: Node, varying: set[str]) -> bool:
    inner: Node | None = node
    while inner is not None and inner.id != body.id:
        inner = inner.parent
        if inner is None or inner.type not in _CONDITIONAL:
            continue
        condition = inner.child_by_field_name("condition")
        if set(_VARIABLE.findall(source.text(condition))) & varying:
            return True
    return False
