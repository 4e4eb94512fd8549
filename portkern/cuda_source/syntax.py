"""The kernels and the launches of a CUDA or HIP source, and its syntax tree.

Kernels and launches are read from tokens, as they stand before preprocessing: a macro that the
grammar takes for something else hides none. The tree is tree-sitter's, for who needs more.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING

from portkern.cuda_source.launches import Launch, launches
from portkern.cuda_source.lexer import ELSES, IFS, Kind
from portkern.cuda_source.source_map import Parameter, SourceMap

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

__all__ = ["Kernel", "Launch", "Parameter", "Syntax", "parse"]

#: Parentheses after these hold no parameters of a function.
_ATTRIBUTES = frozenset(
    "__launch_bounds__ __attribute__ __align__ alignas __declspec noexcept requires decltype "
    "__cluster_dims__ __block_size__ __maxnreg__ amdgpu_waves_per_eu".split()
)
#: Directives that may stand within a declaration's head.
_WITHIN_HEAD = frozenset(
    ["if", "ifdef", "ifndef", "else", "elif", "elifdef", "elifndef", "endif", "pragma"]
)


@dataclass(frozen=True)
class Kernel:
    """A definition. ``start`` and ``stop`` are its offsets in characters, with ``template <…>``
    and the body's braces; ``bounds`` are the arguments of ``__launch_bounds__``."""

    name: str
    line: int
    last_line: int
    start: int
    stop: int
    parameters: tuple[Parameter, ...]
    template: tuple[Parameter, ...]
    bounds: tuple[str, ...]


class Syntax:
    """A source that was read. What ``#if 0`` takes out is not there."""

    def __init__(self, text: str, markers: frozenset[str]) -> None:
        self.text = text
        self._map = SourceMap(text)
        self._markers = markers | self.markers

    @cached_property
    def markers(self) -> frozenset[str]:
        """Macros of this source that stand for ``__global__``, such as ``#define KERNEL …``."""
        return frozenset(
            macro.name
            for macro in self._map.macros.values()
            if any(t.text == "__global__" for t in macro.body)
            and not any(t.text in ("{", "##", "void") for t in macro.body)
        )

    @cached_property
    def kernels(self) -> tuple[Kernel, ...]:
        return tuple(kernel for kernel, macro in self._all_kernels if not macro)

    @cached_property
    def macro_kernels(self) -> tuple[Kernel, ...]:
        """Those that a macro's body defines; their names may be the macro's parameters."""
        return tuple(kernel for kernel, macro in self._all_kernels if macro)

    @cached_property
    def launches(self) -> tuple[Launch, ...]:
        return launches(self._map)

    @cached_property
    def _all_kernels(self) -> tuple[tuple[Kernel, bool], ...]:
        kernels: dict[tuple[int, int], tuple[Kernel, bool]] = {}
        for i, token in enumerate(self._map.code.tokens):
            if token.kind is not Kind.NAME or token.text != "__global__":
                if token.text not in self._markers or self._map.code.directive(i):
                    continue
            if self._map.is_dead(i):
                continue
            kernel = _kernel(self._map, i)
            if kernel is not None:
                in_macro = self._map.code.directive(i) is not None
                kernels.setdefault((kernel.start, kernel.stop), (kernel, in_macro))
        return tuple(kernels.values())

    def condition(self, offset: int) -> str:
        """The innermost directive that decides whether the text at an offset is compiled, as
        ``#ifdef FAST``; '' where none does."""
        code, open_ = self._map.code, list[str]()
        for d in code.directives:
            if code.tokens[d.begin].begin > offset:
                break
            if d.name in ELSES or d.name == "endif":
                del open_[-1:]
            if d.name in ELSES or d.name in IFS:
                open_.append(f"#{d.name} {code.flat(d.begin + 2, d.end)}".strip())
        return open_[-1] if open_ else ""

    # ---- the tree ------------------------------------------------------------------------

    @cached_property
    def root(self) -> Node:
        return _parser().parse(self.text.encode("utf-8", "replace")).root_node

    def text_of(self, node: Node | None) -> str:
        """'' for a node that is not there."""
        text = node.text if node is not None else None
        return text.decode("utf-8", "replace") if text is not None else ""

    def nodes(self, *types: str) -> Iterator[Node]:
        """Those of the types (all, when none is named) in reading order, without comments and
        what ``#if 0`` takes out."""
        stack = [self.root]
        while stack:
            node = stack.pop()
            if node.type == "comment":
                continue
            if not types or node.type in types:
                yield node
            children = node.children
            if node.type == "preproc_if":
                asked = self.text_of(node.child_by_field_name("condition")).strip()
                if asked in ("0", "false"):
                    otherwise = node.child_by_field_name("alternative")
                    children = [otherwise] if otherwise is not None else []
            stack.extend(reversed(children))

    def span(self, node: Node) -> tuple[int, int]:
        """A node's offsets in characters; the tree counts bytes."""
        return self._characters(node.start_byte), self._characters(node.end_byte)

    def _characters(self, byte: int) -> int:
        if self.text.isascii():
            return byte
        bytes_before, characters_before = self._lines
        line = bisect_right(bytes_before, byte) - 1
        part = self.text[characters_before[line] :].encode("utf-8", "replace")
        return characters_before[line] + len(
            part[: byte - bytes_before[line]].decode("utf-8", "ignore")
        )

    @cached_property
    def _lines(self) -> tuple[list[int], list[int]]:
        """Bytes and characters before each line."""
        sizes, lengths = [0], [0]
        for line in self.text.splitlines(keepends=True):
            sizes.append(sizes[-1] + len(line.encode("utf-8", "replace")))
            lengths.append(lengths[-1] + len(line))
        return sizes, lengths


def parse(text: str, *, markers: frozenset[str] = frozenset()) -> Syntax:
    """``markers``: macros of other files that stand for ``__global__``. Never fails."""
    return Syntax(text, markers)


@cache
def _parser() -> Parser:
    import tree_sitter
    import tree_sitter_cuda

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_cuda.language()))


def _kernel(source: SourceMap, at: int) -> Kernel | None:
    """The definition that the ``__global__`` at ``at`` belongs to; None for a declaration."""
    code, text = source.code, source.code.text
    directive = code.directive(at)
    last = directive.end if directive else len(text)
    place = _parameters(source, at + 1, last)
    if place is None:
        return None
    opening, closing, body = place
    name_at = opening - 1
    if text[name_at] == ">":  # a specialisation
        name_at = code.open_angle(name_at, at) - 1
    elif text[name_at] == ")":  # KERNEL_NAME(x)(int a)
        name_at = code.partner[name_at] - 1
    if name_at <= at or code.tokens[name_at].kind is not Kind.NAME:
        return None
    is_macro = text[opening - 1] == ")"
    name = code.flat(name_at, opening) if is_macro else text[name_at]
    head = _head(source, at)
    end = code.partner[body] if code.partner[body] > 0 else last - 1
    return Kernel(
        name,
        code.tokens[name_at].line,
        code.last_line(end),
        code.tokens[head].begin,
        code.tokens[end].end,
        source.parameters(opening + 1, closing),
        _template(source, head, at),
        _bounds(source, head, body),
    )


def _parameters(source: SourceMap, first: int, last: int) -> tuple[int, int, int] | None:
    """Of a function definition: its parameters' parentheses and its body's brace."""
    code, text = source.code, source.code.text
    parameters: tuple[int, int] | None = None
    i = first
    while i < last:
        directive = code.directive(i)
        if directive is not None and directive.end < last:
            i = directive.end
            continue
        if text[i] == "{":
            return (*parameters, i) if parameters else None
        if text[i] in (";", "}", "="):
            return None
        if text[i] == "(":
            close = code.partner[i]
            if not i < close < last:
                return None
            if text[i - 1] not in _ATTRIBUTES and i > first:
                parameters = i, close
            i = close
        i += 1
    return None


def _head(source: SourceMap, at: int) -> int:
    """Where the declaration begins that has ``__global__`` at ``at``."""
    code, text = source.code, source.code.text
    inside = code.directive(at)
    first = inside.body if inside else 0
    head = i = at
    while i > first:
        i -= 1
        directive = code.directive(i) if inside is None else None
        if directive is not None:
            if directive.name not in _WITHIN_HEAD:
                break
            i = directive.begin
            continue
        if text[i] in ("{", "}", ";", ":", "\\"):
            break
        if text[i] == ">" and (angle := code.open_angle(i, first)) > 0:
            i = angle
        elif text[i] in (")", "]"):
            i = max(code.partner[i], first)
        head = i
    return head


def _template(source: SourceMap, head: int, at: int) -> tuple[Parameter, ...]:
    code, text = source.code, source.code.text
    for i in range(head, at):
        if text[i] == "template" and text[i + 1] == "<":
            close = code.close_angle(i + 1, at)
            return source.parameters(i + 2, close) if close > 0 else ()
    return ()


def _bounds(source: SourceMap, head: int, body: int) -> tuple[str, ...]:
    code, text = source.code, source.code.text
    for i in range(head, body):
        if text[i] == "__launch_bounds__" and text[i + 1] == "(" and code.partner[i + 1] > 0:
            return source.pieces(i + 2, code.partner[i + 1])
    return ()
