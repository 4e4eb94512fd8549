"""C++, CUDA, HIP and OpenCL C, through tree-sitter's grammar of CUDA, which includes the others'.

Where the grammar is at a loss it marks an error and goes on; names are still found around it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

from portkern.guard import rules

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

_NAMES = ("identifier", "type_identifier", "field_identifier", "namespace_identifier")
_SPLICED = re.compile(r"[^\n]*\\\r?\n(?:[^\n]*\\\r?\n)*[^\n]*")
_DIGRAPH = re.compile(r"(?m)^(\s*)%:")  # another way to write #
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_WRITES = re.compile(r"[wa+]")

Found = set[tuple[int, str]]


def read(source: str) -> Found:
    """Lines and rules."""
    root = _parse(_DIGRAPH.sub(r"\1#", _SPLICED.sub(_join, source)))
    reader = _Reader(set(_defined(root)))
    reader.walk(root, 0)
    return reader.found


def _join(match: re.Match[str]) -> str:
    """Lines that end in a backslash are one to the compiler; those below keep their numbers."""
    text = match[0]
    return re.sub(r"\\\r?\n", "", text) + "\n" * text.count("\n")


@cache
def _parser() -> Parser:
    import tree_sitter
    import tree_sitter_cuda

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_cuda.language()))


def _parse(text: str) -> Node:
    return _parser().parse(text.encode("utf-8", "replace")).root_node


def _text(node: Node | None) -> str:
    text = node.text if node is not None else None
    return text.decode("utf-8", "replace") if text is not None else ""


def _nodes(root: Node) -> Iterator[Node]:
    """The tree in reading order, without comments and what ``#if 0`` takes out."""
    stack = [root]
    while stack:
        node = stack.pop()
        if node.type == "comment":
            continue
        yield node
        children = node.children
        if node.type == "preproc_if" and _text(node.child_by_field_name("condition")) == "0":
            otherwise = node.child_by_field_name("alternative")
            children = [otherwise] if otherwise is not None else []
        stack.extend(reversed(children))


def _defined(root: Node) -> Iterator[str]:
    """Functions and macros that the source defines itself, by name."""
    for node in _nodes(root):
        if node.type == "function_definition":
            yield _function_name(node)
        elif node.type == "preproc_function_def":
            yield _text(node.child_by_field_name("name"))


def _function_name(definition: Node) -> str:
    """'' for methods, which are called through their objects."""
    node = definition.child_by_field_name("declarator")
    while node is not None and node.type != "identifier":
        node = node.child_by_field_name("declarator")
    return _text(node)


def _is_c(definition: Node) -> bool:
    """Whether its name is as written: C++ changes those that are not ``extern "C"``."""
    above = definition.parent
    while above is not None and above.type != "linkage_specification":
        above = above.parent
    return above is not None


class _Reader:
    def __init__(self, own: set[str]) -> None:
        self.own = own
        self.found: Found = set()

    def walk(self, root: Node, above: int) -> None:
        """``above``: lines before ``root``, which may be the text of a macro."""
        for node in _nodes(root):
            look = getattr(self, f"_{node.type}", None)
            for rule in look(node) if look else ():
                self.found.add((above + node.start_point[0] + 1, rule))
            if node.type in ("preproc_def", "preproc_function_def"):
                self._macro(node, above)

    def _macro(self, node: Node, above: int) -> None:
        body = _text(node.child_by_field_name("value")).strip()
        line = above + node.start_point[0]
        if re.fullmatch(r"[<\"].*[>\"]", body):  # for an #include MACRO
            self.found |= {(line + 1, rule) for rule in _header(body[1:-1])}
        elif re.fullmatch(r"(::|std::)?\w+", body) and body not in self.own:
            body += "();"  # a new name for a function
        body = re.sub(r"\s*##\s*", "", body).replace("#", "")
        self.walk(_parse(body + "\n"), line)

    def _preproc_include(self, node: Node) -> Iterator[str]:
        yield from _header(_text(node.child_by_field_name("path")).strip('<>"'))

    def _preproc_call(self, node: Node) -> Iterator[str]:
        directive = _text(node.child_by_field_name("directive")).replace(" ", "")
        if directive == "#pragma":
            yield from _pragma(_text(node.child_by_field_name("argument")))
        elif directive in ("#embed", "#include"):
            yield "G403" if directive == "#embed" else "G501"

    def _attribute_specifier(self, node: Node) -> Iterator[str]:
        text = _COMMENT.sub("", _text(node))
        if rules.AT_LOAD.search(text):
            yield "G402"
        if rules.FAST_MATH.search(text):
            yield "G401"

    _attribute_declaration = _attribute_specifier

    def _gnu_asm_expression(self, node: Node) -> Iterator[str]:
        code = _text(node.child_by_field_name("assembly_code"))
        if rules.ASM_READS.search(code):
            yield "G403"
        yield "G405" if rules.ASM_CALLS.search(code) else "G404"

    def _function_definition(self, node: Node) -> Iterator[str]:
        name = _function_name(node)
        if rules.RUNTIME_FUNCTION.fullmatch(name) and _is_c(node):
            yield "G205"

    def _identifier(self, node: Node) -> Iterator[str]:
        name, parent = _text(node), node.parent
        rule = rules.NATIVE.get(name)
        if rule and (name not in self.own or _text(parent) == f"::{name}"):
            yield rule

    def _qualified_identifier(self, node: Node) -> Iterator[str]:
        text = re.sub(r"\s", "", _text(node)).removeprefix("::")
        for name, rule in rules.NATIVE_TYPES.items():
            if text == name or text.startswith((f"{name}::", f"{name}<")):
                yield rule

    def _pointer_expression(self, node: Node) -> Iterator[str]:
        name = _text(node.child_by_field_name("argument")).removeprefix("::").removeprefix("std::")
        if _text(node).startswith("&") and name not in self.own and name in ("system", "exit"):
            yield rules.NATIVE_CALLS[name]

    def _call_expression(self, node: Node) -> Iterator[str]:
        function = node.child_by_field_name("function")
        if function is None or function.type not in ("identifier", "qualified_identifier"):
            return
        path = re.sub(r"\s", "", _text(function)).split("::")
        name, scope = path[-1], path[:-1]
        if name == "_Pragma":
            yield from _pragma("".join(_arguments(node)).replace('\\"', '"'))
        home = next(filter(None, scope), "")
        if home in rules.VENDOR_NAMESPACES:
            yield "G302"
        if home in rules.TORCH_NAMESPACES and _is_operator(name, scope):
            yield "G301"
        if scope not in ([], [""], ["std"]) or (not scope and name in self.own):
            return
        yield from called(name, _arguments(node))


def _is_operator(name: str, scope: list[str]) -> bool:
    """``torch::softmax``, and not ``torch::empty``, ``torch::Device`` or ``at::cuda::x``."""
    inner = [part for part in scope if part][1:]
    if inner and inner[0] not in ("nn", "_ops"):
        return False
    return name not in rules.TORCH_GLUE and not name[:1].isupper()


def called(name: str, arguments: list[str]) -> Iterator[str]:
    """``name(arguments)`` in C, or through a library that Python opened."""
    text = [argument.strip('"') for argument in arguments]
    if rules.VENDOR_CALL.fullmatch(name):
        yield "G302"
    if name in ("dlopen", "dlmopen") and any(map(rules.VENDOR_LIBRARY.search, text)):
        yield "G302"
    if name in rules.NATIVE_FILES and arguments:
        if any(rules.PROCESS_FILE.match(part) for part in text[:2]):
            yield "G103"
        elif _writes(name, arguments) and not text[0].startswith(rules.TEMPORARY):
            yield "G104"
        else:
            yield "G108"
    elif name in rules.NATIVE_CALLS:
        yield rules.NATIVE_CALLS[name]


def _writes(name: str, arguments: list[str]) -> bool:
    """Whether a file with a name in the source is changed."""
    if not arguments[0].startswith('"'):
        return False
    if name in ("fopen", "freopen"):
        return len(arguments) > 1 and bool(_WRITES.search(arguments[1]))
    if name in ("open", "openat"):
        return any(re.search(r"O_(WRONLY|RDWR|CREAT|TRUNC|APPEND)", a) for a in arguments[1:])
    return True


def _arguments(call: Node) -> list[str]:
    """The arguments as written; neighbouring strings are one, as for the compiler."""
    listed = call.child_by_field_name("arguments")
    children = [c for c in listed.named_children if c.type != "comment"] if listed else []
    return [re.sub(r'"\s*"', "", _text(c)) or '""' for c in children]


def _header(path: str) -> Iterator[str]:
    if path.startswith("/") or ".." in path.split("/"):
        yield "G403"
    for rule, pattern in rules.HEADERS.items():
        if pattern.match(path):
            yield rule


def _pragma(text: str) -> Iterator[str]:
    if rules.FAST_MATH.search(_COMMENT.sub("", text)):
        yield "G401"
