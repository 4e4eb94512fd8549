"""Sizes as torch.export has them, sympy over symbols of its own, and as expressions over axes."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sympy

from portkern.errors import ConfigError
from portkern.spec.expression import Expression

#: Classes of sympy and of torch, by name, whose value is an operator between two.
_BINARY = {
    "Mod": "%",
    "PythonMod": "%",
    "FloorDiv": "//",
    "CleanDiv": "//",
    "FloatTrueDiv": "/",
    "IntTrueDiv": "/",
    "Equality": "==",
    "Unequality": "!=",
    "StrictLessThan": "<",
    "LessThan": "<=",
    "StrictGreaterThan": ">",
    "GreaterThan": ">=",
    "PowByNatural": "**",
}
_JOINED = {"Add": " + ", "And": " and ", "Or": " or "}
_CALLED = ("Max", "Min")
#: Assignments that guards are tried on, and the sizes that they are made of.
_SAMPLES, _SMALL = 400, 48


def file_number(name: str) -> sympy.Symbol:
    """The symbol of a number of the file that is a length."""
    return sympy.Symbol(name, integer=True, positive=True)


def size_of(length: Any) -> sympy.Expr:
    """The expression of a length, be it an int or symbolic."""
    return sympy.Integer(length) if isinstance(length, int) else sympy.sympify(length.node.expr)


def sizes_of(shape: Iterable[object]) -> list[sympy.Expr]:
    return [size_of(length) for length in shape]


def text(value: object, names: Mapping[sympy.Symbol, str]) -> str:
    """The value as text that :class:`Expression` reads. Raises ConfigError for what that does not
    have."""
    written = _text(value, names)
    Expression(written)
    return written


def _text(value: Any, names: Mapping[sympy.Symbol, str]) -> str:
    kind = type(value).__name__
    if isinstance(value, sympy.Integer):
        return str(int(value))
    if isinstance(value, sympy.Rational):
        return f"({value.p} / {value.q})"
    if isinstance(value, sympy.Float):
        return repr(float(value))
    if isinstance(value, sympy.Symbol):
        if value not in names:
            raise ConfigError(f"{value} is not an axis")
        return names[value]
    if value in (sympy.true, sympy.false):
        return "1 == 1" if value == sympy.true else "1 == 0"
    parts = [_text(part, names) for part in value.args]
    if kind == "Add":
        return _sum(value, names)
    if kind == "Mul":
        return _product(value, names)
    if kind in _JOINED:
        return f"({_JOINED[kind].join(sorted(parts, key=len))})"
    if kind in _BINARY:
        sign = _BINARY[kind]
        if sign in ("%", "//", "/", "**"):
            left, right = (_atom(part, names) for part in value.args)
            return f"({left} {sign} {right})"
        left, right = map(_open, parts)
        return f"{left} {sign} {right}"
    if kind in _CALLED:
        return f"{kind.lower()}({', '.join(parts)})"
    if kind == "Not":
        return f"(not ({parts[0]}))"
    if isinstance(value, sympy.Pow) and value.exp.is_Integer:
        base, exponent = _atom(value.base, names), int(value.exp)
        power = base if abs(exponent) == 1 else f"{base}**{abs(exponent)}"
        return power if exponent > 0 else f"(1 / {power})"
    if kind == "ModularIndexing":
        return f"(({parts[0]} // {parts[1]}) % {parts[2]})"
    raise ConfigError(f"{kind} is not arithmetic over axes")


def _sum(value: sympy.Add, names: Mapping[sympy.Symbol, str]) -> str:
    """Numbers last, as ``h - kh + 1``."""
    terms = [_text(term, names) for term in value.as_ordered_terms()]
    terms.sort(key=lambda term: (term.lstrip("-").isdigit(), term.startswith("-")))
    joined = terms[0]
    for term in terms[1:]:
        joined += f" - {term[1:]}" if term.startswith("-") else f" + {term}"
    return joined


def _product(value: sympy.Mul, names: Mapping[sympy.Symbol, str]) -> str:
    coefficient, factors = value.as_coeff_mul()
    above = [factor for factor in factors if not _inverse(factor)]
    below = [1 / factor for factor in factors if _inverse(factor)]
    numerator, denominator = sympy.fraction(coefficient)
    parts = [_atom(factor, names) for factor in above]
    if abs(numerator) != 1 or not parts:
        parts.insert(0, _text(abs(numerator), names))
    written = "*".join(parts)
    divisors = [_atom(factor, names) for factor in below]
    if denominator != 1:
        divisors.append(_text(denominator, names))
    for divisor in divisors:
        written += f" / {divisor}"
    return f"-{written}" if numerator < 0 else written


def _inverse(factor: sympy.Expr) -> bool:
    return isinstance(factor, sympy.Pow) and bool(factor.exp.is_negative)


def _atom(value: sympy.Expr, names: Mapping[sympy.Symbol, str]) -> str:
    written = _text(value, names)
    plain = isinstance(value, sympy.Symbol | sympy.Integer) or written.startswith("max(")
    return written if plain or _closed(written) else f"({written})"


def _open(written: str) -> str:
    """The text without brackets around all of it."""
    return written[1:-1] if _closed(written) else written


def _closed(written: str) -> bool:
    """Whether one pair of brackets is around all of it."""
    if not written.startswith("("):
        return False
    level = 0
    for place, character in enumerate(written):
        level += (character == "(") - (character == ")")
        if level == 0:
            return place == len(written) - 1
    return False


#: What is not less than a number.
_AT_LEAST = re.compile(r"(?P<of>\w+) (?P<how>>=?) (?P<bound>\d+)")


def requirements(
    guards: Sequence[Any], names: Mapping[sympy.Symbol, str], example: Mapping[str, int]
) -> tuple[str, ...]:
    """The guards assumed by tracing that other lengths can break: none that follows from simpler
    ones, and no inequality (``!=``), which only says that other code was not traced. A guard
    that is not arithmetic fixes the lengths in it."""
    conditions: set[str] = set()
    for guard in guards:
        if isinstance(guard, sympy.Ne) or guard in (sympy.true, sympy.false):
            continue
        try:
            conditions.add(text(guard, names))
        except ConfigError:
            known = [names[symbol] for symbol in guard.free_symbols if symbol in names]
            conditions |= {f"{name} == {example[name]}" for name in known}
    told = conditions - _weaker(conditions)
    return _independent(sorted(told, key=lambda one: (len(one), one)), example)


def _independent(conditions: Sequence[str], example: Mapping[str, int]) -> tuple[str, ...]:
    """The conditions that can be broken by lengths which fulfil the conditions before them."""
    rng = random.Random(0)
    samples = []
    for number in range(_SAMPLES):
        steps = (1, 2, 8) if number % 2 else (1,)
        samples.append(
            {
                name: rng.choice((length, rng.randint(2, _SMALL) * rng.choice(steps)))
                for name, length in example.items()
            }
        )
    kept: list[str] = []
    for condition in conditions:
        read = Expression(condition)
        if not all(read.holds(sample) for sample in samples):
            kept.append(condition)
            samples = [sample for sample in samples if read.holds(sample)]
    return tuple(kept)


def _weaker(conditions: Iterable[str]) -> set[str]:
    """Lower bounds of what has a higher one too: each step of a loop asks for one more."""
    bounds: dict[str, list[tuple[int, str]]] = {}
    for condition in conditions:
        if found := _AT_LEAST.fullmatch(condition):
            least = int(found["bound"]) + (found["how"] == ">")
            bounds.setdefault(found["of"], []).append((least, condition))
    return {one for several in bounds.values() for _, one in sorted(several)[:-1]}
