"""Names of the lengths that an operator's tensors have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import sympy

from portkern.spec.from_torch.names import identifier
from portkern.worker.tracing import symbols
from portkern.worker.tracing.constants import Following
from portkern.worker.tracing.loading import LoadedOperator, names_read

if TYPE_CHECKING:
    from portkern.worker.tracing.trace import OperatorDescription


class TracedAxes:
    """Names for symbols: the file's own where one number is that large, else tensor and place.
    Lengths that follow numbers of the file are axes of their name, whatever tracing saw."""

    def __init__(
        self, found: OperatorDescription, shapes: Mapping[str, list[sympy.Expr]], follow: Following
    ) -> None:
        self.own, self.follow = _numbers(found.loaded), follow
        self.taken = {*found.names.values(), *(s.name for s in found.scalars.values()), found.name}
        self.names: dict[sympy.Symbol, str] = {}
        self.lengths: dict[str, int] = {}
        self.derived: dict[str, str] = {}
        #: What is in the place of symbols: numbers of the file, or a length that never varies.
        self.known: dict[sympy.Symbol, sympy.Expr] = dict(found.kept)
        #: The numbers of the file that are lengths which tracing saw as numbers.
        self.constants: dict[str, int] = {}
        #: The lengths that tracing saw as numbers and that are none of the file's.
        self.moving: dict[str, int] = {}
        self.seen = _lengths(found, shapes)
        for key, shape in shapes.items():
            for dim, size in enumerate(shape):
                self._add(found, key, dim, size)
        self.shapes = {
            key: self.shape(shape, found.names[key], key) for key, shape in shapes.items()
        }
        #: The names as the fake call's inputs are known.
        self.keyed = {found.names[key]: key for key in shapes}

    def _add(self, found: OperatorDescription, key: str, dim: int, size: sympy.Expr) -> None:
        length = int(found.tensors[key].shape[dim])
        follows = self.follow.of((key, dim))
        if follows is not None:
            number, (times, _) = follows
            self.lengths[number] = length // times
            self.names[symbols.file_number(number)] = number
            if isinstance(size, sympy.Symbol):
                self.known[size] = times * symbols.file_number(number)
            if number in found.moving:
                self.moving[number] = length
            elif isinstance(size, sympy.Integer) or (
                found.pinned and self.follow.shapes_state(number)
            ):
                self.constants[number] = length // times
            return
        if not isinstance(size, sympy.Symbol) or size in self.names or size in self.known:
            return
        self.names[size] = self._name(f"{found.names[key]}_{dim}", size, length)
        self.lengths[self.names[size]] = length

    def _name(self, plain: str, symbol: sympy.Symbol, length: int) -> str:
        """The file's own where one number, and one symbol of an argument, is that long."""
        known = [name for name in self.own.get(length, ()) if name not in self.lengths]
        if len(self.own.get(length, ())) == 1 and known and self.seen.get(length) == {symbol}:
            plain = known[0]
        return identifier(plain, taken=[*self.taken, *self.lengths, *self.derived])

    def named(self, length: int) -> int | str:
        """The axis that is as long, if there is one."""
        fitting = [name for name, known in self.lengths.items() if known == length]
        return fitting[0] if len(fitting) == 1 else length

    def text(self, value: sympy.Expr) -> str:
        return symbols.text(value.xreplace(self.known), self.names)

    def count(self, value: sympy.Expr) -> str:
        """A count as text; what follows numbers that the constructor takes was counted at the
        file's. With smaller ones it is no more than is left where it goes with their third power:
        kernels are held to no more than they have to do."""
        counted_at = {**self.constants, **self.moving}
        lengths = counted_at.items()
        file = {symbols.file_number(name): sympy.Integer(length) for name, length in lengths}
        counted = value.xreplace(self.known).xreplace(file)
        written = symbols.text(counted, self.names)
        for name, length in counted_at.items():
            share = f"{name} / {length}"
            written = f"({written}) * min({share}, ({share})**3)"
        return written

    def shape(self, sizes: Sequence[sympy.Expr], tensor: str, key: str) -> tuple[int | str, ...]:
        """Lengths that follow from axes become axes of their own."""
        named: list[int | str] = []
        for dim, traced in enumerate(sizes):
            size = traced.xreplace(self.known)
            follows = self.follow.of((key, dim)) if isinstance(traced, sympy.Integer) else None
            if follows is not None and follows[0] in {*self.constants, *self.moving}:
                times, more = follows[1]
                size = times * symbols.file_number(follows[0]) + more
            if isinstance(size, sympy.Integer):
                named.append(int(size))
                continue
            if isinstance(size, sympy.Symbol):
                named.append(self.names[size])
                continue
            written = self.text(size)
            known = [name for name, text in self.derived.items() if text == written]
            if not known:
                taken = [*self.taken, *self.lengths, *self.derived]
                known = [identifier(f"{tensor}_{dim}", taken=taken)]
                self.derived[known[0]] = written
            named.append(known[0])
        return tuple(named)


def _lengths(
    found: OperatorDescription, shapes: Mapping[str, list[sympy.Expr]]
) -> dict[int, set[sympy.Symbol]]:
    """The symbols of each length: those of arguments, where they have it, else those of state."""
    seen: dict[int, set[sympy.Symbol]] = {}
    for kind in ("input.", "state."):
        here: dict[int, set[sympy.Symbol]] = {}
        for key in (key for key in shapes if key.startswith(kind)):
            for size, length in zip(shapes[key], found.tensors[key].shape, strict=True):
                if isinstance(size, sympy.Symbol):
                    here.setdefault(int(length), set()).add(size)
        seen = here | seen
    return seen


def _numbers(loaded: LoadedOperator) -> dict[int, list[str]]:
    """The top-level integers of the file by their value, but for those that the operator itself
    reads: a window is not as long as some axis by more than chance."""
    read = {*names_read(vars(loaded.namespace)[loaded.name])}
    found: dict[int, list[str]] = {}
    for name, value in vars(loaded.namespace).items():
        if type(value) is int and value > 1 and not name.startswith("_") and name not in read:
            found.setdefault(value, []).append(name)
    return found
