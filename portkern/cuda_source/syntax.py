"""The kernels and the launches of a CUDA or HIP source, and its syntax tree.

Kernels and launches are read from tokens, as they stand before preprocessing: a macro that the
grammar takes for something else hides none. The tree is tree-sitter's, for who needs more.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING

from portkern.cuda_source import tree
from portkern.cuda_source.expansion import use_at
from portkern.cuda_source.functions import (
    DEVICE,
    KERNEL,
    Function,
    Markers,
    bounds,
    device_functions,
    parameters,
    template,
)
from portkern.cuda_source.launches import LaunchText, launches
from portkern.cuda_source.lexer import ELSES, IFS, Macro
from portkern.cuda_source.source_map import Parameter, SourceMap

if TYPE_CHECKING:
    from tree_sitter import Node

__all__ = ["LaunchText", "Parameter", "SourceKernel", "Syntax", "parse"]

_MOST_INDIRECT = 8


@dataclass(frozen=True)
class SourceKernel:
    """A definition. ``start`` and ``stop`` are its offsets in characters, with ``template <…>``
    and the body's braces; ``bounds`` are the arguments of ``__launch_bounds__``. ``macro`` wrote
    the whole of it, where its use stands; '' for a kernel that stands there itself."""

    name: str
    line: int
    last_line: int
    start: int
    stop: int
    parameters: tuple[Parameter, ...]
    template: tuple[Parameter, ...]
    bounds: tuple[str, ...]
    macro: str = ""


class Syntax:
    """A source that was read. What ``#if 0`` takes out is not there."""

    def __init__(
        self, text: str, markers: Markers, macros: Mapping[str, Macro] = MappingProxyType({})
    ) -> None:
        self.text = text
        self._map = SourceMap(text, around=macros)
        self._markers = {**markers, **self.markers}

    @cached_property
    def markers(self) -> Markers:
        """Macros of this source that stand for words of a head with ``__global__`` or
        ``__device__`` among them, such as ``#define KERNEL …``."""
        known: dict[str, frozenset[str]] = {}
        for _ in range(_MOST_INDIRECT):
            before = len(known)
            for macro in self._map.macros.values():
                texts = [token.text for token in macro.body]
                if not {"{", ";", "=", "##"} & set(texts):
                    marks = {word for word in texts if word in (KERNEL, DEVICE)}
                    marks.update(*(known[word] for word in texts if word in known))
                    if marks:
                        known[macro.name] = frozenset(marks)
            if len(known) == before:
                break
        return known

    @cached_property
    def kernels(self) -> tuple[SourceKernel, ...]:
        """The kernels of the file, with those that uses of macros make, each where the use is."""
        own = [self._kernel(f) for f in self.functions if f.kernel and not f.in_macro]
        return tuple(sorted([*own, *self._made()], key=lambda kernel: kernel.start))

    @cached_property
    def macro_kernels(self) -> tuple[SourceKernel, ...]:
        """The kernels that macros' bodies define; their names may be the macros' parameters."""
        return tuple(self._kernel(f) for f in self.functions if f.kernel and f.in_macro)

    @cached_property
    def functions(self) -> tuple[Function, ...]:
        """The definitions of kernels and device functions, those in macros' bodies among them."""
        return tuple(device_functions(self._map, self._markers))

    @property
    def source_map(self) -> SourceMap:
        return self._map

    @cached_property
    def launches(self) -> tuple[LaunchText, ...]:
        return launches(self._map)

    def _kernel(self, function: Function) -> SourceKernel:
        source, code = self._map, self._map.code
        return SourceKernel(
            function.name,
            code.tokens[function.name_at].line,
            code.last_line(function.end),
            code.tokens[function.head].begin,
            code.tokens[function.end].end,
            parameters(source, function),
            template(source, function),
            bounds(source, function),
        )

    def _made(self) -> Iterator[SourceKernel]:
        """The kernels that macros write, with the lines and offsets of the uses."""
        code, i = self._map.code, 0
        known = {macro.name: macro for macro in self._map.all_macros}
        makers = {name for name in known if self._makes_kernels(name, known)}
        while makers and i < len(code.tokens) - 1:
            macro = self._map.macro_at(code.text[i], i) if code.text[i] in makers else None
            end = use_at(code, i, macro) if macro and code.directive(i) is None else None
            if end is None or self._map.is_dead(i):
                i += 1
                continue
            first, last = code.tokens[i], code.tokens[end - 1]
            written = self._map.expanded(i, end)
            for kernel in Syntax(written.code.source, self._markers).kernels if written else ():
                yield replace(
                    kernel,
                    line=first.line,
                    last_line=code.last_line(end - 1),
                    start=first.begin,
                    stop=last.end,
                    macro=macro.name if macro else "",
                )
            i = end

    def _makes_kernels(self, name: str, macros: Mapping[str, Macro]) -> bool:
        """Whether a kernel's body stands in the macro, or in one that it uses."""
        reached, fresh = {name}, [name]
        while fresh:
            texts = {token.text for token in macros[fresh.pop()].body}
            if "{" in texts and not texts.isdisjoint({KERNEL, *self._markers}):
                return True
            more = texts & macros.keys() - reached
            reached |= more
            fresh += more
        return False

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
        return tree.root(self.text)

    def text_of(self, node: Node | None) -> str:
        """'' for a node that is not there."""
        return tree.text(node)

    def nodes(self, *types: str) -> Iterator[Node]:
        """The nodes of the types (all, when none is named) in reading order, without comments
        and what ``#if 0`` takes out."""
        return tree.nodes(self.root, *types)

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


def parse(
    text: str,
    *,
    markers: Markers = MappingProxyType({}),
    macros: Mapping[str, Macro] = MappingProxyType({}),
) -> Syntax:
    """``markers`` and ``macros`` are those of other files. Never fails."""
    return Syntax(text, markers, macros)
