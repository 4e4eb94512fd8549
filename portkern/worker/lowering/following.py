"""Numbers in a graph that follow others which torch traces as they are: those of the file that the
constructor takes, and those that the operator is called with. Graphs of the same operator with
other numbers are compared node by node; what differs becomes an expression."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, zip_longest
from typing import Any

import sympy
import torch  # noqa: TID253 - imported where a graph is written, in a worker
from torch.utils._sympy.functions import FloorDiv, ToFloat  # noqa: TID253

from portkern.spec.op import Scalar
from portkern.worker.lowering.operations import Unwritable
from portkern.worker.lowering.readings import Example, Reading

#: So many numbers may be multiplied, as the sides of an image are.
_MOST_FACTORS = 3
#: What floats follow beside lines: areas, means, and the scales of attention, whose roots queries
#: and keys are multiplied by.
_POWERS = tuple(map(sympy.Rational, ("1", "-1", "2", "1/2", "-1/2", "1/4", "-1/4")))
#: How far floats may be from what they follow, relatively.
_CLOSE = 1e-9


@dataclass(frozen=True)
class Numbers:
    """``symbols``: of the numbers, by name; ``points``: what they are in each graph."""

    symbols: Mapping[str, sympy.Symbol]
    points: Sequence[Mapping[str, Scalar]]

    def followed(self, values: Sequence[Any]) -> sympy.Expr | None:
        """An expression that gives these numbers, one at each of the points; None where none is
        known."""
        if any(isinstance(value, bool) for value in values):
            return None
        if all(isinstance(value, int | sympy.Integer) for value in values):
            return next(self._whole([sympy.Integer(value) for value in values]), None)
        if all(isinstance(value, int | float | sympy.Number) for value in values):
            return next(self._real([float(value) for value in values]), None)
        return None

    def _products(self) -> Iterator[tuple[sympy.Expr, list[sympy.Expr]]]:
        """And what they are at the points."""
        known = [name for name in self.symbols if not isinstance(self.points[0][name], bool)]
        for count in range(1, _MOST_FACTORS + 1):
            for names in combinations(known, count):
                at = [sympy.Mul(*(sympy.sympify(p[name]) for name in names)) for p in self.points]
                yield sympy.Mul(*(self.symbols[name] for name in names)), at

    def _whole(self, values: Sequence[sympy.Integer]) -> Iterator[sympy.Expr]:
        """The length as so many times a product, or that part of it, and so much more."""
        for product, at in self._products():
            if not product.is_integer or (line := _line(at, values)) is None:
                continue
            slope, more = line
            multiples = [slope * x for x in at]
            if more.is_integer and all(one.is_integer for one in multiples):
                if [one + more for one in multiples] == values:
                    yield slope * product + more
        for product, at in self._products():
            if product.is_positive:
                yield from _floored(product, at, values)

    def _real(self, values: Sequence[float]) -> Iterator[sympy.Expr]:
        most = max(map(abs, values))
        for product, exact in self._products():
            base = ToFloat(product) if product.is_integer else product
            for power in _POWERS:
                if (power.q > 1 and min(exact) <= 0) or (power < 0 and 0 in exact):
                    continue
                at = [float(x) ** float(power) for x in exact]
                line = _line(at, values)
                if line is None:
                    continue
                slope, more = line
                off = (slope * x + more - y for x, y in zip(at, values, strict=True))
                if all(abs(one) <= _CLOSE * most for one in off):
                    whole = round(slope) if abs(slope - round(slope)) < _CLOSE else slope
                    yield whole * base**power + (more if abs(more) > _CLOSE * most else 0)


def _floored(
    product: sympy.Expr, at: Sequence[sympy.Integer], values: Sequence[sympy.Integer]
) -> Iterator[sympy.Expr]:
    """Steps of a width, as windows with a stride take them, where only one shift of them fits."""
    line = _line(at, values)
    if line is None or not 0 < line[0] < 1:
        return
    near = round(1 / float(line[0]))
    for width in range(max(near - 1, 2), near + 2):
        rest = [y * width - x for x, y in zip(at, values, strict=True)]
        shifts = range(int(max(rest)), int(min(rest)) + width)
        if len(shifts) == 1:
            yield FloorDiv(product + shifts[0], width)


def _line(at: Sequence[Any], values: Sequence[Any]) -> tuple[Any, Any] | None:
    """Slope and offset through the two points that are farthest apart."""
    low, high = (at.index(end(at)) for end in (min, max))
    if at[low] == at[high]:
        return None
    slope = (values[high] - values[low]) / (at[high] - at[low])
    return slope, values[low] - slope * at[low]


def merged(graphs: Sequence[Sequence[Reading]], numbers: Numbers) -> list[Reading]:
    """The first of the graphs, in which what differs between them is an expression. Raises
    Unwritable, which names the node."""
    places = [{reading.node: n for n, reading in enumerate(graph)} for graph in graphs]
    return [_Merging(numbers, places, row).reading() for row in zip_longest(*graphs)]


@dataclass(frozen=True)
class _Merging:
    """``places``: of the nodes, by graph; ``row``: the same node in each, where it has one."""

    numbers: Numbers
    places: Sequence[Mapping[torch.fx.Node, int]]
    row: Sequence[Reading | None]

    def reading(self) -> Reading:
        done = [_what(one) for one in self.row]
        if len({*done}) > 1:
            raise self._refused(done)
        first = self.row[0]
        assert first is not None
        parts = ([getattr(one, part) for one in self.row] for part in ("args", "kwargs", "example"))
        return Reading(first.node, *map(self._value, parts))

    def _value(self, values: Sequence[Any]) -> Any:
        first = values[0]
        if any(isinstance(value, sympy.Expr | int | float) for value in values):
            made = self._number(values)
            if made is not None:
                return made
        elif any(type(value) is not type(first) for value in values):
            pass
        elif isinstance(first, torch.fx.Node):
            pairs = zip(self.places, values, strict=True)
            if len({places[value] for places, value in pairs}) == 1:
                return first
        elif isinstance(first, Example):
            dtypes = {value.dtype for value in values}
            if len(dtypes) == 1:
                return Example(self._value([value.shape for value in values]), first.dtype)
        elif isinstance(first, dict):
            if all(value.keys() == first.keys() for value in values):
                return {key: self._value([value[key] for value in values]) for key in first}
        elif isinstance(first, tuple):
            if len({len(value) for value in values}) == 1:
                return tuple(self._value(column) for column in zip(*values, strict=True))
        elif all(value == first for value in values):
            return first
        raise self._refused(values)

    def _number(self, values: Sequence[object]) -> object:
        first = values[0]
        if all(value == first or value != value != first != first for value in values):
            return first
        if not any(isinstance(value, sympy.Expr) and value.free_symbols for value in values):
            return self.numbers.followed(values)
        if not all(isinstance(value, sympy.Expr | int) for value in values):
            return None
        whole = [sympy.sympify(value) for value in values]
        made = self._terms(whole)
        return self._parts(whole) if made is None else made

    def _terms(self, values: Sequence[sympy.Expr]) -> sympy.Expr | None:
        """The common form of values, by the factors of each term."""
        several = [sympy.expand(value).as_coefficients_dict() for value in values]
        made = sympy.Integer(0)
        for term in dict.fromkeys(term for terms in several for term in terms):
            factors = [terms.get(term, sympy.Integer(0)) for terms in several]
            same = all(one == factors[0] for one in factors)
            factor = factors[0] if same else self.numbers.followed(factors)
            if factor is None:
                return None
            made += factor * term
        return made

    def _parts(self, values: Sequence[sympy.Expr]) -> sympy.Expr | None:
        """The common form of values, by the arguments of a function."""
        first = values[0]
        if any((one.func, len(one.args)) != (first.func, len(first.args)) for one in values):
            return None
        parts = [self._number(column) for column in zip(*(one.args for one in values), strict=True)]
        if not parts or None in parts:
            return None
        made: sympy.Expr = first.func(*parts)
        return made

    def _refused(self, values: Sequence[object]) -> Unwritable:
        """An error that names the first two of the values that differ."""
        other = next(n for n, value in enumerate(values) if str(value) != str(values[0]))
        (was, now), (at, then) = (
            (str(several[0])[:80], str(several[other])[:80])
            for several in (values, [_said(point) for point in self.numbers.points])
        )
        what = f"{_what(self.row[0])} with " if was not in map(_what, self.row) else ""
        return Unwritable(
            f"{what}{was} where {at}, and {now} where {then}, which follows in no way that is "
            "known here"
        )


def _what(reading: Reading | None) -> str:
    """It does; inputs are called as they may be."""
    if reading is None:
        return "nothing more"
    return reading.node.op if reading.node.op == "placeholder" else str(reading.node.target)


def _said(point: Mapping[str, Scalar]) -> str:
    return ", ".join(f"{name} is {value}" for name, value in point.items())
