"""The kind of number that an expression is, as far as the file's own declarations say.

What is not known is None: a rewrite that needs the kind is then not made.
"""

from __future__ import annotations

from portkern.cuda_source.declarations import UNSIGNED, Declarations
from portkern.cuda_source.lexer import OPEN, Kind
from portkern.port.translate.draft import Draft

#: Types by rank; the unsigned of two alike is the higher, as in the usual arithmetic conversions.
_ORDER = ("int", "unsigned", "long", "unsigned long", "long long", "unsigned long long")
_FLOATS = ("float", "double")
_NAMES = {
    "bool": "int",
    "char": "int",
    "short": "int",
    "int8_t": "int",
    "uint8_t": "int",
    "int16_t": "int",
    "uint16_t": "int",
    "int32_t": "int",
    "uint32_t": "unsigned",
    "uint": "unsigned",
    "int64_t": "long",
    "ssize_t": "long",
    "ptrdiff_t": "long",
    "uint64_t": "unsigned long",
    "size_t": "unsigned long",
    **{name: name for name in (*_ORDER, *_FLOATS)},
}
_ARITHMETIC = frozenset(["+", "-", "*", "/", "%", "&", "|", "^"])
_SHIFTS = frozenset(["<<", ">>"])
_SIGNS = frozenset(["+", "-", "~"])
_BUILTINS = frozenset(["threadIdx", "blockIdx", "blockDim", "gridDim"])
_CASTS = frozenset(["static_cast", "reinterpret_cast"])
_MEMBER = frozenset([".", "->"])
_MOST_STEPS = 24


class Kinds:
    def __init__(self, draft: Draft) -> None:
        self._draft, self._code = draft, draft.code
        self._declarations = Declarations(draft.code)
        self._steps = 0

    def of(self, first: int, last: int) -> str | None:
        """``int``, ``unsigned long`` …, ``float`` or ``double``."""
        self._steps = _MOST_STEPS
        return self._kind(first, last)

    def pointee(self, first: int, last: int) -> str | None:
        """The type that a pointer expression points to: of a cast, a pointer, ``&array[i]``."""
        text = self._code.text
        if text[first] in ("reinterpret_cast", "static_cast") and text[first + 1] == "<":
            close = self._code.close_angle(first + 1, last)
            return (
                self._declarations.plain(first + 2, close - 1) if text[close - 1] == "*" else None
            )
        if text[first] == "(":
            close = self._code.partner[first]
            if text[close - 1] == "*":
                return self._declarations.plain(first + 1, close - 1)
            return self.pointee(first + 1, close) if close == last - 1 else None
        by_address = text[first] == "&"
        name = first + by_address
        declared = self._declarations.of(name) if name < last else None
        if declared is None or not _MEMBER.isdisjoint(text[name + 1 : last]):
            return None
        indices = text[name + 1 : last].count("[")
        return declared.type if declared.stars - indices + by_address == 1 else None

    # ---- expressions

    def _kind(self, first: int, last: int) -> str | None:
        self._steps -= 1
        if first >= last or self._steps < 0:
            return None
        code = self._code
        if code.text[first] == "(" and code.partner[first] == last - 1:
            return self._kind(first + 1, last - 1)
        parts = self._operands(first, last)
        if parts is None:
            return None
        kinds = [self._operand(a, b) for a, b in parts]
        known = [kind for kind in kinds if kind is not None]
        if len(known) < len(kinds):
            return None
        return max(known, key=(*_ORDER, *_FLOATS).index)

    def _operands(self, first: int, last: int) -> list[tuple[int, int]] | None:
        """The operands of arithmetic on the outermost level, without those that say how far to
        shift; None where another operator stands there."""
        code, parts, begin, i = self._code, list[tuple[int, int]](), first, first
        while i < last:
            text = code.text[i]
            if text in OPEN and code.partner[i] > i:
                i = code.partner[i]
            elif text == "<" and code.text[i - 1] in _CASTS:
                i = max(code.close_angle(i, last), i)
            elif i == begin and text in _SIGNS:
                begin += 1
            elif text in _SHIFTS:
                return [*parts, (begin, i)] if not parts else None
            elif text in _ARITHMETIC:
                if not self._ends_cast(begin, i):
                    parts.append((begin, i))
                    begin = i + 1
            elif code.tokens[i].kind is Kind.OP and text not in (".", "::", "->"):
                return None
            i += 1
        return [*parts, (begin, last)]

    def _ends_cast(self, begin: int, i: int) -> bool:
        """Whether the sign at ``i`` is of what a cast, all there is before it, casts."""
        code = self._code
        alone = code.text[begin] == "(" and code.partner[begin] == i - 1
        return alone and self._declarations.plain(begin + 1, i - 1) is not None

    def _operand(self, first: int, last: int) -> str | None:
        code, text = self._code, self._code.text
        if first >= last:
            return None
        if text[first] == "(":
            close = code.partner[first]
            if close == last - 1:
                return self._kind(first + 1, close)
            return self._number(self._declarations.plain(first + 1, close))
        if last - first == 1:
            return self._atom(first)
        if text[first] == "static_cast" and text[first + 1] == "<":
            return self._number(
                self._declarations.plain(first + 2, code.close_angle(first + 1, last))
            )
        if text[first] in _BUILTINS and text[first + 1] == "." and last - first == 3:
            return "unsigned"
        if text[first] == "sizeof":
            return "unsigned long"
        if text[first + 1] == "(" and code.partner[first + 1] == last - 1:
            return self._called(first)
        return self._element(first, last)

    def _called(self, first: int) -> str | None:
        name = self._code.text[first]
        if name in _NAMES:
            return _NAMES[name]
        parts = self._draft.arguments(first) or []
        if name in ("min", "max") and len(parts) == 2:
            kinds = [self._kind(a, b) for a, b in parts]
            known = [kind for kind in kinds if kind]
            return max(known, key=(*_ORDER, *_FLOATS).index) if len(known) == 2 else None
        return None

    def _element(self, first: int, last: int) -> str | None:
        """``x[i]`` of a pointer or an array."""
        code, declared, i = self._code, self._declarations.of(first), first + 1
        indices = 0
        while i < last and code.text[i] == "[" and code.partner[i] > i:
            i, indices = code.partner[i] + 1, indices + 1
        if declared is None or i != last or declared.stars != indices:
            return None
        return self._number(declared.type)

    def _atom(self, i: int) -> str | None:
        text = self._code.text[i]
        if self._code.tokens[i].kind is Kind.NUMBER:
            return _literal(text)
        if text in ("warpSize", "true", "false"):
            return "int"
        declared = self._declarations.of(i)
        if declared is not None and declared.value is not None:
            return self._kind(*declared.value)
        if declared is not None:
            return self._number(declared.type) if not declared.stars else None
        return self._macro(text)

    def _macro(self, name: str) -> str | None:
        for first, last in self._draft.words_of_directive("define"):
            if self._code.text[first] == name and last == first + 2:
                return self._atom(first + 1) if self._code.text[first + 1] != name else None
        return None

    @staticmethod
    def _number(type_: str | None) -> str | None:
        return _NAMES.get(type_ or "")


def _literal(text: str) -> str | None:
    lower = text.lower().replace("'", "")
    is_hex = lower.startswith("0x")
    if not is_hex and ("." in lower or "e" in lower or lower.endswith("f")):
        return "float" if lower.endswith("f") else "double"
    suffix = lower[len(lower.rstrip("ul")) :]
    kind = "long " * suffix.count("l") or "int"
    return UNSIGNED.get(kind.strip()) if "u" in suffix else kind.strip()
