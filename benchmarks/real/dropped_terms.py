"""Mutants of a source: each lacks one term of a sum or product, or one accumulation, of numbers.

All of a file's are in one text. A program of it has the one whose number its second argument is,
and says at its end whether it came to that place.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from portkern.cuda_source import tree

if TYPE_CHECKING:
    from tree_sitter import Node

REACHED = "MUTANT REACHED"
_HEAD = f"""
#include <cstdio>
#include <cstdlib>
static int mutant_chosen;
static bool mutant_reached;
__attribute__((constructor)) static void mutant_begin(int count, char** words) {{
    if (count > 2) mutant_chosen = atoi(words[2]);
}}
__attribute__((destructor)) static void mutant_end() {{
    if (mutant_reached) printf("\\n{REACHED}\\n");
}}
static inline bool mutant_is(int number) {{
    if (number == mutant_chosen) mutant_reached = true;
    return number == mutant_chosen;
}}
"""
_REAL = re.compile(
    r"\b(float\d?|double\d?|floatX|half2?|__half2?|(?:__)?nv_bfloat162?|x128|f128)\b"
)
_FUNCTIONS = re.compile(
    r"^(?:std::)?(?:__)?(?:exp|log|sqrt|rsqrt|tanh|pow|fma|fmax|fmin|fabs|cosh|sinh|max|min)\w*$"
    r"|Reduce|\b(?:warp|block)\w*[rR]educe\w*$"
)


@dataclass(frozen=True)
class Mutant:
    """``function`` is the one that it stands in, ``dropped`` the text that is left out."""

    number: int
    function: str
    is_kernel: bool
    line: int
    kind: str
    dropped: str


@dataclass(frozen=True)
class _Site:
    begin: int
    end: int
    kind: str
    function: str
    is_kernel: bool
    line: int
    dropped: str
    text: str  # with {number}


def mutated(source: str, seed: int, most: int) -> tuple[str, tuple[Mutant, ...]]:
    """The text with at most ``most`` mutants of each function of the device, drawn by the seed from
    places that do not overlap."""
    data = source.encode()
    draw = random.Random(seed)
    chosen: list[_Site] = []
    for function in tree.nodes(tree.root(source), "function_definition"):
        head = tree.text(function).split("{")[0]
        if "__global__" not in head and "__device__" not in head:
            continue
        sites = list(_Sites(function, data).found())
        draw.shuffle(sites)
        own: list[_Site] = []
        for site in sites:
            if len(own) < most and all(site.end <= o.begin or o.end <= site.begin for o in own):
                own.append(site)
        chosen += own
    chosen.sort(key=lambda site: site.begin)
    mutants = tuple(
        Mutant(number, s.function, s.is_kernel, s.line, s.kind, s.dropped)
        for number, s in enumerate(chosen, 1)
    )
    for number, site in reversed(list(enumerate(chosen, 1))):
        text = site.text.replace("MUTANT", f"mutant_is({number})").encode()
        data = data[: site.begin] + text + data[site.end :]
    # One line, so that lines stay what they are but for one.
    head = "\n".join(_HEAD.strip().splitlines())
    return f"{head}\n{data.decode()}", mutants


class _Sites:
    """The places in one function."""

    def __init__(self, function: Node, data: bytes) -> None:
        self._function, self._data = function, data
        head = tree.text(function).split("{")[0]
        self._is_kernel = "__global__" in head
        names = re.findall(r"(\w+)\s*\(", re.sub(r"__launch_bounds__\s*\([^)]*\)", "", head))
        self._name = names[0] if names else "?"
        self._numbers, self._pointers = set[str](), set[str]()
        for node in tree.nodes(function, "parameter_declaration", "declaration"):
            self._declare(node)

    def _declare(self, node: Node) -> None:
        type_ = node.child_by_field_name("type")
        if type_ is None or not _REAL.search(tree.text(type_)):
            return
        for declarator in node.children_by_field_name("declarator"):
            is_pointer = False
            inner: Node | None = declarator
            while inner is not None and inner.type != "identifier":
                is_pointer |= inner.type in ("pointer_declarator", "array_declarator")
                inner = inner.child_by_field_name("declarator") or next(
                    (child for child in inner.named_children if "identifier" in child.type), None
                )
            if inner is not None:
                (self._pointers if is_pointer else self._numbers).add(tree.text(inner))

    def found(self) -> Iterator[_Site]:
        body = self._function.child_by_field_name("body")
        if body is None:
            return
        for node in tree.nodes(body, "binary_expression", "expression_statement"):
            if node.has_error:
                continue
            if node.type == "binary_expression":
                yield from self._of_operation(node)
            else:
                yield from self._of_statement(node)

    def _of_operation(self, node: Node) -> Iterator[_Site]:
        operator = tree.text(node.child_by_field_name("operator"))
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        if operator not in "+-*" or left is None or right is None or not self._is_number(node):
            return
        if {tree.text(left), tree.text(right)} & self._pointers:
            return
        kind = "factor" if operator == "*" else "term"
        whole, a, b = map(tree.text, (node, left, right))
        cast = f"static_cast<decltype({whole})>"
        # Of a difference without its first term, the second is left with its sign.
        kept = f"-({b})" if operator == "-" else b
        for dropped, rest in ((b, a), (a, kept)):
            text = f"(MUTANT ? {cast}({rest}) : ({whole}))"
            yield self._site(node, kind, dropped, text)

    def _of_statement(self, node: Node) -> Iterator[_Site]:
        inner = node.named_children[0] if node.named_children else None
        if inner is None:
            return
        text = tree.text(node)
        if inner.type == "assignment_expression":
            operator = tree.text(inner.child_by_field_name("operator"))
            left = inner.child_by_field_name("left")
            if operator in ("+=", "-=", "*=") and left is not None and self._is_number(left):
                yield self._site(node, "accumulation", text, f"if (!MUTANT) {{ {text} }}")
        elif inner.type == "call_expression" and text.startswith("atomicAdd"):
            arguments = inner.child_by_field_name("arguments")
            if arguments is not None and any(map(self._is_number, arguments.named_children[1:])):
                yield self._site(node, "accumulation", text, f"if (!MUTANT) {{ {text} }}")

    def _site(self, node: Node, kind: str, dropped: str, text: str) -> _Site:
        return _Site(
            node.start_byte,
            node.end_byte,
            kind,
            self._name,
            self._is_kernel,
            node.start_point[0] + 1,
            " ".join(dropped.split())[:80],
            text,
        )

    def _is_number(self, node: Node) -> bool:
        """Whether an expression is a number, as far as its text shows; what is not sure is not."""
        match node.type:
            case "identifier":
                return tree.text(node) in self._numbers
            case "number_literal":
                return bool(re.search(r"\.|[0-9]f$", tree.text(node)))
            case "subscript_expression":
                base = node.child_by_field_name("argument")
                return base is not None and (
                    tree.text(base) in self._pointers or self._is_number(base)
                )
            case "field_expression":
                base = node.child_by_field_name("argument")
                return base is not None and self._is_number(base)
            case "pointer_expression":
                inner = node.child_by_field_name("argument")
                return inner is not None and any(
                    tree.text(one) in self._pointers for one in tree.nodes(inner, "identifier")
                )
            case "cast_expression":
                type_ = node.child_by_field_name("type")
                return type_ is not None and tree.text(type_).strip() in ("float", "double")
            case "call_expression":
                name = tree.text(node.child_by_field_name("function"))
                if name in ("float", "double") or name.startswith(("__bfloat162float", "__ldcs")):
                    return name != "__ldcs" or self._any_pointer(node)
                return bool(_FUNCTIONS.search(name)) and any(
                    map(self._is_number, tree.nodes(node, "identifier", "number_literal"))
                )
            case "parenthesized_expression" | "unary_expression":
                return any(map(self._is_number, node.named_children))
            case "conditional_expression":
                return any(map(self._is_number, node.named_children[1:]))
            case "binary_expression":
                operator = tree.text(node.child_by_field_name("operator"))
                return operator in "+-*/" and any(map(self._is_number, node.named_children))
        return False

    def _any_pointer(self, node: Node) -> bool:
        return any(tree.text(n) in self._pointers for n in tree.nodes(node, "identifier"))
