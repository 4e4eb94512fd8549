"""Tokens of CUDA and HIP source, and how they nest: brackets, directives, template arguments.

Nothing is preprocessed: every branch of an ``#if`` is there, and every macro's body.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import pairwise
from typing import Generic, NamedTuple, TypeVar


class Kind(StrEnum):
    NAME = "name"
    NUMBER = "number"
    STRING = "string"  # with prefix and quotes; raw ones too
    CHAR = "char"
    OP = "op"  # '<<<' is one token and so are other operators, but each '>' is one by itself
    END = "end"  # the last token, empty: its gap is what trails


class Token(NamedTuple):
    kind: Kind
    text: str
    gap: str  # white space, comments and line continuations before it
    line: int  # from 1
    first: bool  # the first of a logical line: only there '#' starts a directive
    begin: int  # offset of ``text`` in the source

    @property
    def end(self) -> int:
        return self.begin + len(self.text)


# An open comment or raw string goes on to the end of the file; an open quote is one character.
_SPLICE = r"\\[ \t]*\r?\n"
_LINE_COMMENT = r"//[^\n\\]*+(?:\\(?:[ \t]*\r?\n|.|\Z)[^\n\\]*+)*+"
_BLOCK_COMMENT = r"/\*(?:.*?\*/|.*)"
_TOKEN = re.compile(
    rf"""
    (?P<gap> (?: \s++ | {_SPLICE} | {_LINE_COMMENT} | {_BLOCK_COMMENT} )*+ )
    (?:
        (?P<raw> (?:u8|[uUL])? R"(?P<mark>[^()\\\s"]{{0,16}}) \( (?: .*? \)(?P=mark)" | .* ) )
      | (?P<string> (?:u8|[uUL])? " [^"\\\n]*+ (?: \\(?:\r\n|.) [^"\\\n]*+ )*+ " )
      | (?P<char> (?:u8|[uUL])? ' [^'\\\n]*+ (?: \\(?:\r\n|.) [^'\\\n]*+ )*+ ' )
      | (?P<name> [^\W\d][\w$]*+ | \$[\w$]*+ )
      | (?P<number> \.?\d (?: [eEpP][+-] | '\w | [\w.] )*+ )
      | (?P<op> <<<? | <=>? | << | ->\*? | :: | \.\.\. | \#\# | && | \|\| | \+\+ | --
              | [-+*/%&|^!=]= | >= | . )
    )?
    """,
    re.VERBOSE | re.DOTALL,
)
_KINDS = {kind.value: kind for kind in Kind} | {"raw": Kind.STRING}
COMMENT = re.compile(rf"{_LINE_COMMENT}|{_BLOCK_COMMENT}", re.DOTALL)
_NOT_A_LINE_BREAK = re.compile(rf"{_SPLICE}|{_LINE_COMMENT}|{_BLOCK_COMMENT}", re.DOTALL)


def tokenize(source: str) -> list[Token]:
    """All tokens, an ``END`` last; gaps and texts joined are ``source`` again."""
    tokens: list[Token] = []
    line, size, first = 1, len(source), True
    for match in _TOKEN.finditer(source):
        gap = match["gap"]
        if "\n" in gap:
            line += gap.count("\n")
            plain = gap if not ("/" in gap or "\\" in gap) else _NOT_A_LINE_BREAK.sub("", gap)
            first = first or "\n" in plain
        group = match.lastgroup
        if group is None or group == "gap":  # nothing after the gap: the end of the file
            tokens.append(Token(Kind.END, "", gap, line, True, size))
            break
        text = match[group]
        tokens.append(Token(_KINDS[group], text, gap, line, first, match.end() - len(text)))
        first = False
        if "\n" in text:
            line += text.count("\n")
    return tokens


@dataclass(frozen=True)
class Macro:
    """One ``#define``; ``params`` is None for an object-like macro, and has ``__VA_ARGS__``.
    ``order`` has the parameters as they are listed, the last as ``__VA_ARGS__`` for ``...``."""

    name: str
    params: frozenset[str] | None
    variadic: frozenset[str]  # the parameters that stand for any number of arguments
    body: tuple[Token, ...]
    conditional: bool  # within #if: another definition may be the one in force
    order: tuple[str, ...] = ()


class Directive(NamedTuple):
    name: str  # "define", "if", …; "" when there is none
    begin: int  # index of '#'
    end: int  # index after the last token
    body: int  # for "define": index of the first token of the replacement


IFS = ("if", "ifdef", "ifndef")
ELSES = ("else", "elif", "elifdef", "elifndef")

State = TypeVar("State")


class Branches(Generic[State]):
    """The state of a reader at each #if: every branch starts from it, and `#if 0` changes
    nothing."""

    def __init__(self) -> None:
        self._saved: list[tuple[State, bool]] = []  # at each open #if; whether the branch is dead

    @property
    def depth(self) -> int:
        return len(self._saved)

    def pass_by(self, d: Directive, operands: list[str], now: State) -> State:
        """The state after ``d``; ``now`` is kept, not copied."""
        if d.name in IFS:
            self._saved.append((now, d.name == "if" and operands in (["0"], ["false"])))
        elif d.name in ELSES and self._saved:
            now, _ = self._saved[-1]
            self._saved[-1] = now, False
        elif d.name == "endif" and self._saved:
            before, dead = self._saved.pop()
            return before if dead else now
        return now


OPEN, CLOSE = {"(": ")", "[": "]", "{": "}"}, {")": "(", "]": "[", "}": "{"}
#: Template arguments of more tokens than this are not looked for.
ANGLE_REACH = 2000
#: What may follow the '>' of template arguments in an expression.
_AFTER_TEMPLATE = frozenset(["(", "::", "{", "}", ">", ",", ")", "]", ";", "...", "&", "*", "="])


class SourceCode:
    """A file's tokens; an index below is a place in ``tokens``, a range is [first, last)."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.tokens = tokenize(source)
        self.text = [token.text for token in self.tokens]
        self.directives = list(self._find_directives())
        self._begins = [d.begin for d in self.directives]
        # Of each bracket; -1: none. Where branches of an #if open one each, all have the same.
        self.partner = [-1] * len(self.tokens)
        self._alike: dict[int, list[int]] = {}  # those of earlier branches, by the last's
        self._match_brackets()

    def _find_directives(self) -> Iterator[Directive]:
        text, tokens = self.text, self.tokens
        starts = [i for i, token in enumerate(tokens) if token.first]
        for begin, end in pairwise(starts):
            if text[begin] != "#":
                continue
            name = text[begin + 1] if begin + 1 < end else ""
            body = end
            if name == "define" and begin + 2 < end:
                body = begin + 3
                if body < end and text[body] == "(" and not tokens[body].gap:
                    while body < end and text[body] != ")":
                        body += 1
                    body = min(body + 1, end)
            yield Directive(name, begin, end, body)

    def _match_brackets(self) -> None:
        stack: list[int] = []
        branches = Branches[list[int]]()
        ends: list[list[list[int]]] = []  # at each open #if: what its branches so far leave open
        at = 0
        for d in self.directives:
            self._match_range(at, d.begin, stack)
            self._match_range(d.body, d.end, [])
            if d.name in IFS:
                ends.append([])
            elif d.name in ELSES and ends:
                ends[-1].append(stack)
            elif d.name == "endif" and ends:
                self._note_alike(ends.pop(), stack)
            stack = branches.pass_by(d, self.text[d.begin + 2 : d.end], stack).copy()
            at = d.end
        self._match_range(at, len(self.tokens), stack)

    def _note_alike(self, earlier: list[list[int]], last: list[int]) -> None:
        """Branches that each open a bracket share the one that closes it."""
        for stack in earlier:
            if len(stack) == len(last):
                for mine, other in zip(stack, last, strict=True):
                    if mine != other and self.text[mine] == self.text[other]:
                        self._alike.setdefault(other, []).append(mine)

    def _match_range(self, first: int, last: int, stack: list[int]) -> None:
        text = self.text
        for i in range(first, last):
            if text[i] in OPEN:
                stack.append(i)
            elif text[i] in CLOSE:
                # Whatever else is open inside was never closed.
                depth = len(stack) - 1
                while depth >= 0 and text[stack[depth]] != CLOSE[text[i]]:
                    depth -= 1
                if depth >= 0:
                    self.partner[i] = stack[depth]
                    self._close(stack[depth], i)
                    del stack[depth:]

    def _close(self, opening: int, closing: int) -> None:
        self.partner[opening] = closing
        for other in self._alike.pop(opening, ()):
            self._close(other, closing)

    def places(self, text: str) -> list[int]:
        """All tokens of this text."""
        return self._places.get(text, [])

    @cached_property
    def _places(self) -> dict[str, list[int]]:
        places: dict[str, list[int]] = {}
        for i, word in enumerate(self.text):
            places.setdefault(word, []).append(i)
        return places

    def directive(self, i: int) -> Directive | None:
        """The directive that token ``i`` belongs to."""
        at = bisect_left(self._begins, i + 1) - 1
        return self.directives[at] if at >= 0 and i < self.directives[at].end else None

    def earliest(self, i: int) -> int:
        """How far back a construct at ``i`` may begin: in its macro, or after a directive."""
        at = bisect_left(self._begins, i + 1) - 1
        if at < 0:
            return 0
        d = self.directives[at]
        return d.body if i < d.end else d.end

    def has_directive(self, first: int, last: int) -> bool:
        return bisect_left(self._begins, first) < bisect_left(self._begins, last)

    def outside_directives(self, first: int, last: int) -> list[str]:
        """The texts of the range, without those of directives."""
        texts: list[str] = []
        for d in self.directives[
            bisect_left(self._begins, first) : bisect_left(self._begins, last)
        ]:
            texts += self.text[first : d.begin]
            first = d.end
        return texts + self.text[first:last]

    def macro(self, d: Directive, conditional: bool) -> Macro:
        """The macro that the #define ``d`` defines."""
        name = self.text[d.begin + 2] if d.begin + 2 < d.end else ""
        body = tuple(self.tokens[d.body : d.end])
        if d.body <= d.begin + 3:
            return Macro(name, None, frozenset(), body, conditional)
        inside = range(d.begin + 4, d.body)
        params = {self.text[i] for i in inside if self.tokens[i].kind is Kind.NAME}
        # GNU's `args...` names what __VA_ARGS__ stands for.
        variadic = {self.text[i - 1] for i in inside if self.text[i] == "..."} & params
        anyway = {"__VA_ARGS__", "__VA_OPT__"}
        return Macro(
            name,
            frozenset(params | anyway),
            frozenset(variadic | anyway),
            body,
            conditional,
            tuple(self._listed(inside)),
        )

    def _listed(self, parameters: range) -> Iterator[str]:
        """A macro's parameters in their order; ``args...`` is one of them, and so is ``...``."""
        for i in parameters:
            if self.text[i] == "..." and self.tokens[i - 1].kind is not Kind.NAME:
                yield "__VA_ARGS__"
            elif self.tokens[i].kind is Kind.NAME:
                yield self.text[i]

    def last_line(self, i: int) -> int:
        """The line on which token ``i`` ends."""
        return self.tokens[i].line + self.text[i].count("\n")

    def flat(self, first: int, last: int) -> str:
        """The range on one line, without comments."""
        return join(self.tokens[first:last])

    def close_angle(self, i: int, last: int) -> int:
        """The '>' that ends the template arguments opened by the '<' at ``i``; -1: none."""
        depth, last = 0, min(last, i + ANGLE_REACH)
        while i < last:
            text = self.text[i]
            if text in OPEN:
                i = self.partner[i]
                if i < 0:
                    return -1
            elif text == "<":
                depth += 1
            elif text == ">":
                depth -= 1
                if depth == 0:
                    return i
            elif text in CLOSE or text in (";", "<<<"):
                return -1
            i += 1
        return -1

    def open_angle(self, i: int, first: int) -> int:
        """The '<' that the '>' at ``i`` closes; -1: none."""
        depth, first = 0, max(first, i - ANGLE_REACH)
        while i >= first:
            text = self.text[i]
            if text in CLOSE:
                i = self.partner[i]
                if i < 0:
                    return -1
            elif text == ">":
                depth += 1
            elif text == "<":
                depth -= 1
                if depth == 0:
                    return i
            elif text in OPEN or text in (";", "<<<"):
                return -1
            i -= 1
        return -1

    def split(self, first: int, last: int) -> list[tuple[int, int]]:
        """The range cut at its commas, but not within brackets or template arguments."""
        if first >= last:
            return []
        commas = self._commas(first, last)
        bounds = [first - 1, *commas, last]
        return [(a + 1, b) for a, b in pairwise(bounds)]

    def _commas(self, first: int, last: int) -> list[int]:
        commas: list[int] = []
        angles: list[tuple[int, int]] = []  # each open '<': its index, how many commas before it
        i = first
        while i < last:
            text = self.text[i]
            if text in OPEN and self.partner[i] > 0:
                i = self.partner[i]
            elif text == ",":
                commas.append(i)
            elif text == "<" and self.tokens[i - 1].kind is Kind.NAME:
                angles.append((i, len(commas)))
            elif text == ">" and angles:
                _, before = angles.pop()
                if i + 1 >= last or self.text[i + 1] in _AFTER_TEMPLATE:
                    del commas[before:]
            i += 1
        return commas


def join(tokens: list[Token] | tuple[Token, ...]) -> str:
    """Tokens on one line: a space wherever there was a gap."""
    return "".join(
        f" {token.text}" if token.gap and n else token.text for n, token in enumerate(tokens)
    )
