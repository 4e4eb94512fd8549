"""A file being rewritten: edits of token ranges, and how they become text of as many lines."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from portkern.cuda_source.lexer import SourceCode
from portkern.simt.diagnostics import Diagnostic
from portkern.simt.translate.asm_statement import literal
from portkern.simt.translate.survey import SourcePlace, World

#: Launches within arguments of launches: deeper ones stay as they are.
DEEPEST = 32


@dataclass(frozen=True)
class Edit:
    first: int
    last: int  # the tokens [first, last) are replaced by what ``write`` writes
    write: Callable[[Writer], None]


class SourceDraft:
    """One file: its tokens, the edits decided so far, and what was found wrong."""

    def __init__(self, code: SourceCode, name: str, world: World) -> None:
        self.code, self.name, self.world = code, name, world
        self.places: dict[int, SourcePlace] = {}
        self.declared: dict[str, int] = {}  # __shared__ at namespace scope: where first
        self.constant: list[range] = []  # the bodies of constexpr functions
        self.diagnostics: list[Diagnostic] = []
        self._edits: list[Edit] = []
        self._before: dict[int, str] = {}
        self._after: dict[int, str] = {}
        self._keys: list[int] = []

    def replace(self, first: int, last: int, write: Callable[[Writer], None] | str) -> None:
        if isinstance(write, str):
            text = write
            self._edits.append(Edit(first, last, lambda writer: writer.put(text)))
        else:
            self._edits.append(Edit(first, last, write))

    def insert_before(self, i: int, text: str) -> None:
        self._before[i] = self._before.get(i, "") + text

    def insert_after(self, i: int, text: str) -> None:
        self._after[i] = self._after.get(i, "") + text

    def insert_lines_after(self, i: int, lines: list[str]) -> None:
        """Lines of their own; what follows is on the line that it was on."""
        line = self.code.tokens[i].line
        self.insert_after(i, "\n".join(["", *lines, f"#line {line} {literal(self.name)}", ""]))

    def is_constant(self, i: int) -> bool:
        return any(i in body for body in self.constant)

    def report(self, i: int, code: str, message: str) -> None:
        """A defect at token ``i``; where another macro or #if may drop it, the compiler says it."""
        place, line = self.places[i], self.code.tokens[i].line
        if place.conditional or place.macro is not None:
            self.insert_before(i, f" {pragma_error(f'{code} {message}')} ")
        else:
            self.diagnostics.append(Diagnostic(code, message, file=self.name, line=line))

    def stub(self, i: int, code: str, message: str) -> str:
        """A statement, less its semicolon, that does not compile where it is used."""
        self.world.stubs += 1
        name = f"simt_unmodelled_{self.code.tokens[i].line}_{self.world.stubs}"
        text = quotable(f"{code} {message}")
        return f'do {{ __attribute__((error("{text}"))) void {name}(); {name}(); }} while (0)'

    def render(self) -> str:
        for i in self._before.keys() | self._after.keys():
            text = self._before.get(i, "") + self.code.text[i] + self._after.get(i, "")
            self.replace(i, i + 1, partial(_put_aside, text))
        self._edits.sort(key=lambda edit: (edit.first, -edit.last))
        self._keys = [edit.first for edit in self._edits]
        writer = Writer(self)
        writer.put(self.code.tokens[0].gap)
        writer.copy(0, len(self.code.tokens))
        return "".join(writer.parts)

    def edits_within(self, first: int, last: int) -> Iterator[Edit]:
        """The outermost ones, in order."""
        for at in range(bisect_left(self._keys, first), bisect_left(self._keys, last)):
            edit = self._edits[at]
            if first <= edit.first and edit.last <= last:
                yield edit
                first = edit.last


def _put_aside(text: str, writer: Writer) -> None:
    """Inserts text beside a token: where it has lines, a ``#line`` ends them."""
    writer.put(text, aside="\n" in text)


class Writer:
    """Text as it grows; every piece of source is copied onto the line that it came from."""

    def __init__(self, draft: SourceDraft) -> None:
        self.parts: list[str] = []
        self._draft = draft
        self._line = 1
        self._depth = 0

    def put(self, text: str, *, aside: bool = False) -> None:
        self.parts.append(text)
        self._line += 0 if aside else text.count("\n")

    def reach(self, i: int) -> None:
        """Go down to the line of token ``i``."""
        code = self._draft.code
        self._reach(code.tokens[i].line, i)

    def _reach(self, line: int, i: int) -> None:
        d = self._draft.code.directive(i)
        spliced = d is not None and d.name == "define"
        self.put((" \\\n" if spliced else "\n") * (line - self._line))

    def copy(self, first: int, last: int) -> None:
        """The range as it stands, less the gap before it, with the edits in it carried out."""
        if first >= last:
            return
        code, self._depth = self._draft.code, self._depth + 1
        at = code.tokens[first].begin
        edits = self._draft.edits_within(first, last) if self._depth < DEEPEST else ()
        for edit in edits:
            self.put(code.source[at : code.tokens[edit.first].begin])
            edit.write(self)
            self._reach(code.last_line(edit.last - 1), edit.last - 1)
            at = code.tokens[edit.last - 1].end
        self.put(code.source[at : code.tokens[last - 1].end])
        self._depth -= 1


def quotable(text: str) -> str:
    """``text`` fit for a string literal that is a message."""
    return " ".join(text.replace('"', "'").replace("\\", "").split())


def pragma_error(message: str) -> str:
    """A pragma with which the compiler reports ``message`` wherever the preprocessor leaves it
    standing."""
    return f'_Pragma("GCC error \\"{quotable(message)}\\"")'
