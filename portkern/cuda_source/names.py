"""The kinds of a source's names: types, templates, or anything else."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

from portkern.cuda_source.lexer import Kind, SourceCode

_CLASSES = frozenset(["struct", "class", "union", "enum"])
#: Behind these a name is used, not declared.
_USES = frozenset(
    "return else do case new delete typename template using goto sizeof throw co_return".split()
)
_TYPES_BEFORE = frozenset(["*", "&", "&&", ">"])
#: The most tokens of a template's parameters.
_MOST_TOKENS = 200


@dataclass(frozen=True)
class DeclaredNames:
    """``others`` are declared as functions or variables; a name may be of several."""

    types: frozenset[str] = frozenset()
    templates: frozenset[str] = frozenset()
    others: frozenset[str] = frozenset()

    def __or__(self, more: DeclaredNames) -> DeclaredNames:
        return DeclaredNames(
            self.types | more.types, self.templates | more.templates, self.others | more.others
        )

    @property
    def only_types(self) -> frozenset[str]:
        return self.types - self.others


UNDECLARED = DeclaredNames()


def together(names: Iterable[DeclaredNames]) -> DeclaredNames:
    return reduce(DeclaredNames.__or__, names, UNDECLARED)


def declared_names(code: SourceCode) -> DeclaredNames:
    """The names declared in all scopes and branches, without a template's own parameters."""
    types: set[str] = set()
    templates: set[str] = set()
    others: set[str] = set()
    text, done = code.text, 0
    for i, token in enumerate(code.tokens):
        if i < done or token.kind is not Kind.NAME or code.directive(i) is not None:
            continue
        if token.text == "template" and text[i + 1] == "<":
            templates |= _templated(code, i)
        elif token.text in _CLASSES and text[i - 1] not in ("<", ",", "enum", "friend"):
            types |= _class(code, i + 1)
        elif text[i - 1] == "using" and text[i + 1] == "=":
            types.add(token.text)
        elif token.text == "typedef":
            name, done = _typedef(code, i + 1)
            types.add(name)
        elif _is_declared(code, i):
            others.add(token.text)
    return DeclaredNames(frozenset(types), frozenset(templates), frozenset(others))


def _class(code: SourceCode, i: int) -> set[str]:
    """The name of the class whose keyword stands before token ``i``."""
    if code.text[i] in _CLASSES:  # enum class
        i += 1
    while code.text[i + 1] == "(" and code.partner[i + 1] > 0:  # __align__(16)
        i = code.partner[i + 1] + 1
    ends = code.text[i + 1] in ("{", ";", ":", "<", "final")
    return {code.text[i]} if code.tokens[i].kind is Kind.NAME and ends else set()


def _typedef(code: SourceCode, i: int) -> tuple[str, int]:
    """The last name before the semicolon, of a pointer to a function the one in its brackets; and
    behind what more is to be read, for a class may be defined there."""
    done = i
    last = i
    while i < len(code.text) - 1 and code.text[i] != ";":
        if code.text[i] == "{" and code.partner[i] > i:
            return code.text[code.partner[i] + 1], done
        if code.text[i] == "(" and code.text[i + 1] == "*":
            return code.text[i + 2], i
        last = i if code.tokens[i].kind is Kind.NAME else last
        i += 1
    return code.text[last], i


def _templated(code: SourceCode, i: int) -> set[str]:
    """The names that the template beginning at ``i`` declares: a class, an alias or a function."""
    text, close = code.text, code.close_angle(i + 1, min(i + _MOST_TOKENS, len(code.text)))
    j, last = close + 1, min(close + _MOST_TOKENS, len(text) - 1)
    while 0 < close and j < last and text[j] not in (";", "{", "}"):
        if text[j] in _CLASSES:
            return _class(code, j + 1)
        if text[j] == "using" and text[j + 2] == "=":
            return {text[j + 1]}
        if text[j] == "(" and code.tokens[j - 1].kind is Kind.NAME:
            return {text[j - 1]}
        if text[j] == "<" and (j := code.close_angle(j, last)) < 0:
            break
        j += 1
    return set()


def _is_declared(code: SourceCode, i: int) -> bool:
    """Whether token ``i`` stands behind a type, where a function or a variable has its name."""
    before, after = code.tokens[i - 1], code.text[i + 1]
    if i == 0 or after not in ("(", "=", "[", ";", ",", "{", ")", ":"):
        return False
    if before.kind is Kind.NAME:
        return before.text not in _USES | _CLASSES
    typed = code.tokens[i - 2].kind is Kind.NAME or code.text[i - 2] in _TYPES_BEFORE
    return before.text in _TYPES_BEFORE and typed and after in ("(", "=", "[", ";")
