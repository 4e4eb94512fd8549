"""A text with its syntax tree, and replacements of parts of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from portkern.cuda_source import syntax

if TYPE_CHECKING:
    from tree_sitter import Node


class Rewriting:
    """Offsets are the tree's, in bytes. Of two replacements that overlap the outer one, which is
    asked for later, holds the inner one's text only if it was made with ``now``."""

    def __init__(self, text: str) -> None:
        self._syntax = syntax.parse(text)
        self.root = self._syntax.root
        self._bytes = text.encode("utf-8", "replace")
        self._edits: dict[tuple[int, int], str] = {}

    def replace(self, node: Node, text: str) -> None:
        self._edits[node.start_byte, node.end_byte] = text

    def insert(self, at: int, text: str) -> None:
        self._edits[at, at] = self._edits.get((at, at), "") + text

    def text(self, node: Node | None) -> str:
        """The text of a node as it was read."""
        return self._syntax.text_of(node)

    def now(self, node: Node) -> str:
        return self.between(node.start_byte, node.end_byte)

    def between(self, begin: int, end: int) -> str:
        """The range with what was replaced in it."""
        inside = sorted(
            (span, text)
            for span, text in self._edits.items()
            if begin <= span[0] and span[1] <= end
        )
        pieces, at = [], begin
        for (first, last), text in inside:
            if first < at or (first == last == end and end < len(self._bytes)):
                continue  # within a replaced part, or before what follows the range
            pieces += [self._decoded(at, first), text]
            at = last
        return "".join([*pieces, self._decoded(at, end)])

    @property
    def whole(self) -> str:
        return self.between(0, len(self._bytes))

    def _decoded(self, begin: int, end: int) -> str:
        return self._bytes[begin:end].decode("utf-8", "replace")


def walk(node: Node, *types: str, within: bool = True) -> Iterator[Node]:
    """The nodes of these types (all, when none is named) in reading order, without comments;
    with ``within`` those in lambdas too."""
    stack = [node]
    while stack:
        inner = stack.pop()
        if inner.type == "comment" or (not within and inner.type == "lambda_expression"):
            continue
        if not types or inner.type in types:
            yield inner
        stack.extend(reversed(inner.children))


def line_of(node: Node) -> int:
    """The line of a node, counted from 0."""
    return int(node.start_point.row)


def declared_name(declarator: Node) -> Node | None:
    """The identifier that a declarator, of an array or a pointer too, gives a meaning."""
    inner: Node | None = declarator
    while inner is not None and inner.type not in ("identifier", "type_identifier"):
        field = inner.child_by_field_name("declarator")
        named = [child for child in inner.named_children if child.type != "type_qualifier"]
        inner = field or (named[-1] if inner.type == "reference_declarator" and named else None)
    return inner
