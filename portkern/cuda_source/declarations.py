"""Declarations of names: the nearest one before a use whose scope reaches it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from portkern.cuda_source.lexer import CLOSE, OPEN, Kind, SourceCode

_OF_TYPE = frozenset("unsigned signed int long short char float double bool".split())
_FLOATS = frozenset(["float", "double"])
_QUALIFIERS = frozenset(["const", "__restrict__", "__restrict", "restrict", "volatile"])
_STORAGE = _QUALIFIERS | frozenset(
    "constexpr static inline register extern __shared__ __device__ __constant__".split()
)
_AFTER_NAME = frozenset(["=", ";", ",", ")", "[", "{", ":"])
#: What the type of a declaration begins after; a product has other things before it.
_BEFORE_TYPE = frozenset([";", "{", "}", "(", ",", ":", "::", ">", ")"])
_NO_TYPE = frozenset("return else case goto new delete using typename".split())
UNSIGNED = {"int": "unsigned", "long": "unsigned long", "long long": "unsigned long long"}


@dataclass(frozen=True)
class Declared:
    """``type`` is plain, ``stars`` how many pointers and arrays lead to it; ``value`` an
    initializer's range where the type is ``auto``."""

    type: str
    stars: int
    value: tuple[int, int] | None = None


class Declarations:
    def __init__(self, code: SourceCode) -> None:
        self._code = code

    def of(self, name: int) -> Declared | None:
        """The declaration of token ``name``; None where the file does not say."""
        code = self._code
        if code.tokens[name].kind is not Kind.NAME:
            return None
        before = [i for i in code.places(code.text[name]) if i < name]
        for i in reversed(before):
            declared = self._declared(i)
            if declared is not None and self._reaches(i, name):
                return declared
        return None

    def _declared(self, i: int) -> Declared | None:
        """The declaration that token ``i`` is the name in, if it is one."""
        text, at = self._code.text, i - 1
        if text[i + 1] not in _AFTER_NAME or self._code.directive(i) is not None:
            return None
        while text[at] == ",":  # int a = 1, b: the type stands before the first
            at = self._declarator_before(at)
        stars = 0
        while text[at] in _QUALIFIERS or text[at] in ("*", "&"):
            stars += text[at] == "*"
            at -= 1
        begin, earliest = at, self._code.earliest(i)
        while begin >= earliest and self._is_of_type(begin):
            begin -= 1
        if begin >= earliest and (text[begin] not in _BEFORE_TYPE or self._is_argument(begin)):
            return None
        type_ = self.plain(begin + 1, at + 1)
        after = i + 1
        while text[after] == "[" and self._code.partner[after] > 0:
            stars, after = stars + 1, self._code.partner[after] + 1
        if type_ == "auto" and text[after] == "=" and not stars:
            return Declared(type_, 0, (after + 1, self._end(after + 1)))
        return Declared(type_, stars) if type_ else None

    def _declarator_before(self, comma: int) -> int:
        """The token before the name that the comma ends, in a list of declarations."""
        code, i = self._code, comma - 1
        while i > 0 and code.text[i] not in (";", ",", "{", "}", "("):
            if code.text[i] in CLOSE and code.partner[i] >= 0:
                i = code.partner[i]
            elif code.text[i] == "=" or code.text[i + 1] == ",":
                name = i - 1 if code.text[i] == "=" else i
                while code.text[name] == "]":
                    name = code.partner[name] - 1
                if code.tokens[name].kind is Kind.NAME and code.text[name - 1] != "(":
                    return name - 1
            i -= 1
        return 0

    def _is_argument(self, before: int) -> bool:
        """Whether what follows token ``before`` stands in parentheses that declare nothing."""
        code = self._code
        if code.text[before] not in ("(", ","):
            return False
        opener = before if code.text[before] == "(" else self._opener[before]
        if opener < 0 or code.text[opener] != "(" or code.text[opener - 1] == "for":
            return False
        return code.text[code.partner[opener] + 1] != "{"

    def _is_of_type(self, i: int) -> bool:
        """Whether token ``i`` belongs to the type that ends where it, or the next one, does."""
        text = self._code.text[i]
        if text in _OF_TYPE or text in _STORAGE:
            return True
        return self._code.tokens[i].kind is Kind.NAME and text not in _NO_TYPE

    def plain(self, first: int, last: int) -> str | None:
        """A type of one name, without qualifiers: ``unsigned long``, ``half2``; None: no type."""
        words = [w for w in self._code.text[first:last] if w not in _STORAGE]
        if not words or not all(word.isidentifier() for word in words):
            return None
        if not set(words) <= _OF_TYPE:
            return words[0] if len(words) == 1 else None
        longs = words.count("long")
        if "short" in words or "char" in words or "bool" in words:
            return "int"
        kind = next((w for w in words if w in _FLOATS), "long " * longs or "int").strip()
        return UNSIGNED.get(kind) if "unsigned" in words else kind

    def _end(self, i: int) -> int:
        code = self._code
        while i < len(code.text) - 1 and code.text[i] not in (";", ",", ")"):
            i = code.partner[i] + 1 if code.text[i] in OPEN and code.partner[i] > i else i + 1
        return i

    def _reaches(self, declaration: int, use: int) -> bool:
        """Whether the scope of the one has the other."""
        brackets = list(self._enclosing(declaration))
        if not brackets:
            return True
        last = brackets[-1]
        if self._code.text[last] == "(":  # parameters, or the head of a loop: what follows it
            end = self._scope_after(self._code.partner[last])
            return use < end
        return use < self._code.partner[last]

    def _scope_after(self, close: int) -> int:
        """The end of the body, or of the statement, whose head ends at ``close``."""
        code, i = self._code, close + 1
        while i < len(code.text) - 1 and code.text[i] not in ("{", ";"):
            i = code.partner[i] + 1 if code.text[i] == "(" and code.partner[i] > i else i + 1
        return code.partner[i] if code.text[i] == "{" else i

    def _enclosing(self, i: int) -> Iterator[int]:
        """The brackets that are open at token ``i``, the outermost first."""
        chain = []
        at = self._opener[i]
        while at >= 0:
            chain.append(at)
            at = self._opener[at]
        return reversed(chain)

    @cached_property
    def _opener(self) -> list[int]:
        """The index, for each token, of the innermost bracket that is open before it; -1: none."""
        openers, open_ = [], [-1]
        for i, partner in enumerate(self._code.partner):
            while 0 <= partner < i and len(open_) > 1 and open_[-1] >= partner:
                open_.pop()
            openers.append(open_[-1])
            if partner > i:
                open_.append(i)
        return openers
