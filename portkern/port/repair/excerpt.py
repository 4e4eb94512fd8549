"""An excerpt of a file for a model: all of it, or the kernels that are to be mended with what
they need; and how an edit of that becomes one of the file."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from portkern.cuda_source.syntax import Syntax
from portkern.port.repair.functions import RepairFunction, functions

if TYPE_CHECKING:
    from tree_sitter import Node

#: Characters of a file that is shown as a whole, and of a declaration beside kernels.
_SHORT, _MOST_DECLARATION = 16_000, 2_000
_DECLARATIONS = (
    "preproc_def",
    "preproc_function_def",
    "declaration",
    "type_definition",
    "alias_declaration",
    "struct_specifier",
    "enum_specifier",
    "template_declaration",
)
_WORD = re.compile(r"[A-Za-z_]\w*")
_MARK = "// ---- lines {} to {} of the file"


@dataclass(frozen=True)
class Excerpt:
    """``parts`` are spans of whole lines of ``text``, in order; none of a file shown whole."""

    text: str
    parts: tuple[tuple[int, int], ...] = ()

    @property
    def shown(self) -> str:
        if not self.parts:
            return self.text
        return "".join(
            f"{mark}\n{self.text[start:stop]}"
            for mark, (start, stop) in zip(self._marks, self.parts, strict=True)
        )

    def spliced(self, shown: str) -> str | None:
        """The file with the parts as they are ``shown`` after an edit; None where a line that
        begins a part is no longer there."""
        if not self.parts:
            return shown
        pieces, left = list[str](), shown
        for mark in self._marks:
            before, found, left = left.partition(f"{mark}\n")
            if not found:
                return None
            pieces.append(before)
        if pieces[0].strip():
            return None
        pieces = [*pieces[1:], left]
        text, end = "", 0
        for (start, stop), piece in zip(self.parts, pieces, strict=True):
            text += self.text[end:start] + piece
            end = stop
        return text + self.text[end:]

    @property
    def _marks(self) -> Sequence[str]:
        spans = [(self._line(start), self._line(stop - 1)) for start, stop in self.parts]
        return [_MARK.format(*span) for span in spans]

    def _line(self, at: int) -> int:
        return self.text.count("\n", 0, at) + 1


def excerpt(source: Syntax, names: Sequence[str]) -> Excerpt:
    """The excerpt with the named kernels, the functions that they call, and the declarations of
    the words in both; a short file is shown whole."""
    text = source.text
    if len(text) <= _SHORT:
        return Excerpt(text)
    own = functions(source)
    words, wanted = set[str](), dict[tuple[int, int], RepairFunction]()
    queue = [function for function in own if function.name in names and function.kernel]
    while queue:
        function = queue.pop()
        if function.span in wanted:
            continue
        wanted[function.span] = function
        words |= set(_WORD.findall(function.text))
        queue += [other for other in own if other.device and other.name in words]
    spans = [*wanted, *_declarations(source, words)]
    return Excerpt(text, tuple(_merged(text, spans)))


def _declarations(source: Syntax, words: set[str]) -> Iterator[tuple[int, int]]:
    for node in source.root.children:
        short = node.end_byte - node.start_byte <= _MOST_DECLARATION
        if node.type in _DECLARATIONS and short and _declared(source, node) & words:
            yield source.span(node)


def _declared(source: Syntax, node: Node) -> set[str]:
    """A word of a declaration is enough: what is shown in vain costs a few tokens."""
    name = node.child_by_field_name("name")
    text = source.text_of(name if name is not None else node)
    return set(_WORD.findall(text.partition("{")[0].partition("=")[0]))


def _merged(text: str, spans: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The spans as whole lines, those that touch as one."""
    ends = [match.end() for match in re.finditer(r"\n|\Z", text)]
    merged: list[tuple[int, int]] = []
    for start, stop in sorted(spans):
        start = text.rfind("\n", 0, start) + 1
        stop = ends[min(bisect_right(ends, max(stop - 1, start)), len(ends) - 1)]
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], stop)
        else:
            merged.append((start, stop))
    yield from merged
