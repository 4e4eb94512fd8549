"""C++, CUDA, HIP and OpenCL C, through tree-sitter's grammar of CUDA, which includes the others'.

Where the grammar is at a loss it marks an error and goes on; names are still found around it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from portkern.cuda_source import launches, tree
from portkern.cuda_source.comments import without_comments
from portkern.cuda_source.lexer import tokenize
from portkern.cuda_source.source_map import SourceMap
from portkern.guard import rules

if TYPE_CHECKING:
    from tree_sitter import Node

_NAMES = ("identifier", "type_identifier", "field_identifier", "namespace_identifier")
_DIGRAPH = "%:"  # another way to write #; behind a comment it begins a line, too
_BLANKS = " \t\v\f\r"
_RETURN = re.compile(r"\r(?!\n)")  # the end of a line to compilers, also of a comment
_GLOBAL = re.compile(rb"(?:[^\w>])?::", re.DOTALL)
_WRITES = re.compile(r"[wa+]")
_MAPS = ("mmap", "mmap64")
_HEADER_NAME = re.compile(
    r"(?m)^[^\S\n]*#[^\S\n]*((include\w*|import)[^\S\n]*<[^>\n]*>|define\s+\w+\s*<[\w/]+\.\w+>)\s*?$"
)
#: Levels of a tree that is read: what a look at each part takes grows with all that is in it.
_DEEPEST = 6_000
#: Directives that the grammar reads as calls of the preprocessor, having no node for them.
_INCLUDES = ("#include", "#include_next", "#import")

Found = set[tuple[int, str]]


def read(source: str) -> Found:
    """Lines and rules."""
    return {(line, rule) for _, line, rule in read_all({"": source}, lambda *_: False)}


def read_all(
    texts: Mapping[str, str], is_own: Callable[[str, str], bool]
) -> set[tuple[str, int, str]]:
    """The same of files that include each other, with the file's name: what one of them defines,
    all know. ``is_own(file, target)``: whether what a file includes, in its quotation marks or
    brackets, is another of them."""
    joined = {name: _joined(text).replace(_DIGRAPH, "#") for name, text in texts.items()}
    try:
        return _read_joined(joined, is_own)
    except tree.TooLong:
        return {(next(iter(texts), ""), 1, "G406")}


def _read_joined(
    joined: Mapping[str, str], is_own: Callable[[str, str], bool]
) -> set[tuple[str, int, str]]:
    roots = {name: tree.root(text) for name, text in joined.items()}
    deep = {(name, 1, "G406") for name, root in roots.items() if tree.is_deeper(root, _DEEPEST)}
    if deep:
        return deep
    own = {name for root in roots.values() for name in _defined(root)}
    macros = _own_macros(roots.values())
    readers = {
        name: _Reader(own, macros, partial(is_own, name), launches.lines(SourceMap(text)))
        for name, text in joined.items()
    }
    for name, reader in readers.items():
        reader.walk(roots[name], 0)
    libraries = {names for reader in readers.values() for names in reader.libraries}
    for name, text in joined.items() if libraries else ():
        readers[name].places |= {(line, "G302") for line in _uses(text, libraries, own)}
    used = {rule for reader in readers.values() for _, rule in reader.places}
    return {
        (name, line, rule)
        for name, reader in readers.items()
        for line, rule in reader.places | reader.in_company(used)
    }


def _uses(text: str, libraries: Collection[re.Pattern[str]], own: Collection[str]) -> Iterator[int]:
    """The lines with a name of a library whose header is included, wherever it stands, or with
    what names are put together by. The source's own functions may be called as Fortran's are."""
    for token in tokenize(_HEADER_NAME.sub("", text)):
        if token.text in ("##", "\\") or any(
            match and not (match.lastgroup == "fortran" and token.text in own)
            for match in (names.fullmatch(token.text) for names in libraries)
        ):
            yield token.line


def _joined(text: str) -> str:
    """Lines that end in a backslash, or in one and blanks, are one to the compiler; those below
    keep their numbers, as editors count them."""
    lines: list[str] = []
    begun: list[str] = []
    for line in _RETURN.sub("\n", text).split("\n"):
        plain = line.rstrip(_BLANKS)
        if plain.endswith("\\"):
            begun.append(plain[:-1])
        else:
            lines += ["".join([*begun, line]), *[""] * len(begun)]
            begun = []
    if begun:  # nothing follows the last backslash
        lines += ["".join(begun) + "\\", *[""] * (len(begun) - 1)]
    return "\n".join(lines)


def _defined(root: Node) -> Iterator[str]:
    """Functions and macros that the source defines itself, by name."""
    for node in tree.nodes(root):
        if node.type == "function_definition":
            yield _function_name(node)
        elif node.type == "preproc_function_def":
            yield tree.text(node.child_by_field_name("name"))


def _own_macros(roots: Iterable[Node]) -> set[str]:
    """The macros that the source defines whatever else is defined, and does not ask for."""
    asked: set[str] = set()
    own: set[str] = set()
    for node in (node for root in roots for node in tree.nodes(root)):
        if node.type in _CONDITIONALS:
            asked |= set(re.findall(r"\w+", _condition(node)))
        elif node.type in ("preproc_def", "preproc_function_def") and not _is_conditional(node):
            own.add(tree.text(node.child_by_field_name("name")))
    return own - asked


_CONDITIONALS = ("preproc_if", "preproc_ifdef", "preproc_elif", "preproc_elifdef")


def _condition(conditional: Node) -> str:
    asked = conditional.child_by_field_name("condition") or conditional.child_by_field_name("name")
    return tree.text(asked)


def _is_conditional(node: Node) -> bool:
    above = node.parent
    while above is not None and above.type not in _CONDITIONALS:
        above = above.parent
    return above is not None


def _function_name(definition: Node) -> str:
    """'' for methods, which are called through their objects."""
    node = definition.child_by_field_name("declarator")
    while node is not None and node.type != "identifier":
        node = node.child_by_field_name("declarator")
    return tree.text(node)


def _is_c(definition: Node) -> bool:
    """Whether its name is as written: C++ changes those that are not ``extern "C"``."""
    above = definition.parent
    while above is not None and above.type != "linkage_specification":
        above = above.parent
    return above is not None


class _Reader:
    """``launching`` are the lines on which launches stand."""

    def __init__(
        self,
        own: set[str],
        macros: set[str],
        is_own: Callable[[str], bool],
        launching: Collection[int],
    ) -> None:
        self.own, self.macros, self.is_own, self.launching = own, macros, is_own, launching
        self.places: Found = set()
        self.above = self.begin = 0
        self.text = b""
        self.process_files: set[int] = set()
        self.executor_texts: set[int] = set()
        self.libraries: set[re.Pattern[str]] = set()  # the names of those that are included

    def walk(self, root: Node, above: int) -> None:
        """``above``: lines before ``root``, which may be the text of a macro."""
        whole, self.text = self.text, root.text or b""
        begin, self.begin = self.begin, root.start_byte
        for node in tree.nodes(root):
            self.above = above
            look = getattr(self, f"_{node.type}", None)
            for rule in look(node) if look else ():
                self.places.add((above + node.start_point[0] + 1, rule))
            if node.type in ("preproc_def", "preproc_function_def"):
                self._macro(node, above)
        self.text, self.begin = whole, begin

    def _macro(self, node: Node, above: int) -> None:
        body = tree.text(node.child_by_field_name("value")).strip()
        line = above + node.start_point[0]
        if re.fullmatch(r"[<\"].*[>\"]", body):  # for an #include MACRO
            self.places |= {(line + 1, rule) for rule in self._header(body)}
        elif re.fullmatch(r"(::|std::)?\w+", body) and body not in self.own:
            body += "();"  # a new name for a function
        body = re.sub(r"\s*##\s*", "", body).replace("#", "")
        self.walk(tree.root(body + "\n"), line)

    def _preproc_include(self, node: Node) -> Iterator[str]:
        yield from self._included(tree.text(node.child_by_field_name("path")))

    def _included(self, target: str) -> Iterator[str]:
        """The rules that an included header breaks; what a macro names may be anything, in
        whatever way it is put together."""
        if target[:1] in ("<", '"'):
            yield from self._header(target)
        else:
            self.libraries |= {names for _, names in rules.LIBRARIES}
            yield "G408"

    def _header(self, path: str) -> Iterator[str]:
        if not self.is_own(path):
            path = path.strip('<>"')
            self.libraries |= {names for begin, names in rules.LIBRARIES if begin.match(path)}
            yield from _header(path)

    def _preproc_call(self, node: Node) -> Iterator[str]:
        directive = tree.text(node.child_by_field_name("directive")).replace(" ", "")
        if directive == "#pragma":
            yield from _pragma(tree.text(node.child_by_field_name("argument")))
        elif directive in ("#embed", "#include"):
            yield "G403" if directive == "#embed" else "G501"
        if directive in _INCLUDES:
            target = without_comments(tree.text(node.child_by_field_name("argument"))).strip()
            yield from self._included(target)

    def _attribute_specifier(self, node: Node) -> Iterator[str]:
        text = without_comments(tree.text(node), "")
        if rules.AT_LOAD.search(text):
            yield "G402"
        elif rules.SECTION.search(text):
            yield "G407"
        if rules.FAST_MATH.search(text):
            yield "G401"

    _attribute_declaration = _attribute_specifier

    def _gnu_asm_expression(self, node: Node) -> Iterator[str]:
        code = tree.text(node.child_by_field_name("assembly_code"))
        if rules.EXECUTOR_TEXT.search(code):
            yield "G206"
        if rules.ASM_READS.search(code):
            yield "G403"
        if rules.ASM_AT_LOAD.search(code):
            yield "G402"
        elif rules.ASM_BYTES.search(code):
            yield "G407"
        yield "G405" if rules.ASM_CALLS.search(code) else "G404"

    def _function_definition(self, node: Node) -> Iterator[str]:
        name = _function_name(node)
        if rules.RUNTIME_FUNCTION.fullmatch(name) and _is_c(node):
            yield "G205"

    def _identifier(self, node: Node) -> Iterator[str]:
        name = tree.text(node)
        rule = rules.NATIVE.get(name)
        if rule and (name not in self.own or self._is_global(node)):
            yield rule
        elif name in _MAPS and name not in self.own and not _is_called(node):
            yield "G407"  # it would be called by another name
        elif rules.EXECUTOR_MACRO.fullmatch(name) and name not in self.macros:
            yield "G206"
        elif rules.EXECUTOR_FUNCTION.fullmatch(name) and name not in self.own:
            yield "G206"

    def _is_global(self, name: Node) -> bool:
        """Whether ``::`` stands before it, and no scope. A node's parent is looked for from the
        root."""
        at = name.start_byte - self.begin
        return _GLOBAL.fullmatch(self.text[max(at - 3, 0) : at]) is not None

    def _namespace_identifier(self, node: Node) -> Iterator[str]:
        if tree.text(node) == rules.EXECUTOR_NAMESPACE:
            yield "G206"

    def _using_declaration(self, node: Node) -> Iterator[str]:
        if rules.EXECUTOR_NAMESPACE in re.findall(r"\w+", tree.text(node)):
            yield "G206"

    def _string_literal(self, node: Node) -> Iterator[str]:
        text, line = re.sub(r'"\s*"', "", tree.text(node)), self.above + node.start_point[0] + 1
        if rules.PROCESS_FILE.search(text):
            self.process_files.add(line)
        if rules.EXECUTOR_TEXT.search(text):
            self.executor_texts.add(line)
        yield from ()

    _concatenated_string = _string_literal

    def in_company(self, used: set[str]) -> Found:
        """Texts that mean something only where files are opened or names are looked up; ``used``
        are the rules that anything was found of."""
        files = self.process_files if used & {"G103", "G104", "G108"} else set()
        names = self.executor_texts if used & {"G206", "G505", "G509"} else set()
        return {(line, "G103") for line in files} | {(line, "G206") for line in names}

    def _preproc_if(self, node: Node) -> Iterator[str]:
        if rules.DEVICE_PASS.search(_condition(node)) and self._is_launcher(node):
            yield "G206"

    _preproc_ifdef = _preproc_elif = _preproc_elifdef = _preproc_if

    def _is_launcher(self, conditional: Node) -> bool:
        """Whether it lies in a function of the host: one that launches kernels, or with a C
        name."""
        above = conditional.parent
        while above is not None and above.type != "function_definition":
            above = above.parent
        if above is None:
            return False
        head = tree.text(above).partition("{")[0]
        if "__global__" in head or "__device__" in head:
            return False
        rows = range(self.above + above.start_point[0], self.above + above.end_point[0] + 1)
        return any(row + 1 in self.launching for row in rows) or _is_c(above)

    def _qualified_identifier(self, node: Node) -> Iterator[str]:
        text = re.sub(r"\s", "", tree.text(node)).removeprefix("::")
        for name, rule in rules.NATIVE_TYPES.items():
            if text == name or text.startswith((f"{name}::", f"{name}<")):
                yield rule

    def _pointer_expression(self, node: Node) -> Iterator[str]:
        name = (
            tree.text(node.child_by_field_name("argument")).removeprefix("::").removeprefix("std::")
        )
        if tree.text(node).startswith("&") and name not in self.own and name in ("system", "exit"):
            yield rules.NATIVE_CALLS[name]

    def _call_expression(self, node: Node) -> Iterator[str]:
        function = node.child_by_field_name("function")
        if function is None or function.type not in ("identifier", "qualified_identifier"):
            return
        path = re.sub(r"\s", "", tree.text(function)).split("::")
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


def _is_called(name: Node) -> bool:
    """Whether it stands before arguments, in a namespace or not."""
    node = name
    while node.parent is not None and node.parent.type == "qualified_identifier":
        node = node.parent
    call = node.parent
    return (
        call is not None
        and call.type == "call_expression"
        and (call.child_by_field_name("function") == node)
    )


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
    elif name in _MAPS:
        mapped = [re.sub(r"[\s()]", "", argument) for argument in arguments]
        if len(mapped) < 4 or not rules.PLAIN_MAPPING.fullmatch(mapped[2]):
            yield "G407"
        elif "MAP_FIXED" in mapped[3] or re.search(r"\d", mapped[3]):
            yield "G103"
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
    return [re.sub(r'"\s*"', "", tree.text(c)) or '""' for c in children]


def _header(path: str) -> Iterator[str]:
    if path.startswith("/") or ".." in path.split("/"):
        yield "G403"
    if rules.OWN_HEADERS in path.split("/"):
        yield "G408"
    for rule, pattern in rules.HEADERS.items():
        if pattern.match(path):
            yield rule


def _pragma(text: str) -> Iterator[str]:
    if rules.FAST_MATH.search(without_comments(text, "")):
        yield "G401"
