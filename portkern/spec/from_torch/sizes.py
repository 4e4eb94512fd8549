"""Sizes to try an operator on, from the one that its file has, by two rules.

A: each axis goes to the least length from a start that what the operator requires allows, with it
what has to be equal to it, the others as they are; twice round. The starts are small and differ
from axis to axis, so that no two lengths are equal by chance, and none is a power of two. Axes of
eight or less, such as the sides of a convolution's window, stay as they are there; one size has all
of them longer, as a kernel may know such a length by heart.

B: the longest axis is halved until the whole is no more than a set may take; so lengths stay
multiples of what they are multiples of in the file.

C: each axis is once longer than in the file, by a quarter and odd where that is allowed, the
longest first and as many at once as a set may take: a kernel may hold as much as the file has and
no more, or be wrong where a last part is not whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from portkern.errors import ConfigError
from portkern.spec.expression import Expression

#: How far from its start a length is looked for: group norms want multiples of up to some hundreds.
_REACH = 1024
#: What a workload of a set may take at most: elements of all inputs and outputs, or operations, of
#: which a processor does so many in the time of an element.
MOST = {"ci": 1 << 16, "typical": 1 << 26, "edge": 1 << 20, "heldout": 1 << 21, "headline": 1 << 33}
_OPERATIONS = 256
#: An axis no longer than this is one of a window, or of channels of a picture.
_SHORT = 8
#: A typical size that a processor is done with in a moment, beside the one of the file.
_BRIEF = 1 << 21
#: The most calls of the file's own code in a search for sizes.
_CALLS = 40
_PRIMES = (13, 11, 17, 19, 23, 29, 31, 37)

Dims = Mapping[str, int]


@dataclass(frozen=True)
class Sizes:
    """``example``: the free axes, as long as in the file; ``beside``: numbers that places along an
    axis are compared with, of which a size has to be on either side; ``fits``: whether the file's
    own code takes a size."""

    example: Dims
    requires: Sequence[Expression]
    derived: Mapping[str, Expression]
    elements: Callable[[Dims], float]
    flops: Callable[[Dims], float]
    beside: Mapping[str, Sequence[int]] = field(default_factory=dict)
    fits: Callable[[Dims], bool] = lambda _: True
    _taken: dict[tuple[tuple[str, int], ...], bool] = field(default_factory=dict)

    def all(self, free: Dims) -> dict[str, int] | None:
        """All lengths, with the derived axes; None where a requirement does not hold, or a length
        is negative or has no value, as that of no chunks, or is 0 though all of ``free`` are not:
        a convolution refuses what is too short for its window."""
        dims = dict(free)
        try:
            for name, length in self.derived.items():
                dims[name] = int(length(dims))
            fitting = all(one.holds(dims) for one in self.requires)
        except ConfigError:
            return None
        emptied = 0 in dims.values() and 0 not in free.values()
        return dims if fitting and not emptied and min(dims.values(), default=0) >= 0 else None

    def cost(self, free: Dims) -> float:
        """Elements, or operations in units of one, whichever is more."""
        dims = self.all(free)
        if dims is None:
            return float("inf")
        return max(self.elements(dims), self.flops(dims) / _OPERATIONS)

    def settled(self, starts: Dims) -> Dims:
        """Rule A: from the file's lengths, which fulfil all that is required, axis by axis."""
        dims = dict(self.example)
        for _ in range(2):
            for axis, start in starts.items():
                moved = (self.moved(dims, axis, n) for n in range(start, start + _REACH))
                dims = next((one for one in moved if self.all(one) is not None), dims)
        return dims

    def moved(self, dims: Dims, axis: str, length: int) -> dict[str, int]:
        """Return these lengths with another one of ``axis``, and with what has to be equal to what
        follows from it."""
        changed = {**dims, axis: length}
        for name, follows in self.equal * 2:
            if name != axis:
                try:
                    changed[name] = int(follows(changed))
                except ConfigError:
                    break
        return changed

    @cached_property
    def equal(self) -> list[tuple[str, Expression]]:
        """The axes that have to be equal to an expression of others."""
        found: list[tuple[str, Expression]] = []
        for condition in self.requires:
            for name, other in _sides(condition.text):
                if name in self.example and name not in Expression(other).names:
                    found.append((name, Expression(other)))
        return found

    def halved(self, most: float) -> Dims:
        """Rule B."""
        dims = dict(self.example)
        fixed: set[str] = set()
        while self.cost(dims) > most and len(fixed) < len(dims):
            axis = max((name for name in dims if name not in fixed), key=dims.__getitem__)
            half = self.moved(dims, axis, dims[axis] // 2)
            if dims[axis] > 2 and self.all(half) is not None:
                dims = half
            else:
                fixed.add(axis)
        return dims

    def longer(self, small: Dims, most: float) -> list[Dims]:
        """Rule C, from the lengths of ``small``. An axis that the file refuses beside other longer
        ones is longer by itself, and one that it refuses by itself is not."""
        several: list[Dims] = []
        alone: set[str] = set()
        left = sorted(self.example, key=self.example.__getitem__, reverse=True)
        while left:
            dims, first = small, left[0]
            for axis in left * 2:
                by_itself = dims == small
                if dims[axis] > self.example[axis] or (axis in alone and not by_itself):
                    continue
                lengths = self._longer_ones(dims, axis, most)
                found = next(filter(self.takes, lengths[: None if by_itself else 1]), None)
                if lengths and not found:
                    alone.add(axis)
                dims = found or dims
            if dims != small:
                several.append(dims)
            left = [axis for axis in left if dims[axis] <= self.example[axis] and axis != first]
        return several

    def _longer_ones(self, dims: Dims, axis: str, most: float) -> list[Dims]:
        """Sizes with a longer ``axis`` beside these lengths: an odd one, and multiples of a part of
        the file's where that is refused."""
        length = self.example[axis]
        start = length + 1 if length <= _SHORT else length * 5 // 4 | 1
        moved = (self.moved(dims, axis, n) for n in range(start, start + _REACH))
        least = next((one for one in moved if self.all(one) is not None), dims)
        parts = (length * 5 // 4, length * 3 // 2, 2 * length)
        several = (least, *(self.moved(dims, axis, n) for n in parts))
        return [one for one in several if one[axis] > length and self.cost(one) <= most]

    def takes(self, dims: Dims) -> bool:
        """Whether the file's own code takes a size: it is called once at each, and at no more than
        :data:`_CALLS`, as calls may take long."""
        key = tuple(sorted(dims.items()))
        if key not in self._taken and len(self._taken) < _CALLS:
            self._taken[key] = self.fits(dims)
        return self._taken.get(key, False)

    def least(self, most: float) -> Dims:
        """Rule A, from starts as small as it takes; where the file does not take that, each axis
        as small as it does beside what rule B gives the others."""
        small: Dims = self.example
        for start in (9, 7, 5, 3):
            small = self.settled(self._starts(lambda number, _, start=start: start + number))
            if self.cost(small) <= most:
                break
        if self.takes(small):
            return small
        dims = self.halved(most)
        for axis, length in small.items():
            less = self.moved(dims, axis, length)
            dims = less if self.all(less) is not None and self.takes(less) else dims
        return dims

    def _starts(self, start: Callable[..., int]) -> dict[str, int]:
        """A start length for each axis; short axes stay what they are."""
        return {
            axis: length if length <= _SHORT else min(start(number, length), length)
            for number, (axis, length) in enumerate(self.example.items())
        }


def _sides(condition: str) -> list[tuple[str, str]]:
    """The sides of an equation, either first."""
    sides = condition.split(" == ")
    return [(sides[0], sides[1]), (sides[1], sides[0])] if len(sides) == 2 else []


def propose(sizes: Sizes) -> dict[str, list[Dims]]:
    """Proposed sizes by workload set, without what would be too large for a set; ``ci`` has the
    least there is."""
    small = sizes.least(MOST["ci"])
    typical = sizes.halved(MOST["typical"])
    # Of what is large at any size, as a table is, a longer one takes little more.
    most = MOST | {"ci": max(MOST["ci"], min(sizes.cost(small) * 5 / 4, MOST["edge"]))}
    others = _others(sizes, small)
    proposed: dict[str, list[Dims]] = {
        "ci": [
            small,
            sizes.halved(MOST["ci"]),
            *sizes.longer(small, most["ci"]),
            *_beyond(sizes, small, 5),
        ],
        "typical": [sizes.halved(_BRIEF), typical],
        "edge": [
            *_edges(sizes, small),
            *others,
            *_beyond(sizes, small, 0),
            *_beyond(sizes, small, 1),
        ],
        "heldout": _heldout(sizes),
        "headline": [] if dict(typical) == dict(sizes.example) else [sizes.example],
    }
    kept: dict[str, list[Dims]] = {}
    for name, several in proposed.items():
        unique = {tuple(dims.items()): dims for dims in several}
        kept[name] = [dims for dims in unique.values() if sizes.cost(dims) <= most[name]]
    for name in ("ci", "typical", "heldout"):
        kept[name] = kept[name] or [min((small, sizes.example), key=sizes.cost)]
    return kept


def _edges(sizes: Sizes, small: Dims) -> list[Dims]:
    """One of nothing, one of ones, and each axis long or one where the others are small."""
    edges: list[Dims] = []
    axes = [axis for axis, length in sizes.example.items() if length > _SHORT]
    if axes:
        edges.append(dict(small) | {axes[0]: 0})
    edges.append(sizes.settled(dict.fromkeys(sizes.example, 1)))
    few = {axis: _PRIMES[n % len(_PRIMES)] % 7 + 2 for n, axis in enumerate(sizes.example)}
    for axis in axes[:4]:
        long = 7919 if sizes.example[axis] > 64 else 127
        edges.append(sizes.settled({**few, axis: long}))
    for axis in axes[:2]:
        edges.append(sizes.settled({**small, axis: 1}))
    return edges


def _others(sizes: Sizes, small: Dims) -> list[Dims]:
    """Short axes longer than in the file, all and each: a kernel that knows their lengths by heart,
    as of heads, is right at every other size."""
    longer = {axis: n + 1 for axis, n in sizes.example.items() if 1 < n <= _SHORT}
    several = [longer, *({axis: n} for axis, n in longer.items())] if longer else []
    return [sizes.settled({**small, **one}) for one in several]


def _beyond(sizes: Sizes, small: Dims, by: int) -> list[Dims]:
    """An axis so much longer than a number that places along it are compared with."""
    return [
        sizes.settled({**small, axis: number + by})
        for axis, numbers in sizes.beside.items()
        for number in numbers
    ]


def _heldout(sizes: Sizes) -> list[Dims]:
    """Near the file's proportions and odd, and each of two axes prime beside the others."""
    half = sizes.halved(MOST["heldout"] // 4)
    odd = {axis: n if n <= _SHORT else max(n * 7 // 8, 2) | 1 for axis, n in half.items()}
    primes = sizes._starts(lambda number, length: _PRIMES[number % len(_PRIMES)])
    axes = [axis for axis, length in sizes.example.items() if length > _SHORT]
    several = [sizes.settled(odd), sizes.settled(primes)]
    for axis, prime in zip(axes[:2], (613, 769), strict=False):
        several.append(sizes.settled({**primes, axis: min(prime, 4 * sizes.example[axis])}))
    return several
