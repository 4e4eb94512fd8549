"""The type that a name has where host code uses it, by its declaration."""

from __future__ import annotations

import itertools
import re

from portkern.cuda_source.lexer import CLOSE, ELSES, IFS, OPEN
from portkern.cuda_source.source_map import SourceMap

_POINTERS = re.compile(
    r"""
    .*(?:\.|->)\s*(?:template\s+)?(?:data|data_ptr|(?:mutable|const)_data_ptr)\s*
        <\s*(?:const\s+)?([\w:]+)\s*>\s*\(\s*\)(?:\s*[-+].*)?  # x.data_ptr<T>()
    |(?:static|reinterpret)_cast\s*<\s*(?:const\s+)?([\w:]+)(?:\s+const)?\s*\*\s*>\s*\(.*\)
    |\(\s*(?:const\s+)?([\w:]+)(?:\s+const)?\s*\*\s*\)\s*[\w(].*      # (T*)x
    """,
    re.VERBOSE | re.DOTALL,
)
_OF_POINTERS = frozenset("* & && const volatile restrict __restrict __restrict__".split())
#: Before a name they make no declaration of it.
_STATEMENTS = frozenset(
    "return delete throw case goto new using namespace typedef sizeof operator co_return co_await "
    "co_yield not and or".split()
)
_CONTROLS = frozenset("if for while switch constexpr".split())
_STORED = frozenset(
    "static extern constexpr inline thread_local register mutable __device__ __constant__ "
    "__managed__ __shared__ __host__".split()
)
_AFTER_NAME = frozenset("= ; , ( { [ ) :".split())
#: A longer statement is not read.
_MOST_TOKENS = 1000


def shown_pointee(text: str) -> str:
    """The type that an expression points to, where it is spelled; '' where it is not."""
    match = _POINTERS.fullmatch(text.strip())
    return next(filter(None, match.groups()), "") if match else ""


def declared_type(source: SourceMap, name: str, at: int) -> str:
    """The type of a variable of host code at token ``at``, as ``const double*`` also of an array;
    '' where no declaration is seen from there, or it cannot be read, or the preprocessor decides
    which it is."""
    return _Search(source, name).before(at)


class _Search:
    """Goes back from a place through all that is in force there: over blocks and brackets that are
    closed, and out of those that are not."""

    def __init__(self, source: SourceMap, name: str) -> None:
        self._source, self._code, self._name = source, source.code, name
        self._text = source.code.text
        #: How many groups of ``#if`` ended; whether these are branches that are not the place's.
        self._groups, self._other = 0, False
        #: Whether a bracket belongs to the statement, and to what opens the block, of the place.
        self._is_within, self._is_head = True, False

    def before(self, at: int) -> str:
        if self._code.directive(at) is not None:
            return ""
        i = at - 1
        while i >= 0:
            directive = self._code.directive(i)
            if directive is not None:
                self._pass(directive.name)
                i = directive.begin - 1
                continue
            begin, found = (i, None) if self._other or self._source.is_dead(i) else self._step(i)
            if found is not None:
                return found if not self._groups else ""
            i = begin - 1
        return ""

    def _pass(self, directive: str) -> None:
        if directive == "endif":
            self._groups += 1
        elif directive in ELSES and not self._groups:
            self._other = True
        elif directive in IFS and self._groups:
            self._groups -= 1
        elif directive in IFS:
            self._other = False

    def _step(self, i: int) -> tuple[int, str | None]:
        """Where what ends at a token begins, and the type that it declares the name as."""
        word, first = self._text[i], self._code.partner[i]
        if word in CLOSE and 0 <= first < i:
            found = self._closed(first, i)
            if word == "}" and self._text[i + 1] not in (",", "{"):
                self._is_within = self._is_head = False
            return first, found
        if word in OPEN:
            self._is_within, self._is_head = True, word == "{"
        elif word == ";":
            self._is_within = self._is_head = False
        elif word == self._name and self._text[i - 1] not in (".", "->", "::"):
            return i, self._statement(self._begin(i), i)
        return i, None

    # ---- brackets

    def _closed(self, first: int, last: int) -> str | None:
        text, name = self._text, self._name
        inner = text[first + 1 : last] if text[first] != "{" else []
        if name not in inner:
            return None
        if text[first] == "[":
            is_bound = "auto" in text[max(first - 2, 0) : first]
            is_made = self._is_head and any(
                a == name and b == "=" for a, b in itertools.pairwise(inner)
            )
            return "" if is_bound or is_made else None
        if inner[0] in ("*", "&", "&&") and inner[1:] == [name] and text[last + 1] in ("[", "("):
            return ""  # double (*x)[4]
        return self._listed(first, last) if self._is_within else None

    def _listed(self, first: int, last: int) -> str | None:
        """The type that a list in round brackets before the statement or the block gives."""
        owner = set(self._text[max(first - 2, 0) : first]) & _CONTROLS
        if not owner:
            parameters = self._source.parameters(first + 1, last) if self._is_head else ()
            return next((p.type for p in parameters if p.name == self._name), None)
        for i in range(last - 1, max(first, last - _MOST_TOKENS), -1):
            if self._text[i] == self._name and self._text[i + 1] in ("=", ":", "{"):
                found = self._statement(self._begin(i), i)
                if found is not None:
                    return found
        return None

    # ---- statements

    def _begin(self, i: int) -> int:
        """The first token of the statement, or of what stands in a bracket, that ``i`` is in."""
        code, text, place = self._code, self._text, i
        while i > max(place - _MOST_TOKENS, 0):
            word = text[i - 1]
            is_open = word in OPEN or (word == "}" and text[i] != ",")
            if is_open or word == ";" or code.directive(i - 1) is not None:
                break
            i = code.partner[i - 1] if word in CLOSE and code.partner[i - 1] >= 0 else i - 1
        return i

    def _statement(self, first: int, i: int) -> str | None:
        """The type that the statement gives to the name at ``i``; None where it only uses it."""
        if i - first >= _MOST_TOKENS:
            return ""
        while self._text[first] in ("else", "do"):
            first += 1
        words = self._text[first:i]
        if ":" in words and "?" not in words:
            return self._statement(i - words[::-1].index(":"), i)
        end = self._end_of_type(first, i)
        type_, rest = self._text[first:end], self._text[end:i]
        if not type_ or self._text[i + 1] not in _AFTER_NAME or not _STATEMENTS.isdisjoint(type_):
            return "" if words[:1] == [","] and _OF_POINTERS.issuperset(words[1:]) else None
        if rest[:1] == ["("] and self._code.partner[end] > end:
            close = self._code.partner[end]
            if not _CONTROLS.isdisjoint(type_):
                return self._statement(close + 1, i)
            if all(
                word in _OF_POINTERS or word.isidentifier() for word in self._text[close + 1 : i]
            ):
                return ""  # decltype(y) x
        if not _OF_POINTERS.issuperset(rest):
            own = self._text[i - words[::-1].index(",") : i] if "," in words else ["="]
            if rest[0] not in _OF_POINTERS:
                type_ = type_[:-1]  # the first name, of which this is not the type
            if not _OF_POINTERS.issuperset(own) or not type_ or type_[-1] == "::":
                return None
            rest = own
        return self._spelled(type_, rest, i)

    def _end_of_type(self, first: int, last: int) -> int:
        """The first token that is not a name, or a name's arguments in ``<…>``."""
        i = first
        while i < last:
            if self._text[i] == "<":
                i = self._code.close_angle(i, last)
                if i < 0:
                    return first
            elif not self._text[i].isidentifier() and self._text[i] != "::":
                break
            i += 1
        return i

    def _spelled(self, type_: list[str], pointers: list[str], i: int) -> str:
        """The type as text, of what is declared at ``i``."""
        stars, end = pointers.count("*"), i + 1
        if "auto" in type_:
            return self._of_value(end) if stars < 2 else ""
        while self._text[end] == "[" and self._code.partner[end] > end:
            stars, end = stars + 1, self._code.partner[end] + 1
        while type_[-1] in _OF_POINTERS:  # double const* x
            type_ = type_[:-1]
        words = " ".join(word for word in type_ if word not in _STORED)
        return re.sub(r"\s*(::|[<>,])\s*", r"\1", words) + "*" * stars

    def _of_value(self, equals: int) -> str:
        """The type of what ``auto`` is, where the value spells it."""
        end = equals + 1
        while self._text[equals] == "=" and end < len(self._text) and self._text[end] not in ";,":
            end = max(self._code.partner[end], end) + 1
        pointee = shown_pointee(self._source.flat(equals + 1, end))
        return f"{pointee}*" if pointee else ""
