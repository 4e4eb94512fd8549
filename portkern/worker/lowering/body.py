"""Statements in C of what computes one element, and the values that they are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import sympy

#: How values are computed: floats of a cell's dtype as float, whatever they are stored as.
Kind = Literal["bool", "int64_t", "float", "double"]
KINDS: tuple[Kind, ...] = ("bool", "int64_t", "float", "double")


def free(name: str, taken: frozenset[str]) -> str:
    """The name, or one like it that no tensor or axis has."""
    while name in taken:
        name += "_"
    return name


class Body:
    """Lines of C. What an enclosing block has computed is not computed again."""

    def __init__(
        self, taken: frozenset[str] = frozenset(), indent: int = 1, *, after: int = 0
    ) -> None:
        """``after``: so many names were given before, in the same function."""
        self.lines: list[str] = []
        self._taken, self._indent, self.named = taken, indent, after
        self._known: list[dict[object, str]] = [{}]
        #: What was read of which tensor, and at which index.
        self.reads: list[tuple[str, Index]] = []

    def say(self, text: str) -> None:
        self.lines.append("  " * self._indent + text)

    def name(self, letter: str) -> str:
        self.named += 1
        return free(f"{letter}{self.named}", self._taken)

    def let(self, kind: str, text: str) -> str:
        """The name of a constant with this value."""
        if text.isidentifier() or text.isdigit():
            return text
        return self.memo((kind, text), lambda: self._let(kind, text))

    def _let(self, kind: str, text: str) -> str:
        name = self.name("v")
        self.say(f"const {kind} {name} = {text};")
        return name

    def memo(self, key: object, make: Callable[[], str]) -> str:
        for scope in reversed(self._known):
            if key in scope:
                return scope[key]
        made = make()
        self._known[-1][key] = made
        return made

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.say(f"{head} {{")
        self._indent += 1
        self._known.append({})
        yield
        self._known.pop()
        self._indent -= 1
        self.say("}")

    @contextmanager
    def loop(self, length: str, before: str = "") -> Iterator[str]:
        """A loop over 0 … ``length`` - 1; yields the counter."""
        if length == "1":
            yield "0"
            return
        counter = self.name("r")
        if before:
            self.say(before)
        with self.block(f"for (int64_t {counter} = 0; {counter} < {length}; ++{counter})"):
            yield counter


Index = tuple[str, ...]


@dataclass(frozen=True)
class Fold:
    """A reduction by its parts, for who shares the elements out. ``lengths``: of the axes that are
    gone over. ``state``: the kinds of what is carried along, and its beginnings; ``take`` says what
    puts the element at an index and counters into a state of these names, ``join`` what puts
    another state into it, ``result`` the element of the output. ``wide``: sums of floats, carried
    as doubles. ``across``: the axis whose elements are neighbours stays. ``how``: the reduction's
    name, or the sign by which an element is better."""

    lengths: tuple[sympy.Expr, ...]
    state: tuple[tuple[Kind, str], ...]
    take: Callable[[Body, Index, Index, Sequence[str]], None]
    join: Callable[[Sequence[str], Sequence[str]], Sequence[str]]
    result: Callable[[Sequence[str]], str]
    wide: bool = False
    across: bool = False
    how: str = "sum"


@dataclass(frozen=True, eq=False)
class LoweredValue:
    """A tensor by what computes its element at an index. ``cost``: about how many operations that
    takes, beyond loads. ``fold``, ``product``: what it is a reduction or a product of."""

    shape: tuple[sympy.Expr, ...]
    kind: Kind
    load: Callable[[Body, Index], str]
    cost: int = 0
    fold: Fold | None = None
    product: Product | None = None

    def at(self, body: Body, index: Index) -> str:
        assert len(index) == len(self.shape), (index, self.shape)
        return body.memo((id(self), index), lambda: body.let(self.kind, self.load(body, index)))

    def cast(self, kind: Kind) -> LoweredValue:
        if kind == self.kind:
            return self
        return LoweredValue(
            self.shape, kind, lambda body, i: cast(self.at(body, i), self.kind, kind)
        )


@dataclass(frozen=True)
class Product:
    """A product of matrices, over the last axis of ``a`` and the last but one of ``b``."""

    a: LoweredValue
    b: LoweredValue


def cast(text: str, kind: Kind, wanted: Kind) -> str:
    if kind == wanted:
        return text
    return f"({text} != 0)" if wanted == "bool" else f"({wanted}){text}"


def scalar(value: float | bool, kind: Kind) -> str:
    """A number as C writes it."""
    if kind == "bool":
        return "true" if value else "false"
    if kind == "int64_t":
        return f"((int64_t){int(value)})" if value < 0 else str(int(value))
    if value != value:
        return f"(({kind})NAN)"
    if value in (float("inf"), float("-inf")):
        return f"(({kind}){'-' if value < 0 else ''}INFINITY)"
    written = repr(float(value)) + ("f" if kind == "float" else "")
    return f"({written})" if value < 0 else written
