"""Maps what stands in a source's tokens: dead branches, macros, functions, parameter lists."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

from portkern.cuda_source.conditions import branches
from portkern.cuda_source.expansion import NoExpansion, expanded
from portkern.cuda_source.lexer import Kind, Macro, SourceCode, Token, join

_BUILTIN = frozenset(
    "void bool char short int long float double unsigned signed auto const volatile size_t "
    "half __half __nv_bfloat16 int64_t int32_t uint32_t uint64_t uint8_t int8_t".split()
)
_QUALIFIERS = frozenset(
    "const volatile __restrict__ __restrict restrict __grid_constant__ struct class typename "
    "unsigned signed constexpr".split()
)
_NO_FUNCTION = frozenset("if for while switch catch return sizeof decltype defined".split())
_BEFORE_BODY = frozenset(["const", "noexcept", "override", "final", "mutable", "&", "&&"])


@dataclass(frozen=True)
class Parameter:
    """``type`` as written, without the ``default``; an array is a pointer, as for the compiler. Of
    a template: ``typename``, ``int`` …, with ``...`` for a pack."""

    type: str
    name: str
    default: str = field(default="", compare=False)


class SourceMap:
    """``within``: the source, and the token in it, that a text was made of by macros; ``around``:
    macros that other files define."""

    def __init__(
        self,
        text: str,
        within: tuple[SourceMap, int] | None = None,
        around: Mapping[str, Macro] = MappingProxyType({}),
    ) -> None:
        self.code = SourceCode(text)
        self._within, self._around = within, around

    # ---- branches ----------------------------------------------------------------------------

    def is_dead(self, i: int) -> bool:
        """Whether ``#if 0``, or the other side of ``#if 1``, takes token ``i`` out."""
        starts = self._dead[0]
        at = bisect_right(starts, i) - 1
        return at >= 0 and i < self._dead[1][at]

    @cached_property
    def _dead(self) -> tuple[list[int], list[int]]:
        """The dead ranges, by where they begin, with where they end."""
        outer: list[tuple[int, int]] = []
        for begin, end in sorted(branches(self.code, {})[0]):
            if not outer or begin >= outer[-1][1]:
                outer.append((begin, end))
        return [begin for begin, _ in outer], [end for _, end in outer]

    # ---- macros ------------------------------------------------------------------------------

    @cached_property
    def _defined(self) -> dict[str, list[tuple[int, Macro | None]]]:
        """The definitions of each macro and their places, in order; None: it is undefined there."""
        code, defined = self.code, dict[str, list[tuple[int, Macro | None]]]()
        for d in code.directives:
            if d.name not in ("define", "undef") or d.end < d.begin + 3 or self.is_dead(d.begin):
                continue
            macro = code.macro(d, conditional=False) if d.name == "define" else None
            defined.setdefault(code.text[d.begin + 2], []).append((d.begin, macro))
        return defined

    @cached_property
    def macros(self) -> dict[str, Macro]:
        """The macros by name: the last definition of each that is not dead."""
        last = {
            name: next((macro for _, macro in reversed(each) if macro), None)
            for name, each in self._defined.items()
        }
        return {name: macro for name, macro in last.items() if macro is not None}

    @property
    def all_macros(self) -> Iterator[Macro]:
        """The definitions of all macros, with those around a text that a macro wrote."""
        for each in self._defined.values():
            yield from (macro for _, macro in each if macro is not None)
        yield from self._around.values()
        if self._within is not None:
            yield from self._within[0].all_macros

    def is_once(self, name: str) -> bool:
        """Whether a macro has one definition and keeps it: which of several is in force may not be
        known."""
        return len(self._defined.get(name, ())) == 1

    def macro_at(self, name: str, i: int) -> Macro | None:
        """The macro that a name is at token ``i``: as the last directive before it has it."""
        if name in self._defined:
            for begin, macro in reversed(self._defined[name]):
                if begin < i:
                    return macro
        if self._within is not None:
            return self._within[0].macro_at(name, self._within[1])
        return self._around.get(name) if name not in self._defined else None

    def expanded(self, first: int, last: int) -> SourceMap | None:
        """The range as the preprocessor leaves it; None where that has no end."""
        try:
            text = expanded(self.code, first, last, lambda name: self.macro_at(name, first))
        except NoExpansion:
            return None
        return SourceMap(text)

    def expanded_pieces(self, first: int, last: int) -> tuple[str, ...]:
        """:meth:`pieces`, where a macro may stand for several; all others stay as they are."""
        plain = self.pieces(first, last)
        if not any(self.macro_at(self.code.text[i], i) for i in range(first, last)):
            return plain
        inner = self.expanded(first, last)
        whole = inner.pieces(0, len(inner.code.tokens) - 1) if inner else plain
        return whole if len(whole) != len(plain) else plain

    def macro_parameters(self, define: int) -> tuple[str, ...]:
        """The parameters, in order, of the ``#define`` that begins at token ``define``."""
        d = self.code.directive(define)
        return self.code.macro(d, conditional=False).order if d is not None else ()

    # ---- functions ---------------------------------------------------------------------------

    def function(self, i: int) -> str:
        """The function or the macro that token ``i`` lies in; '' at the file's own level."""
        directive = self.code.directive(i)
        if directive is not None:
            return self.code.text[directive.begin + 2] if directive.name == "define" else ""
        at = bisect_right(self._functions[0], i) - 1
        if at < 0:
            return ""
        end, name = self._functions[1][at]
        return name if i < end else ""

    def body(self, i: int) -> tuple[int, int]:
        """The tokens of the function's body that ``i`` lies in; all of them outside of one."""
        at = bisect_right(self._functions[0], i) - 1
        if at < 0 or i >= self._functions[1][at][0]:
            return 0, len(self.code.tokens)
        return self._functions[0][at], self._functions[1][at][0]

    @cached_property
    def _functions(self) -> tuple[list[int], list[tuple[int, str]]]:
        """The functions, by where their bodies begin: where each ends, and its name."""
        begins: list[int] = []
        ends: list[tuple[int, str]] = []
        code, i = self.code, 0
        while i < len(code.tokens):
            directive = code.directive(i)
            if directive is not None:
                i = directive.end
                continue
            close = code.partner[i]
            if code.text[i] == "{" and close > i and (name := self.function_before(i)):
                begins.append(i)
                ends.append((close, name))
                i = close
            i += 1
        return begins, ends

    def function_before(self, brace: int) -> str:
        """The name of the function whose body the brace opens; '' when it opens something else."""
        code, i = self.code, brace - 1
        while i > 0 and code.text[i] in _BEFORE_BODY:
            i -= 1
        if i <= 0 or code.text[i] != ")" or code.partner[i] <= 0:
            return ""
        i = code.partner[i] - 1
        if code.text[i] == ">":
            i = code.open_angle(i, 0) - 1
        is_name = i >= 0 and code.tokens[i].kind is Kind.NAME
        return code.text[i] if is_name and code.text[i] not in _NO_FUNCTION else ""

    # ---- lists -------------------------------------------------------------------------------

    def tokens(self, first: int, last: int) -> list[Token]:
        """The tokens of the range, without those of directives, unless it lies in one."""
        code = self.code
        if not code.has_directive(first, last):
            return code.tokens[first:last]
        return [code.tokens[i] for i in range(first, last) if code.directive(i) is None]

    def flat(self, first: int, last: int) -> str:
        return join(self.tokens(first, last))

    def pieces(self, first: int, last: int) -> tuple[str, ...]:
        """The range cut at its commas, each piece on one line."""
        return tuple(text for a, b in self.code.split(first, last) if (text := self.flat(a, b)))

    def parameters(self, first: int, last: int) -> tuple[Parameter, ...]:
        """The parameters of a function or a template, from the tokens between its brackets."""
        listed = (
            _parameter([t for t in self.tokens(a, b) if t.kind is not Kind.END])
            for a, b in self._declarations(first, last)
        )
        return tuple(p for p in listed if p is not None and p != Parameter("void", ""))

    def _declarations(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """The range cut at its commas; '<' after a name opens template arguments, for types are
        listed here, not values."""
        begin = i = first
        while i < last:
            text = self.code.text[i]
            if text in ("(", "[", "{") and self.code.partner[i] > i:
                i = self.code.partner[i]
            elif text == "<" and self.code.tokens[i - 1].kind is Kind.NAME:
                i = max(self.code.close_angle(i, last), i)
            elif text == ",":
                yield begin, i
                begin = i + 1
            i += 1
        yield begin, last


def _parameter(tokens: list[Token]) -> Parameter | None:
    tokens, default = _default(tokens)
    if not tokens:
        return None
    arrays = 0
    while tokens and tokens[-1].text == "]":
        texts = [t.text for t in tokens]
        if "[" not in texts:
            break
        tokens = tokens[: len(texts) - 1 - texts[::-1].index("[")]
        arrays += 1
    at = _name(tokens)
    name = tokens[at].text if at is not None else ""
    rest = tokens if at is None else tokens[:at] + tokens[at + 1 :]
    stars = " *" + " *" * (arrays - 1) if arrays else ""
    return Parameter(join(tuple(rest)).strip() + stars, name, join(tuple(default)).strip())


def _default(tokens: list[Token]) -> tuple[list[Token], list[Token]]:
    """The tokens before a default value, and those of the value."""
    depth = 0
    for n, token in enumerate(tokens):
        depth += (token.text in ("(", "[", "{")) - (token.text in (")", "]", "}"))
        if token.text == "=" and not depth:
            return tokens[:n], tokens[n + 1 :]
    return tokens, []


def _name(tokens: list[Token]) -> int | None:
    """Which token is the parameter's name; None for one without."""
    texts = [t.text for t in tokens]
    for n in range(len(texts) - 2):
        if texts[n] == "(" and texts[n + 1] in ("*", "&") and texts[n + 2].isidentifier():
            return n + 2  # a function's pointer, an array's reference
    last = len(tokens) - 1
    if last < 1 or tokens[last].kind is not Kind.NAME or texts[last] in _BUILTIN | _QUALIFIERS:
        return None
    if texts[last - 1] == "::":
        return None
    kinds = _QUALIFIERS - {"unsigned", "signed", "typename", "class"}
    return last if any(text not in kinds for text in texts[:last]) else None
