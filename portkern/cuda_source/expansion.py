"""The expansion of uses of macros by the preprocessor, as words without line breaks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from portkern.cuda_source.lexer import CLOSE, OPEN, Kind, Macro, SourceCode, Token, tokenize

#: Expansions of more words are none: macros that double each other grow without end. What is only
#: read is shorter than what is compiled.
LONGEST, LONGEST_READ = 200_000, 10_000
#: The macro that a name stands for where it is used; None: it is not expanded.
Lookup = Callable[[str], "Macro | None"]


class NoExpansion(Exception):
    """It has no end, or names itself where the compiler would expand what is left again."""


@dataclass(frozen=True)
class _Word:
    kind: Kind
    text: str
    gap: bool
    hidden: frozenset[str] = frozenset()  # macros that it came out of: not expanded again


_Words = tuple[_Word, ...]


def expanded(
    code: SourceCode, first: int, last: int, lookup: Lookup, *, again: bool = False
) -> str:
    """The tokens [first, last) with their macros expanded, on one line; ``again``: the result is
    preprocessed once more, so a macro must not be left that names itself. Raises NoExpansion."""
    try:
        return _spelled(_Expansion(lookup, again).of(_words(code.tokens[first:last])))
    except RecursionError as error:
        raise NoExpansion from error


def use_at(code: SourceCode, i: int, macro: Macro) -> int | None:
    """Behind the use of the macro that stands at token ``i``; None for its name alone, and where a
    directive stands among its arguments."""
    if macro.params is None:
        return i + 1
    closing = code.partner[i + 1] if code.text[i + 1] == "(" else -1
    return closing + 1 if closing > 0 and not code.has_directive(i, closing) else None


def _words(tokens: Sequence[Token]) -> _Words:
    return tuple(_Word(t.kind, t.text, bool(t.gap)) for t in tokens)


class _Expansion:
    def __init__(self, lookup: Lookup, again: bool) -> None:
        self._lookup, self._again = lookup, again
        self._longest = LONGEST if again else LONGEST_READ
        self._bodies: dict[str, _Words] = {}

    def of(self, words: _Words) -> _Words:
        out: list[_Word] = []
        pending = deque(words)
        while pending:
            word = pending.popleft()
            macro = self._lookup(word.text) if word.kind is Kind.NAME else None
            if macro is not None and word.text in word.hidden:
                if self._again:
                    raise NoExpansion
                macro = None
            if macro is None:
                out.append(word)
                continue
            arguments: list[_Words] = []
            if macro.params is not None:
                if not pending or pending[0].text != "(":
                    out.append(word)
                    continue
                arguments = _take_arguments(pending)
            body = _behind(word.gap, self._substituted(macro, arguments))
            hidden = word.hidden | {word.text}
            again = [replace(each, hidden=each.hidden | hidden) for each in body]
            if len(again) + len(pending) + len(out) > self._longest:
                raise NoExpansion
            pending.extendleft(reversed(again))
        return tuple(out)

    def _substituted(self, macro: Macro, given: Sequence[_Words]) -> _Words:
        bound = _bound(macro, given)
        if macro.name not in self._bodies:
            self._bodies[macro.name] = _words(macro.body)
        body, out = self._bodies[macro.name], list[_Word]()
        i = 0
        while i < len(body):
            word = body[i]
            if word.text == "#" and i + 1 < len(body) and body[i + 1].text in bound:
                out.append(_quoted(bound[body[i + 1].text], word.gap))
                i += 2
            elif word.text == "##" and out and i + 1 < len(body):
                right = bound.get(body[i + 1].text, (body[i + 1],))
                if out[-1].text == "," and body[i + 1].text in macro.variadic:  # GNU's
                    out = [*out, *right] if right else out[:-1]
                else:
                    out[-1:] = _pasted(out[-1], right)
                i += 2
            elif word.text == "__VA_OPT__" and i + 1 < len(body) and body[i + 1].text == "(":
                inner = deque(body[i + 1 :])
                taken = _take_arguments(inner)
                if any(bound.get(name) for name in macro.variadic):
                    optional = replace(macro, name=f"{macro.name} optional {i}", body=())
                    self._bodies[optional.name] = _listed(taken)
                    out += self._substituted(optional, given)
                i = len(body) - len(inner)
            elif word.text in bound:
                pasted = i + 1 < len(body) and body[i + 1].text == "##"
                argument = bound[word.text]
                out += _behind(word.gap, argument if pasted else self.of(argument))
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


def _listed(arguments: Sequence[_Words]) -> _Words:
    """The arguments with commas between them."""
    listed: list[_Word] = []
    for n, argument in enumerate(arguments):
        listed += [_Word(Kind.OP, ",", False)] if n else []
        listed += argument
    return tuple(listed)


def _bound(macro: Macro, given: Sequence[_Words]) -> dict[str, _Words]:
    params = macro.order
    if params[-1:] == ("__VA_ARGS__",) or macro.variadic & set(params):
        named = len(params) - 1
        given = [*given[:named], *[()] * (named - len(given)), _listed(given[named:])]
    return dict(zip(params, [*given, *[()] * len(params)], strict=False))


def _behind(gap: bool, words: _Words) -> _Words:
    """The words with the gap that was before the name which they replace."""
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
