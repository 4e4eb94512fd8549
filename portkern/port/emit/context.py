"""The macros, constants, types and functions beside a kernel in its file that it needs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from portkern.cuda_source import syntax
from portkern.cuda_source.lexer import Kind, tokenize
from portkern.cuda_source.syntax import Syntax
from portkern.port.emit.rewriting import declared_name
from portkern.port.proof.texts import SourceTexts

if TYPE_CHECKING:
    from tree_sitter import Node

ItemKind = Literal["macro", "constant", "type", "function"]
_INSIDE = (
    "translation_unit preproc_if preproc_ifdef preproc_else preproc_elif namespace_definition "
    "declaration_list linkage_specification"
).split()
_CONSTANT = re.compile(r"\b(const|constexpr|__constant__)\b")


@dataclass(frozen=True)
class Item:
    """A declaration at the top of a file, and the line it begins on."""

    names: frozenset[str]
    kind: ItemKind
    text: str
    line: int


class EmitContext:
    """The declarations of a file, and of its project's headers that come before it."""

    def __init__(self, texts: SourceTexts) -> None:
        self._texts = texts
        self._before = texts.whole.count("\n") - texts.own.text.count("\n")

    @cached_property
    def _items(self) -> tuple[Item, ...]:
        read = syntax.parse(self._texts.whole)
        return tuple(_items(read, read.root))

    def needed(self, text: str) -> tuple[Item, ...]:
        """The items to which the text's names lead, in the order of the file. Lines are the file's
        own, and below 1 for those of a header."""
        by_name: dict[str, list[Item]] = {}
        for item in self._items:
            for name in item.names:
                by_name.setdefault(name, []).append(item)
        chosen: dict[int, Item] = {}
        queue = [text]
        while queue:
            for name in names_in(queue.pop()):
                for item in self._chosen(by_name.get(name, [])):
                    if id(item) not in chosen:
                        chosen[id(item)] = item
                        queue.append(item.text)
        return tuple(
            Item(item.names, item.kind, item.text, item.line - self._before)
            for item in self._items
            if id(item) in chosen
        )

    def _chosen(self, items: list[Item]) -> list[Item]:
        """The items that a name means: all overloads of a function; of several other items in
        branches of the preprocessor the first, or, where they define a type, the one with the alias
        that the source chooses."""
        if all(item.kind == "function" for item in items):
            return items
        first = items[0]
        name = next(iter(first.names))
        alias = self._texts.aliases.get(name)
        if alias and first.kind == "type":
            return [
                next((i for i in items if re.search(rf"\b{re.escape(alias)}\b", i.text)), first)
            ]
        return [first]


def names_in(text: str) -> set[str]:
    return {token.text for token in tokenize(text) if token.kind is Kind.NAME}


def _items(read: Syntax, parent: Node) -> Iterator[Item]:
    for node in parent.children:
        if node.type in _INSIDE:
            yield from _items(read, node)
            continue
        item = _item(read, node)
        if item is not None:
            yield item


def _item(read: Syntax, node: Node) -> Item | None:
    text = read.text_of(node).strip()
    line = node.start_point.row + 1
    if node.type in ("preproc_def", "preproc_function_def"):
        name = read.text_of(node.child_by_field_name("name"))
        value = read.text_of(node.child_by_field_name("value")).strip()
        return Item(frozenset([name]), "macro", text, line) if value else None
    inner = node
    if node.type == "template_declaration":
        inner = node.named_children[-1]
    if inner.type == "function_definition":
        if "__global__" in text.split("{")[0]:
            return None
        declarator = inner.child_by_field_name("declarator")
        found = declared_name(declarator) if declarator else None
        name = read.text_of(found)
        return Item(frozenset([name]), "function", text, line) if name not in ("", "main") else None
    return _declared(read, inner, text, line)


def _declared(read: Syntax, node: Node, text: str, line: int) -> Item | None:
    if node.type in ("struct_specifier", "enum_specifier", "union_specifier", "alias_declaration"):
        names = {read.text_of(node.child_by_field_name("name"))}
        names |= {
            read.text_of(value.child_by_field_name("name"))
            for body in node.named_children
            for value in body.named_children
            if value.type == "enumerator"
        }
        whole = text if text.endswith(";") else f"{text};"
        return Item(frozenset(names - {""}), "type", whole, line)
    if node.type == "type_definition":
        names = {read.text_of(d) for d in node.children_by_field_name("declarator")}
        return Item(frozenset(names), "type", text, line)
    if node.type == "declaration":
        is_type = any(c.type in ("struct_specifier", "enum_specifier") for c in node.children)
        declarators = node.children_by_field_name("declarator")
        named = {read.text_of(declared_name(d)) for d in declarators}
        if is_type and not declarators:
            kinds = [c for c in node.children if c.type.endswith("_specifier")]
            return _declared(read, kinds[-1], text, line)
        if _CONSTANT.search(text.split("=")[0]) or "__device__" in text:
            is_function = any(d.type == "function_declarator" for d in declarators)
            return None if is_function else Item(frozenset(named), "constant", text, line)
    return None


def expanded(text: str, items: Iterable[Item]) -> str:
    """Calls of macros with pointer casts in them written out, for what they cast is only seen
    where they are used. One level deep in arguments, any number of calls."""
    for item in items:
        head = re.match(r"#\s*define\s+(\w+)\(([^)]*)\)(.*)", item.text, re.DOTALL)
        if item.kind != "macro" or head is None or not re.search(r"\*\s*[>)]", head[3]):
            continue
        body = re.sub(r"\\\r?\n", " ", head[3]).strip()
        names = [name.strip() for name in head[2].split(",")]
        text = _calls_replaced(text, head[1], names, body)
    return text


def _calls_replaced(text: str, name: str, parameters: list[str], body: str) -> str:
    for _ in range(1000):
        match = re.search(rf"\b{re.escape(name)}\s*\(", text)
        if match is None:
            return text
        arguments, end = _arguments(text, match.end())
        given = dict(zip(parameters, arguments, strict=False))
        filled = filled_in(body, given)
        text = f"{text[: match.start()]}{filled}{text[end:]}"
    return text


def filled_in(text: str, given: Mapping[str, str]) -> str:
    """The text with the ``given`` names replaced."""
    return re.sub(r"[A-Za-z_]\w*", lambda word: given.get(word[0], word[0]), text)


def _arguments(text: str, at: int) -> tuple[list[str], int]:
    """The arguments of the call whose parenthesis is open before ``at``, and where it ends."""
    depth, begin = 1, at
    arguments: list[str] = []
    while at < len(text) and depth:
        depth += (text[at] in "([{") - (text[at] in ")]}")
        if (text[at] == "," and depth == 1) or depth == 0:
            arguments.append(text[begin:at].strip())
            begin = at + 1
        at += 1
    return arguments, at
