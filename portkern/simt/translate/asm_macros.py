"""Macros that write inline assembly from their arguments: their uses are expanded first.

An ``asm`` statement can be read where its strings and operands stand. In the body of a macro they
may be parameters; so a use of such a macro becomes what the preprocessor would make of it, on its
line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from portkern.simt.translate.lexer import Directive, Kind, SourceCode, tokenize
from portkern.simt.translate.survey import ASM

#: Expansions longer than this are none: macros that double each other grow without end.
LONGEST = 1_000_000


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


class _TooLong(Exception):
    pass


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
            except _TooLong:
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
        pending = list(words)
        while pending:
            word = pending.pop(0)
            macro = self.macros.get(word.text) if word.kind is Kind.NAME else None
            if macro is None or word.text in word.hidden:
                out.append(word)
                continue
            arguments: list[_Words] = []
            if macro.params is not None:
                if not pending or pending[0].text != "(":
                    out.append(word)
                    continue
                arguments, used = _arguments(pending)
                del pending[:used]
            body = self._substituted(word.text, macro, arguments)
            hidden = word.hidden | {word.text}
            again = [_Word(w.kind, w.text, w.gap, w.hidden | hidden) for w in body]
            if len(again) + len(pending) + len(out) > LONGEST:
                raise _TooLong
            pending[:0] = again
        return tuple(out)

    def _substituted(self, name: str, macro: _Macro, given: Sequence[_Words]) -> _Words:
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
                out += argument if pasted else self._expand(argument)
                i += 1
            else:
                out.append(word)
                i += 1
        return tuple(out)


def _arguments(pending: Sequence[_Word]) -> tuple[list[_Words], int]:
    """From the '(' on: the arguments, and how many words they take with their brackets."""
    depth, at = 0, 0
    arguments: list[list[_Word]] = [[]]
    for at, word in enumerate(pending):
        depth += (word.text in ("(", "[", "{")) - (word.text in (")", "]", "}"))
        if depth == 0:
            break
        if at == 0:
            continue
        if word.text == "," and depth == 1:
            arguments.append([])
        else:
            arguments[-1].append(word)
    return [tuple(each) for each in arguments], at + 1


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
