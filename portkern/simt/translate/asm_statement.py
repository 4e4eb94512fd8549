"""The meaning of one inline ``asm`` statement: shared by the rewriter and by the PTX translator."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from portkern.cuda_source.lexer import Kind, Macro, SourceCode, Token

#: More combinations of macro values than this are not written out.
MOST_ALTERNATIVES = 16
#: A macro's value longer than this is none: macros that double each other grow without end.
LONGEST = 20_000
#: Macros that stand for macros: deeper ones are not followed.
DEEPEST = 50


@dataclass(frozen=True)
class Operand:
    """One operand, as in ``[name] "constraint"(expression)``."""

    constraint: str
    expression: str
    name: str = ""


@dataclass(frozen=True)
class Asm:
    """One statement: its template with escapes resolved, and its operands in order.

    An operand is numbered over outputs, then inputs. ``line`` is that of the ``asm`` keyword.
    """

    template: str
    outputs: tuple[Operand, ...]
    inputs: tuple[Operand, ...]
    line: int


@dataclass(frozen=True)
class Alternative:
    """The text of a statement where the C++ condition ``test`` holds; "": everywhere."""

    test: str
    asm: Asm


@dataclass(frozen=True)
class RefusedStatement:
    reason: str


Text = tuple[Token, ...]  # string literals and names of macros, to be joined


@dataclass(frozen=True)
class _Operand:
    constraint: Text
    expression: str
    name: str


@dataclass(frozen=True)
class Statement:
    """An ``asm`` statement as written: its strings may be macros."""

    template: Text
    outputs: tuple[_Operand, ...]
    inputs: tuple[_Operand, ...]
    line: int

    def alternatives(
        self, macros: Mapping[str, Sequence[Macro]], hidden: frozenset[str] = frozenset()
    ) -> list[Alternative] | RefusedStatement:
        """One for each combination of the values its macros are seen to have anywhere.

        Which of them is in force is the preprocessor's knowledge, so each of several comes with
        a test: the macro, compared as a constant expression with that value. ``hidden`` are
        the parameters of the macro around the statement; their values are not known here.
        """
        texts = [self.template, *(o.constraint for o in (*self.outputs, *self.inputs))]
        names = dict.fromkeys(t.text for text in texts for t in text if t.kind is Kind.NAME)
        if any(t.kind not in (Kind.NAME, Kind.STRING) for text in texts for t in text):
            return RefusedStatement("its template is not a string literal")
        seen: dict[str, list[str]] = {name: [] for name in hidden}
        values = {name: _values(name, macros, seen) for name in names}
        unknown = [name for name in names if not values[name]]
        if unknown:
            return RefusedStatement(f"its template needs the value of {unknown[0]}")
        chosen = list(product(*values.values()))
        if len(chosen) > MOST_ALTERNATIVES:
            return RefusedStatement(f"its macros have {len(chosen)} combinations of values")
        tested = [n for n in names if len(values[n]) > 1 or any(m.conditional for m in macros[n])]
        alternatives = []
        for combination in chosen:
            known = dict(zip(names, combination, strict=True))
            test = " && ".join(f"__builtin_strcmp({n}, {literal(known[n])}) == 0" for n in tested)
            alternatives.append(Alternative(test, self._resolve(known)))
        return alternatives

    def _resolve(self, known: Mapping[str, str]) -> Asm:
        def text(parts: Text) -> str:
            return "".join(known[t.text] if t.kind is Kind.NAME else unescape(t) for t in parts)

        def operands(written: tuple[_Operand, ...]) -> tuple[Operand, ...]:
            return tuple(Operand(text(o.constraint), o.expression, o.name) for o in written)

        return Asm(text(self.template), operands(self.outputs), operands(self.inputs), self.line)


def _values(
    name: str, macros: Mapping[str, Sequence[Macro]], known: dict[str, list[str]], depth: int = 0
) -> list[str]:
    """The different strings that macro ``name`` is defined as; other definitions do not count."""
    if name in known:
        return known[name]
    known[name] = []  # what a macro that names itself gets
    if depth > DEEPEST:
        return []
    texts: dict[str, None] = {}
    for macro in macros.get(name, ()):
        parts = [_value(token, macros, known, depth) for token in macro.body]
        if macro.params is not None or not parts:
            continue
        for combination in product(*parts):
            text = "".join(combination)
            if len(text) <= LONGEST and len(texts) <= MOST_ALTERNATIVES:
                texts[text] = None
    known[name] = list(texts)
    return known[name]


def _value(
    token: Token, macros: Mapping[str, Sequence[Macro]], known: dict[str, list[str]], depth: int
) -> list[str]:
    if token.kind is Kind.STRING:
        return [unescape(token)]
    return _values(token.text, macros, known, depth + 1) if token.kind is Kind.NAME else []


def parse(code: SourceCode, keyword: int, opening: int) -> Statement | RefusedStatement:
    """The statement at ``keyword`` whose '(' is at ``opening``; its partner must exist."""
    closing, line = code.partner[opening], code.tokens[keyword].line
    if code.has_directive(opening, closing):
        return RefusedStatement("directives within the statement")
    sections = _sections(code, opening + 1, closing)
    if len(sections) > 4:
        return RefusedStatement("asm goto")
    template = tuple(code.tokens[slice(*sections[0])])
    if not template:
        return RefusedStatement("its template is not a string literal")
    operands: list[tuple[_Operand, ...]] = []
    for first, last in (*sections[1:3], (0, 0), (0, 0)):
        parts = [_operand(code, a, b) for a, b in code.split(first, last)]
        operands.append(tuple(o for o in parts if o is not None))
        if None in parts:
            return RefusedStatement("an operand that cannot be parsed")
    return Statement(template, operands[0], operands[1], line)


def _sections(code: SourceCode, first: int, last: int) -> list[tuple[int, int]]:
    """Cut at each ':' that is not within brackets; '::' is two of them."""
    sections, begin, i = [], first, first
    while i < last:
        if code.text[i] in (":", "::"):
            sections.append((begin, i))
            begin = i + 1
            if code.text[i] == "::":
                sections.append((begin, begin))
        i = max(i, code.partner[i]) + 1
    return [*sections, (begin, last)]


def _operand(code: SourceCode, first: int, last: int) -> _Operand | None:
    name = ""
    if first + 2 < last and code.text[first] == "[" and code.text[first + 2] == "]":
        name, first = code.text[first + 1], first + 3
    opening = code.partner[last - 1] if last > first else -1
    if opening <= first or code.text[last - 1] != ")":
        return None
    expression = code.flat(opening + 1, last - 1)
    return _Operand(tuple(code.tokens[first:opening]), expression, name) if expression else None


_ESCAPE = re.compile(
    r"\\(?:(?P<octal>[0-7]{1,3})|x(?P<hex>[0-9A-Fa-f]+)|(?P<splice>[ \t]*\r?\n)|(?P<other>.))",
    re.DOTALL,
)
_CONTROL = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


def unescape(token: Token) -> str:
    """The text that a string literal stands for."""
    prefix, _, rest = token.text.partition('"')
    if prefix.endswith("R"):
        mark, _, rest = rest.partition("(")
        return rest.removesuffix(f'){mark}"')

    def value(match: re.Match[str]) -> str:
        if match["splice"] is not None:
            return ""
        if match["other"] is not None:
            return _CONTROL.get(match["other"], match["other"])
        digits, base = (match["octal"], 8) if match["octal"] else (match["hex"], 16)
        return chr(int(digits, base) & 0xFF)

    return _ESCAPE.sub(value, rest[:-1])


def literal(text: str) -> str:
    """``text`` as a C++ string literal on one line."""
    quoted = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    plain = (c if c.isprintable() else f"\\{ord(c) & 0xFF:03o}" for c in quoted)
    return '"' + "".join(plain) + '"'
