"""A file while it is translated: edits of its tokens, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from portkern.cuda_source import conditions
from portkern.cuda_source.conditions import Macros
from portkern.cuda_source.lexer import Kind, SourceCode
from portkern.port.hazard import Hazard

#: More of a line than this is cut where it is quoted.
_QUOTED = 160


@dataclass(frozen=True)
class DraftChange:
    """One rewrite: ``before`` and ``after`` are source on one line, ``line`` is the original's."""

    line: int
    before: str
    after: str
    why: str


@dataclass
class _Edit:
    last: int
    text: str


@dataclass
class Draft:
    """Edits are decided in any order and carried out by ``render``. What stands in a replaced
    range is gone, insertions within it too; its line breaks stay. What only a compiler for AMD
    sees is not edited."""

    code: SourceCode
    name: str
    changes: list[DraftChange] = field(default_factory=list)
    hazards: list[Hazard] = field(default_factory=list)
    gaps: dict[int, str] = field(default_factory=dict)  # what stands before a token, if changed
    full_masks: dict[str, bool] = field(default_factory=dict)  # names, as far as looked up
    _replaced: dict[int, _Edit] = field(default_factory=dict)
    _before: dict[int, str] = field(default_factory=dict)
    _after: dict[int, str] = field(default_factory=dict)

    def replace(self, first: int, last: int, text: str) -> None:
        """Put ``text`` in place of the tokens [first, last); a longer range replaces a shorter."""
        if first in self.for_amd:
            return
        old = self._replaced.get(first)
        if old is None or old.last <= last:
            self._replaced[first] = _Edit(last, text)

    def insert_before(self, i: int, text: str) -> None:
        """Inserts text before a token, within what was inserted there before: constructs are
        translated from the outside in."""
        if i not in self.for_amd:
            self._before[i] = self._before.get(i, "") + text

    def insert_after(self, i: int, text: str) -> None:
        """Inserts text after a token, within what was inserted there before."""
        if i not in self.for_amd:
            self._after[i] = text + self._after.get(i, "")

    def shown(self, first: int, last: int) -> str:
        """The range on one line, as far as a change quotes it."""
        return self.code.flat(first, min(last, first + _QUOTED))

    def note(self, i: int, before: str, after: str, why: str) -> None:
        if i not in self.for_amd:
            line = self.code.tokens[i].line
            self.changes.append(DraftChange(line, _short(before), _short(after), why))

    def rename(self, i: int, text: str, why: str) -> None:
        self.note(i, self.code.text[i], text, why)
        self.replace(i, i + 1, text)

    def warn(self, i: int, code: str, message: str) -> None:
        if i in self.for_amd:
            return
        token = self.code.tokens[i]
        column = token.begin - (self.code.source.rfind("\n", 0, token.begin) + 1) + 1
        self.hazards.append(Hazard(code, message, self.name, token.line, column))

    def edited(self, first: int, last: int) -> bool:
        """Whether any edit lies in the range so far."""
        marks = self._replaced.keys() | self._before.keys() | self._after.keys()
        return any(first <= i < last for i in marks)

    def render(self) -> str:
        parts: list[str] = []
        tokens, i = self.code.tokens, 0
        while i < len(tokens):
            parts += [self.gaps.get(i, tokens[i].gap), self._before.get(i, "")]
            edit = self._replaced.get(i)
            if edit is None:
                parts += [tokens[i].text, self._after.get(i, "")]
                i += 1
                continue
            end = edit.last - 1
            parts += [edit.text, self._after.get(end, ""), self._breaks(i, edit.last)]
            i = edit.last
        return "".join(parts)

    def _breaks(self, first: int, last: int) -> str:
        """The line breaks in the range, for what follows to stay on its line."""
        tokens = self.code.tokens
        lines = tokens[last - 1].line - tokens[first].line + self.code.text[last - 1].count("\n")
        directive = self.code.directive(first)
        return (" \\\n" if directive is not None else "\n") * lines

    def places(self, text: str) -> list[int]:
        """All tokens of this text."""
        return self.code.places(text)

    # ---- what stands where ----------------------------------------------------------------

    @cached_property
    def for_amd(self) -> frozenset[int]:
        """The tokens of branches that a compiler for AMD takes, and none for NVIDIA."""
        return self._unseen(conditions.NVIDIA) - self._unseen(conditions.AMD)

    @cached_property
    def for_nvidia(self) -> frozenset[int]:
        """The other way round."""
        return self._unseen(conditions.AMD) - self._unseen(conditions.NVIDIA)

    def _unseen(self, macros: Macros) -> frozenset[int]:
        dead, _ = conditions.branches(self.code, macros)
        return frozenset(i for places in dead for i in range(*places))

    def arguments(self, i: int) -> list[tuple[int, int]] | None:
        """The argument ranges of the call whose name is token ``i``; None if it is not a call."""
        code = self.code
        if code.text[i + 1] != "(" or code.partner[i + 1] < 0:
            return None
        return code.split(i + 2, code.partner[i + 1])

    def is_free_name(self, i: int) -> bool:
        """Whether token ``i`` is a name by itself: no member, and in no namespace of others."""
        code = self.code
        if code.tokens[i].kind is not Kind.NAME:
            return False
        before = code.text[i - 1] if i else ""
        if before in (".", "->"):
            return False
        if before == "::" and i > 1:
            scope = code.tokens[i - 2]
            return scope.kind is not Kind.NAME and scope.text != ">"
        return True

    def words_of_directive(self, name: str) -> list[tuple[int, int]]:
        """The operand ranges of all directives called ``name``."""
        return [(d.begin + 2, d.end) for d in self.code.directives if d.name == name]


def _short(text: str) -> str:
    return text if len(text) <= _QUOTED else text[: _QUOTED - 3] + "..."
