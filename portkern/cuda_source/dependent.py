"""Names that depend on a template's parameters, where the text does not say that they are types or
templates: nvcc finds out by itself what they are of, other compilers ask to be told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from portkern.cuda_source.lexer import Kind, SourceCode
from portkern.cuda_source.names import DeclaredNames

#: What says already that a type follows, or that none does.
_SAID = frozenset(["typename", "using", "::", ".", "->", "struct", "class", "union", "enum", "~"])
_HEADS = frozenset(["struct", "class", "union"])
#: The most tokens of a template's parameters or arguments, and of a statement before a name in it.
_MOST_TOKENS = 200
#: How often a scope is asked whether it has a name: a text that needs more is nobody's program.
_MOST_LOOKS = 10_000_000


class UnsaidWord(NamedTuple):
    """``word`` (``typename`` or ``template``) belongs before the first token of the range."""

    word: str
    first: int
    last: int


def unsaid(code: SourceCode, known: DeclaredNames) -> Iterator[UnsaidWord]:
    """The places that lack such a word, by what is ``known`` of the names."""
    if "template" not in code.text:
        return
    for first, parts in _chains(code):
        for part in parts[1:]:
            is_template = code.text[part] in known.templates and code.text[part + 1] == "<"
            if is_template and code.text[part - 1] != "template":
                yield UnsaidWord("template", part, part + 1)
        name = code.text[parts[-1]]
        is_type = name in known.only_types and name != code.text[parts[0]]
        if is_type and not _is_said(code, first):
            yield UnsaidWord("typename", first, parts[-1] + 1)


def _chains(code: SourceCode) -> Iterator[tuple[int, list[int]]]:
    """Qualified names that depend on a template's parameters: where each begins, and the names from
    the one that depends on. ``A<T>::b`` does, as ``T::b`` does."""
    scopes, done, left = list(_scopes(code)), 0, _MOST_LOOKS
    names = {name for _, _, name in scopes}
    for i, token in enumerate(code.tokens):
        if i < done or token.kind is not Kind.NAME or code.text[i + 1] not in ("::", "<"):
            continue
        end = _component(code, i)
        if code.text[end] != "::" or names.isdisjoint(code.text[i:end]) or code.directive(i):
            continue
        left -= len(scopes)
        if left < 0:
            return
        own = {name for begin, stop, name in scopes if begin <= i < stop}
        if own.isdisjoint(code.text[i:end]):
            continue
        parts, at = [i], end
        while code.text[at] == "::":
            at += 1 + (code.text[at + 1] == "template")
            if code.tokens[at].kind is not Kind.NAME or code.text[at] == "operator":
                break
            parts.append(at)
            at = _component(code, at)
        done = parts[-1] + 1
        if len(parts) > 1 and code.text[parts[-1] + 1] != "::":
            yield _begin(code, i), parts


def _component(code: SourceCode, i: int) -> int:
    """The token behind a name and its template arguments."""
    if code.text[i + 1] == "<":
        close = code.close_angle(i + 1, min(i + _MOST_TOKENS, len(code.text)))
        if close > 0 and code.text[close + 1] in ("::", "(", "{", ">", ",", ")", ";", "&", "*"):
            return close + 1
    return i + 1


def _begin(code: SourceCode, i: int) -> int:
    """The beginning of the name that has token ``i``, with its namespaces."""
    while code.text[i - 1] == "::":
        i -= 1
        if code.tokens[i - 1].kind is not Kind.NAME or code.text[i - 1] in ("return", "typename"):
            break
        i -= 1
    return i


def _is_said(code: SourceCode, first: int) -> bool:
    """Whether a word before the name says what it is, or it is a base or a member's, which
    leaves no doubt."""
    before = code.text[first - 1]
    if before in _SAID or before == ":":
        return True
    i, least = first - 1, max(first - _MOST_TOKENS, 0)
    while i > least and code.text[i] not in (";", "{", "}", ")"):
        if code.text[i] in _HEADS and code.text[i - 1] not in ("<", ","):
            return True
        i -= 1
    return False


def _scopes(code: SourceCode) -> Iterator[tuple[int, int, str]]:
    """The scopes of names that depend on a template's parameters: these themselves, and what
    ``using`` calls a type that is made of them."""
    found: list[tuple[int, int, str]] = []
    for i, text in enumerate(code.text[:-1]):
        if text == "template" and code.text[i + 1] == "<":
            close = code.close_angle(i + 1, min(i + _MOST_TOKENS, len(code.text)))
            end = _end(code, close)
            for first, last in code.split(i + 2, close) if close > 0 else ():
                if code.text[first] in ("typename", "class", "template"):
                    stop = next((j for j in range(first, last) if code.text[j] == "="), last)
                    found.append((close, end, code.text[stop - 1]))
        elif text == "using" and code.text[i + 2] == "=":
            most = min(i + _MOST_TOKENS, len(code.text))
            stop = next((j for j in range(i, most) if code.text[j] == ";"), i)
            named = set(code.text[i + 3 : stop])
            around = next((s for s in found if s[0] <= i < s[1] and s[2] in named), None)
            if around is not None:
                found.append((stop, around[1], code.text[i + 1]))
    yield from found


def _end(code: SourceCode, close: int) -> int:
    """The end of the declaration whose template's head ends at ``close``."""
    i = close + 1
    while i < min(len(code.text) - 1, close + _MOST_TOKENS) and code.text[i] != ";":
        if code.text[i] == "{":
            return max(code.partner[i], i)
        i = code.partner[i] + 1 if code.text[i] == "(" and code.partner[i] > i else i + 1
    return i
