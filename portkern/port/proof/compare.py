"""Two recordings of a program, launch by launch.

Each launch is judged by what it wrote. One that reads what an earlier launch got wrong, or what
the host filled otherwise, is not judged where its results differ.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType

import numpy as np

from portkern.cuda_source.syntax import Parameter, SourceKernel
from portkern.port.proof.accessors import pointee
from portkern.port.proof.commas import of_template
from portkern.port.proof.element import Element, element_of, of_tensor
from portkern.port.proof.outcome import ORIGINAL_FAILED
from portkern.port.proof.recording import Content, LaunchRecord
from portkern.port.proof.records import StructClass, members, rows

#: A reordered sum that enters the next launch's: its error grows as a walk does.
_MOST_GROWTH = 64.0
#: Two orders of the original's threads show a part of what others change.
_NOISE_SHOWN = 4.0

#: The distance of the original's own results in other orders of threads, by launch and buffer.
Noise = Mapping[tuple[int, int], float]


class Judged(StrEnum):
    EQUAL = "equal"
    ROUNDED = "equal but for the order of sums"
    REORDERED = "the same values in another order"
    DIFFERENT = "different"
    UNJUDGED = "not judged"


@dataclass(frozen=True)
class Difference:
    """``buffer`` is the number of the allocation, ``name`` the parameter that points to it.
    ``rounding`` is the largest difference where all may be rounding, for half of the digits agree;
    else None. ``why``: why one that is not judged is not."""

    buffer: int
    name: str
    index: int
    original: str
    ported: str
    count: int
    total: int
    kind: Judged = Judged.DIFFERENT
    rounding: float | None = None
    why: str = "results beyond the recording's bound differ"

    @property
    def what(self) -> str:
        return f"'{self.name}'" if self.name else f"buffer {self.buffer}"

    def __str__(self) -> str:
        return (
            f"{self.what}[{self.index}] is {self.ported}, expected {self.original} "
            f"({self.count} of {self.total} elements differ)"
        )


@dataclass(frozen=True)
class LaunchResult:
    """One launch of the original and its counterpart; ``difference`` is the worst of all."""

    number: int
    kernel: str
    judged: Judged
    why: str = ""
    difference: Difference | None = None
    written: int = 0
    differences: tuple[Difference, ...] = ()


@dataclass
class _State:
    """``wrong`` are buffers whose contents differ by now, ``rounded`` how many launches so far
    had a result that was only nearly equal; ``noise`` is allowed beside that. ``by_contents``: what
    the port's launches wrote is known by what they changed."""

    contents: dict[int, tuple[Content | None, Content | None]] = field(default_factory=dict)
    wrong: set[int] = field(default_factory=set)
    host: set[int] = field(default_factory=set)
    rounded: int = 0
    noise: Noise = field(default_factory=dict)
    by_contents: bool = False


class Types:
    """The element types of kernels' pointers, those in structs by value among them; ``known`` is
    what names of types stand for, ``of`` are classes by their names."""

    def __init__(
        self,
        kernels: Sequence[SourceKernel],
        known: Mapping[str, str],
        of: Mapping[str, StructClass] = MappingProxyType({}),
    ) -> None:
        self._kernels = kernels
        self._aliases, self._records = known, of
        self._rows = rows(of, known)

    def of(self, launch: LaunchRecord) -> Mapping[int, tuple[str, Sequence[Element | None]]]:
        """The parameter of each buffer of a launch, and the element types that it may have: more
        than one where null pointers or overloads leave open which parameter it is given to. '' is
        a parameter, and None a type, that is not known."""
        found: dict[int, tuple[str, Sequence[Element | None]]] = {}
        for kernel in (kernel for kernel in self._kernels if kernel.name == launch.name):
            for number, p, element in self._given(kernel, launch):
                name, elements = found.get(number, (p, ()))
                found[number] = (p if p == name else "", tuple(dict.fromkeys([*elements, element])))
        return found

    def _given(
        self, kernel: SourceKernel, launch: LaunchRecord
    ) -> Iterator[tuple[int, str, Element | None]]:
        """The buffers of a launch, each with all parameters that it may be given to: a recording
        lacks null pointers, so that those that are left may be any in their order."""
        bound = {**self._aliases, **_bound(kernel, launch.kernel)}
        spread = (p for of in kernel.parameters for p in self._spread(of, bound))
        pointers = [(p.name, of) for p in spread if (of := pointee(p.type, bound))]
        null = len(pointers) - len(launch.arguments)
        for at, (number, _) in enumerate(launch.arguments):
            if null < 0:  # one of them is not a parameter that is known
                yield number, "", None
            for name, of in pointers[at : at + null + 1] if null >= 0 else pointers:
                element = element_of(of, {**self._rows, **bound})
                yield number, name, element[0] if element else None

    def _spread(self, parameter: Parameter, bound: Mapping[str, str]) -> Sequence[Parameter]:
        found = None
        if not pointee(parameter.type, bound):
            found = members(parameter, bound, self._records)
        return found if isinstance(found, tuple) else [parameter]


def _bound(kernel: SourceKernel, expression: str) -> dict[str, str]:
    """The names of the template's parameters with the arguments that ``k<float, 4>`` gives them."""
    begin, end = expression.find("<"), expression.rfind(">")
    if begin < 0 or end < begin:
        return {}
    names = [parameter.name for parameter in kernel.template]
    return dict(zip(names, of_template(expression[begin + 1 : end]), strict=False))


def compare(
    original: Sequence[LaunchRecord],
    ported: Sequence[LaunchRecord],
    types: Types,
    noise: Noise | None = None,
    *,
    by_contents: bool = False,
) -> tuple[LaunchResult, ...]:
    """One result per launch of the original, and one for the first that only the port has.
    ``by_contents``: the port's recording lacks what a launch wrote that was there before."""
    state = _State(noise=noise or {}, by_contents=by_contents)
    results: list[LaunchResult] = []
    for position, launch in enumerate(original):
        if position >= len(ported):
            why = "the port ended before this launch"
            results.append(LaunchResult(launch.number, launch.name, Judged.DIFFERENT, why))
            return tuple(results)
        other = ported[position]
        if launch.name != other.name:
            why = f"the port launches {other.name!r} here"
            results.append(LaunchResult(launch.number, launch.name, Judged.DIFFERENT, why))
            return tuple(results)
        results.append(_compare_launch(launch, other, types, state))
    for extra in ported[len(original) : len(original) + 1]:
        why = "the original has no such launch"
        results.append(LaunchResult(extra.number, extra.name, Judged.DIFFERENT, why))
    return tuple(results)


def _compare_launch(
    original: LaunchRecord, ported: LaunchRecord, types: Types, state: _State
) -> LaunchResult:
    differences: list[Difference] = []

    def result(judged: Judged, why: str = "", difference: Difference | None = None) -> LaunchResult:
        all_ = tuple(differences)
        written = len(ported.after)
        return LaunchResult(original.number, original.name, judged, why, difference, written, all_)

    if ported.absent:
        state.wrong |= {number for number, _ in original.arguments} | set(original.after)
        return result(Judged.UNJUDGED, ported.absent)
    _note_host(original, ported, state)
    read = {number for number, _ in ported.arguments} | set(original.after)
    doubtful, from_host = bool(read & state.wrong), bool(read & state.host)
    if original.refused or ported.refused:
        if original.refused and ported.refused:
            return result(
                Judged.UNJUDGED, "the target refuses the launch, as it does the original's"
            )
        who = "original's" if original.refused else "port's"
        return result(Judged.DIFFERENT, f"the {who} launch is refused")
    if original.failed or ported.failed:
        state.wrong |= read
        if original.failed:
            return result(Judged.UNJUDGED, ORIGINAL_FAILED)
        return result(Judged.DIFFERENT, "the launch failed")
    differences += _differences(original, ported, types, state)
    if not differences:
        return result(Judged.EQUAL)
    worst = max(differences, key=lambda difference: _ORDER.index(difference.kind))
    if worst.kind is Judged.ROUNDED:
        state.rounded += 1
        return result(Judged.ROUNDED, "", worst)
    if worst.kind is Judged.UNJUDGED:
        return result(Judged.UNJUDGED, worst.why)
    if doubtful:
        return result(Judged.UNJUDGED, "an earlier launch differs, whose results it reads")
    if from_host:
        return result(Judged.UNJUDGED, "the two programs gave it different inputs")
    return result(worst.kind, str(worst), worst)


_NOTHING = Content(0, "")
#: What the executors fill new memory with.
_FRESH = b"\xff"
_ORDER = (Judged.EQUAL, Judged.ROUNDED, Judged.UNJUDGED, Judged.REORDERED, Judged.DIFFERENT)


def _note_host(original: LaunchRecord, ported: LaunchRecord, state: _State) -> None:
    """Notes the buffers that were changed by something other than a kernel: equal in both, or a
    reason for doubt."""
    for number in original.before.keys() | ported.before.keys():
        before = (original.before.get(number), ported.before.get(number))
        left, right = state.contents.get(number, (None, None))
        a = before[0] or (left.digest if left else None)
        b = before[1] or (right.digest if right else None)
        (state.host.discard if a == b else state.host.add)(number)
        if a == b:
            state.wrong.discard(number)
        state.contents[number] = (
            Content(0, before[0]) if before[0] else left,
            Content(0, before[1]) if before[1] else right,
        )


def _differences(
    original: LaunchRecord, ported: LaunchRecord, types: Types, state: _State
) -> list[Difference]:
    known = types.of(ported) or types.of(original)
    growth = min(math.sqrt(1 + state.rounded), _MOST_GROWTH)
    differences = []
    for number in sorted(original.after.keys() | ported.after.keys()):
        left, right = state.contents.get(number, (None, None))
        left, right = original.after.get(number, left), ported.after.get(number, right)
        if right is None and left is not None and state.by_contents:
            right = _as_new(left)
        state.contents[number] = (left, right)
        name, elements = known.get(number, ("", (None,)))
        of = of_tensor((right or left or _NOTHING).dtype)
        if of is not None and (not name or None in elements):
            elements = (of,)
        noise = _NOISE_SHOWN * state.noise.get((original.number, number), 0.0)
        difference = _agreed(
            [differing(number, name, one, left, right, growth, noise) for one in elements]
        )
        if difference is None:
            state.wrong.discard(number)
            state.host.discard(number)
            continue
        if difference.kind is not Judged.ROUNDED:
            state.wrong.add(number)
        differences.append(difference)
    return differences


def _agreed(found: Sequence[Difference | None]) -> Difference | None:
    """The worst of what a buffer's difference is by each type that it may have; not judged where it
    counts by one alone."""
    differences = [difference for difference in found if difference is not None]
    if not differences:
        return None
    worst = max(differences, key=lambda difference: _ORDER.index(difference.kind))
    counts = {one is not None and one.kind is not Judged.ROUNDED for one in found}
    if len(counts) == 1:
        return worst
    return replace(worst, kind=Judged.UNJUDGED, why=f"which type {worst.what} has is not known")


def _as_new(content: Content) -> Content | None:
    """The content of new memory, if that may be this; without data where the recording's bound
    leaves it open."""
    if content.data is None:
        return Content(content.size, "")
    return content if content.data == _FRESH * len(content.data) else None


def differing(
    number: int,
    name: str,
    element: Element | None,
    left: Content | None,
    right: Content | None,
    growth: float = 1.0,
    noise: float = 0.0,
) -> Difference | None:
    """The difference of one buffer's contents after a launch; ``growth`` is what earlier
    roundings add, ``noise`` what another order of threads does."""
    if left is not None and right is not None and left.is_as(right):
        return None
    if left is None or right is None:
        who = "original" if right is None else "port"
        return Difference(number, name, 0, "unchanged", f"written by the {who} alone", 1, 1)
    if left.data is None or right.data is None or len(left.data) != len(right.data):
        kind = Judged.UNJUDGED
        return Difference(number, name, 0, f"{left.size} bytes", f"{right.size} bytes", 1, 1, kind)
    if element is not None and element.is_float:
        whole = len(left.data) // element.size * element.size
        if left.data[whole:] != right.data[whole:]:
            return _integers(number, name, None, left.data, right.data)
        return _floats(number, name, element, left.data, right.data, growth, noise)
    return _integers(number, name, element, left.data, right.data)


def _floats(
    number: int,
    name: str,
    element: Element,
    left: bytes,
    right: bytes,
    growth: float,
    noise: float,
) -> Difference | None:
    a, b = element.values(left), element.values(right)
    finite = np.isfinite(a)
    scale = float(np.abs(a[finite]).max()) if finite.any() else 0.0
    allowed = element.ulps * element.rounding * scale * growth + noise
    with np.errstate(invalid="ignore"):
        apart = np.abs(a - b)
        near = apart <= allowed
    equal = (a == b) | (np.isnan(a) & np.isnan(b)) | near
    wrong = np.flatnonzero(~equal)
    if len(wrong) == 0:
        moved = np.flatnonzero(~((a == b) | (np.isnan(a) & np.isnan(b))))
        if len(moved) == 0:
            return None  # -0 and 0, or NaNs of other bits
        at, kind, count = int(moved[0]), Judged.ROUNDED, len(moved)
    else:
        at, kind, count = int(wrong[0]), Judged.DIFFERENT, len(wrong)
        close = np.isclose(np.sort(a), np.sort(b), rtol=0, atol=allowed, equal_nan=True)
        if bool(close.all()):
            kind = Judged.REORDERED
    both = finite & np.isfinite(b)
    largest = float(apart[both].max()) if both.any() else 0.0
    is_rounding = largest <= math.sqrt(element.rounding) * scale and bool(
        both.sum() == finite.sum()
    )
    rounding = largest if is_rounding else None
    values = f"{a[at]:.9g}", f"{b[at]:.9g}"
    return Difference(number, name, at, *values, count, len(a), kind, rounding)


def _integers(
    number: int, name: str, element: Element | None, left: bytes, right: bytes
) -> Difference | None:
    kind = element.name if element else "int32"
    if len(left) % np.dtype(kind).itemsize:
        kind = "uint8"
    a, b = np.frombuffer(left, np.dtype(kind)), np.frombuffer(right, np.dtype(kind))
    wrong = np.flatnonzero(a != b)
    at = int(wrong[0])
    same = bool(np.array_equal(np.sort(a), np.sort(b)))
    judged = Judged.REORDERED if same else Judged.DIFFERENT
    return Difference(number, name, at, str(a[at]), str(b[at]), len(wrong), len(a), judged)
