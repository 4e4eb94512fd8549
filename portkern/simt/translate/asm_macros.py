"""Macros that write inline assembly from their arguments: their uses are expanded first.

An ``asm`` statement can be read where its strings and operands stand. In the body of a macro they
may be parameters; so a use of such a macro becomes what the preprocessor would make of it, on its
line.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from portkern.cuda_source.lexer import CLOSE, OPEN, Directive, Kind, SourceCode, tokenize
from portkern.simt.translate.survey import ASM

#: Expansions longer than this are none: macros that double each other grow without end.
LONGEST = 200_000


@dataclass(frozen=True)
class _Word:
    kind: Kind
    text: str
    gap: bool
    hidden: frozenset[str] = frozenset()  # macros that it came out of: not expanded again


_Words = tuple[_Word, ...]


@dataclass(frozen=True)
class _Macro:
    params: tuple[str, ...] | None
    body: _Words

    @property
    def variadic(self) -> bool:
        return self.params is not None and self.params[-1:] == ("__VA_ARGS__",)


class _NoExpansion(Exception):
    """It has no end, or names itself: the compiler would expand what is left again."""


def expanded(source: str) -> str:
    """``source`` with every use of a macro expanded whose assembly depends on its arguments.

    Macros count that the file itself defines, once: which of several is in force is not known.
    """
    if "#" not in source or not any(word in source for word in ASM):
        return source
    code = SourceCode(source)
    macros = _macros(code)
    wanted = _writers(macros)
    return _Expansion(code, macros, wanted).text() if wanted else source


def _macros(code: SourceCode) -> dict[str, _Macro]:
    """The file's macros that are defined once."""
    found: dict[str, _Macro] = {}
    twice: set[str] = set()
    for d in code.directives:
        if d.name not in ("define", "undef") or d.begin + 2 >= d.end:
            continue
        name = code.text[d.begin + 2]
        if name in found or d.name == "undef":
            twice.add(name)
        found[name] = _Macro(_params(code, d), _words(code, d.body, d.end))
    return {name: macro for name, macro in found.items() if name not in twice}


def _params(code: SourceCode, d: Directive) -> tuple[str, ...] | None:
    if d.body <= d.begin + 3:
        return None
    inside = [code.text[i] for i in range(d.begin + 4, d.body - 1) if code.text[i] != ","]
    return tuple("__VA_ARGS__" if each == "..." else each for each in inside)


def _words(code: SourceCode, first: int, last: int) -> _Words:
    return tuple(_Word(t.kind, t.text, bool(t.gap)) for t in code.tokens[first:last])


def _writers(macros: Mapping[str, _Macro]) -> set[str]:
    """Macros of arguments that have assembly, with a parameter in it, and those that use such."""
    wanted = {name for name, macro in macros.items() if macro.params and _varies(macro)}
    while True:
        users = {
            name
            for name, macro in macros.items()
            if name not in wanted and any(word.text in wanted for word in macro.body)
        }
        if not users:
            return wanted
        wanted |= users


def _varies(macro: _Macro) -> bool:
    texts = [word.text for word in macro.body]
    at = next((i for i, text in enumerate(texts) if text in ASM), None)
    if at is None or macro.params is None:
        return False
    # Strings and what stands between an operand's ':' and its '(' must be read; a parameter within
    # an operand's expression, or a lone one that is such an expression, is C++.
    depth = 0
    for i in range(at, len(texts)):
        depth += (texts[i] == "(") - (texts[i] == ")")
        if texts[i] in macro.params and (depth == 1 or texts[i - 1] == "#"):
            return True
        if depth == 0 and texts[i] == ")":
            return False
    return False


class _Expansion:
    def __init__(self, code: SourceCode, macros: Mapping[str, _Macro], wanted: set[str]) -> None:
        self.code, self.macros, self.wanted = code, macros, wanted

    def text(self) -> str:
        parts: list[str] = []
        done = 0  # of the source
        i = 0
        tokens = self.code.tokens
        while i < len(tokens):
            end = self._use(i)
            if end is None:
                i += 1
                continue
            range_ = self.code.source[tokens[i].begin : tokens[end - 1].end]
            try:
                words = self._expand(_words(self.code, i, end))
            except (_NoExpansion, RecursionError):
                i = end
                continue
            parts += [self.code.source[done : tokens[i].begin], _spelled(words)]
            parts.append("\n" * range_.count("\n"))
            done, i = tokens[end - 1].end, end
        return "".join(parts) + self.code.source[done:]

    def _use(self, i: int) -> int | None:
        """The end of the use of a wanted macro at token ``i``."""
        code = self.code
        if code.tokens[i].text not in self.wanted or code.directive(i) is not None:
            return None
        if self.macros[code.text[i]].params is None:
            return i + 1
        closing = code.partner[i + 1] if code.text[i + 1] == "(" else -1
        return closing + 1 if closing > 0 and not code.has_directive(i, closing) else None

    def _expand(self, words: _Words) -> _Words:
        out: list[_Word] = []
        pending = deque(words)
        while pending:
            word = pending.popleft()
            macro = self.macros.get(word.text) if word.kind is Kind.NAME else None
            if macro is None:
                out.append(word)
                continue
            if word.text in word.hidden:
                raise _NoExpansion
            arguments: list[_Words] = []
            if macro.params is not None:
                if not pending or pending[0].text != "(":
                    out.append(word)
                    continue
                arguments = _take_arguments(pending)
            body = _behind(word.gap, self._substituted(macro, arguments))
            hidden = word.hidden | {word.text}
            again = [replace(each, hidden=each.hidden | hidden) for each in body]
            if len(again) + len(pending) + len(out) > LONGEST:
                raise _NoExpansion
            pending.extendleft(reversed(again))
        return tuple(out)

    def _substituted(self, macro: _Macro, given: Sequence[_Words]) -> _Words:
        bound = _bound(macro, given)
        body, out = macro.body, list[_Word]()
        i = 0
        while i < len(body):
            word = body[i]
            if word.text == "#" and i + 1 < len(body) and body[i + 1].text in bound:
                out.append(_quoted(bound[body[i + 1].text], word.gap))
                i += 2
            elif word.text == "##" and out and i + 1 < len(body):
                right = bound.get(body[i + 1].text, (body[i + 1],))
                out[-1:] = _pasted(out[-1], right)
                i += 2
            elif word.text in bound:
                pasted = i + 1 < len(body) and body[i + 1].text == "##"
                argument = bound[word.text]
                out += _behind(word.gap, argument if pasted else self._expand(argument))
                i += 1
            else:
                out.append(word)
                i += 1
        return tuple(out)


def _take_arguments(pending: deque[_Word]) -> list[_Words]:
    """The arguments of a use, whose '(' is next; they are taken with their brackets."""
    depth = 0
    arguments: list[list[_Word]] = [[]]
    while pending:
        word = pending.popleft()
        opens = word.text in OPEN
        depth += opens - (word.text in CLOSE)
        if depth == 0:
            break
        if word.text == "," and depth == 1:
            arguments.append([])
        elif depth > 1 or not opens:
            arguments[-1].append(word)
    return [tuple(each) for each in arguments]


def _bound(macro: _Macro, given: Sequence[_Words]) -> dict[str, _Words]:
    params = macro.params or ()
    if not macro.variadic:
        return dict(zip(params, [*given, *[()] * len(params)], strict=False))
    named = len(params) - 1
    rest: list[_Word] = []
    for n, argument in enumerate(given[named:]):
        rest += [_Word(Kind.OP, ",", False)] if n else []
        rest += argument
    bound = dict(zip(params[:named], [*given[:named], *[()] * named], strict=False))
    return bound | {"__VA_ARGS__": tuple(rest)}


def _behind(gap: bool, words: _Words) -> _Words:
    """With the gap of the name in whose place they are."""
    return (replace(words[0], gap=gap), *words[1:]) if words else ()


def _quoted(words: _Words, gap: bool) -> _Word:
    text = _spelled(words).strip().replace("\\", "\\\\").replace('"', '\\"')
    return _Word(Kind.STRING, f'"{text}"', gap)


def _pasted(left: _Word, right: _Words) -> Iterator[_Word]:
    joined = left.text + (right[0].text if right else "")
    made = [token for token in tokenize(joined) if token.text]
    for n, token in enumerate(made):
        yield _Word(token.kind, token.text, left.gap if n == 0 else False)
    yield from right[1:]


def _spelled(words: _Words) -> str:
    parts: list[str] = []
    for n, word in enumerate(words):
        before = words[n - 1] if n else None
        touching = before is not None and {before.kind, word.kind} <= {Kind.NAME, Kind.NUMBER}
        parts.append((" " if n and (word.gap or touching) else "") + word.text)
    return "".join(parts)
