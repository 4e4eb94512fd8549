"""Two recordings of runs on elements of a ring: whether each kernel's port computes its original's
formula.

In the ring sums and products are exact, so that the order of a sum changes nothing and a missing
term, however small, changes the result. What is equal there is equal as a formula; what differs is
another formula, unless a decision was as near as rounding is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from portkern.port.proof.compare import Difference, Judged, LaunchResult, Types, compare
from portkern.port.proof.element import ELEMENTS, Element, of_tensor
from portkern.port.proof.outcome import Algebra, ByAlgebra
from portkern.port.proof.recording import Content, LaunchRecord
from portkern.simt.execute.ring import Ring

#: A value as portkern/simt/runtime/ring.cpp writes it.
_DUMPED = np.dtype(
    [
        ("format", "u4"),
        ("has_flat", "u4"),
        ("pattern", "u8"),
        ("flat", "u8", 2),
        ("deep", "u8", 2),
        ("shadow", "f8"),
    ]
)
#: The number of each type there, and of its bits.
_FORMATS: Mapping[str, tuple[int, type[np.unsignedinteger]]] = {
    "float16": (0, np.uint16),
    "bfloat16": (1, np.uint16),
    "float32": (2, np.uint32),
    "float64": (3, np.uint64),
}
#: The NaNs that arithmetic makes and that new memory is full of.
_NANS: Mapping[str, tuple[int, int]] = {
    "float16": (0x7E00, 0x7FFF),
    "bfloat16": (0x7FC0, 0x7FFF),
    "float32": (0x7FC00000, 0x7FFFFFFF),
    "float64": (0x7FF8 << 48, (1 << 63) - 1),
}
#: What becomes of floats in a comparison: numbers of elements.
_IDS = ELEMENTS["int64"]


@dataclass(frozen=True)
class Account:
    """Counts of what a launch did that algebra does not cover; see portkern/simt/runtime/ring.h."""

    comparisons: int = 0
    close: int = 0
    integers: int = 0
    functions: int = 0
    bits: int = 0
    full: int = 0
    lost: int = 0

    @classmethod
    def of(cls, launch: LaunchRecord) -> Account:
        return cls(*launch.account[:7])

    @property
    def problem(self) -> str:
        """Why results say nothing, equal or not."""
        if self.bits:
            return f"it reads bits as numbers that no arithmetic has made ({self.bits} times)"
        if self.full:
            return "it has more different values than a type of 16 bits or a table has room for"
        if self.lost:
            return f"values leave the ring, for 8 bits or long double ({self.lost} times)"
        return ""


@dataclass(frozen=True)
class RingRun:
    """A run of the port on elements; ``how`` names it as its run on numbers is named, whose
    launches ``numbers`` are. ``problem``: why nothing can be said of it."""

    how: str
    launches: Sequence[LaunchRecord]
    problem: str = ""
    numbers: Sequence[LaunchRecord] = ()


def judged(
    ring: Ring,
    original: Sequence[LaunchRecord],
    others: Callable[[], Sequence[Sequence[LaunchRecord]]],
    runs: Sequence[RingRun],
    types: Types,
    numbers: Sequence[LaunchRecord] = (),
) -> dict[str, Algebra]:
    """The verdict of the runs on each kernel that the original launches; ``others`` are the
    original's in other orders of its threads, which are asked for where a kernel differs;
    ``numbers`` are its launches on numbers."""
    shared = _Shared(ring)
    first = shared.canonical(original, types, numbers)
    ports = [
        None if run.problem else shared.canonical(run.launches, types, run.numbers) for run in runs
    ]
    found = _found(first, runs, ports, types, numbers, set())
    if any(one.verdict is ByAlgebra.DIFFERENT for said in found.values() for one in said):
        unstable = {
            result.number
            for other in others()
            for result in _compared(first, shared.canonical(other, types), types)
            if result.judged is not Judged.EQUAL
        }
        if unstable:
            found = _found(first, runs, ports, types, numbers, unstable)
    accounts = _accounts(original, {})
    for run in runs:
        accounts = _accounts(() if run.problem else run.launches, accounts)
    return {name: _of_kernel(said, accounts.get(name, Account())) for name, said in found.items()}


def _found(
    first: _Decoded,
    runs: Sequence[RingRun],
    ports: Sequence[_Decoded | None],
    types: Types,
    numbers: Sequence[LaunchRecord],
    unstable: Set[int],
) -> dict[str, list[Algebra]]:
    """The verdicts of the runs on each kernel; results of the original that are ``unstable`` are
    other ones in other orders of its threads."""
    original = first.launches
    kernels = dict.fromkeys(launch.name for launch in (*original, *numbers))
    found: dict[str, list[Algebra]] = {
        name: [*_unlike(name, original, numbers, "on a ring the original")] for name in kernels
    }
    for run, port in zip(runs, ports, strict=True):
        if port is None:
            for name in kernels:
                found[name].append(Algebra(ByAlgebra.UNKNOWN, run.problem))
            continue
        for name, said in _of_run(run.how, first, port, types, unstable):
            found.setdefault(name, []).append(said)
        for name in kernels:
            found[name] += _unlike(name, run.launches, run.numbers, f"on {run.how} the ring's run")
    return found


def _of_run(
    how: str, first: _Decoded, port: _Decoded, types: Types, unstable: Set[int]
) -> Iterator[tuple[str, Algebra]]:
    """Yields what each launch says of its kernel, and of kernels that have launches without a
    result."""
    results = _compared(first, port, types)
    for position, result in enumerate(results):
        problem = first.problem(position) or port.problem(position)
        said = _of_launch(result, problem, port.is_close(position, first), unstable)
        if said.verdict is not ByAlgebra.EQUAL:
            said = replace(said, why=f"on {how}, launch {result.number}: {said.why}")
        yield result.kernel, said
    launched = Counter(launch.name for launch in first.launches)
    for name in launched - Counter(result.kernel for result in results):
        yield name, Algebra(ByAlgebra.UNKNOWN, f"on {how} not all of its launches are reached")


def _unlike(
    name: str, ring: Sequence[LaunchRecord], numbers: Sequence[LaunchRecord], whose: str
) -> Iterator[Algebra]:
    """Yields why a kernel's launches are not those that were compared as numbers."""
    a, b = ([_place_of(one) for one in of if one.name == name] for of in (ring, numbers))
    if numbers and a != b:
        yield Algebra(ByAlgebra.UNKNOWN, f"{whose} launches it otherwise than on numbers")


def _place_of(launch: LaunchRecord) -> tuple[object, ...]:
    return launch.kernel, launch.grid, launch.block, launch.refused, launch.failed


def _compared(original: _Decoded, port: _Decoded, types: Types) -> tuple[LaunchResult, ...]:
    return compare(original.launches, port.launches, _Ids(types))


def _of_launch(result: LaunchResult, problem: str, is_close: bool, unstable: Set[int]) -> Algebra:
    if problem:
        return Algebra(ByAlgebra.UNKNOWN, problem)
    if result.judged is Judged.EQUAL:
        return Algebra(ByAlgebra.EQUAL)
    if result.judged is Judged.UNJUDGED or result.difference is None:
        return Algebra(ByAlgebra.UNKNOWN, result.why)
    if result.number in unstable:
        why = "the original's own formula depends on the order of its threads"
        return Algebra(ByAlgebra.UNKNOWN, why)
    if is_close:
        why = "it differs, and a comparison or a whole number was as near as rounding is"
        return Algebra(ByAlgebra.UNKNOWN, why)
    return Algebra(ByAlgebra.DIFFERENT, _place(result.difference))


def _place(difference: Difference) -> str:
    return (
        f"{difference.what}[{difference.index}] is another formula than the original's "
        f"({difference.count} of {difference.total} elements)"
    )


_WORST = (ByAlgebra.DIFFERENT, ByAlgebra.UNKNOWN, ByAlgebra.EQUAL)


def _of_kernel(said: Sequence[Algebra], account: Account) -> Algebra:
    nothing = Algebra(ByAlgebra.UNKNOWN, "the port does not launch it")
    worst = min(said, key=lambda one: _WORST.index(one.verdict), default=nothing)
    if worst.verdict is not ByAlgebra.EQUAL:
        return worst
    return Algebra(ByAlgebra.EQUAL, "; ".join(_rests_on(account)))


def _rests_on(account: Account) -> Iterator[str]:
    """Yields what an equality takes from the inputs or leaves open."""
    if account.comparisons:
        yield f"{account.comparisons} comparisons were decided by values"
    if account.integers:
        yield f"{account.integers} whole numbers were made of values"
    if account.functions:
        yield f"{account.functions} calls of functions have no laws"


def _accounts(
    launches: Iterable[LaunchRecord], before: Mapping[str, Account]
) -> dict[str, Account]:
    """The accounts before, with those of each kernel's launches."""
    accounts = dict(before)
    for launch in launches:
        accounts[launch.name] = _added(accounts.get(launch.name, Account()), Account.of(launch))
    return accounts


def _added(a: Account, b: Account) -> Account:
    return Account(*(x + y for x, y in zip(_counts(a), _counts(b), strict=True)))


def _counts(account: Account) -> tuple[int, ...]:
    return tuple(vars(account).values())


class _Ids(Types):
    """The types of recordings whose floats are numbers of elements."""

    def __init__(self, types: Types) -> None:
        self._types = types

    def of(self, launch: LaunchRecord) -> Mapping[int, tuple[str, Sequence[Element | None]]]:
        return {
            number: (name, [_IDS if e is not None and e.is_float else e for e in elements])
            for number, (name, elements) in self._types.of(launch).items()
        }


@dataclass(frozen=True)
class _Decoded:
    """Launches with numbers of elements, and of each why it says nothing, or ''."""

    launches: Sequence[LaunchRecord]
    problems: Sequence[str]

    def problem(self, position: int) -> str:
        return self.problems[position] if position < len(self.problems) else ""

    def is_close(self, position: int, other: _Decoded) -> bool:
        both = (*self.launches[position : position + 1], *other.launches[position : position + 1])
        return any(Account.of(launch).close for launch in both)


class _CannotSayError(Exception):
    """Why a content has no numbers of elements."""


@dataclass
class _Shared:
    """Numbers of elements, the same in all runs of one ring."""

    ring: Ring
    numbers: dict[tuple[int, int] | str, int] = field(default_factory=dict)

    def canonical(
        self,
        launches: Sequence[LaunchRecord],
        types: Types,
        numbers: Sequence[LaunchRecord] = (),
    ) -> _Decoded:
        """The launches, with each float of their contents as the number of its element;
        ``numbers`` are the same launches on numbers."""
        known = _Known()
        done, problems = [], []
        for position, launch in enumerate(launches):
            beside = numbers[position].after if position < len(numbers) else {}
            known.add(launch.elements)
            of, after = types.of(launch), dict(launch.after)
            problem, known.left = Account.of(launch).problem, MOST_VALUES
            for number, content in launch.after.items():
                try:
                    elements = of.get(number, ("", (None,)))[1]
                    after[number] = self._content(content, elements, known, beside.get(number))
                except _CannotSayError as error:
                    problem = problem or str(error)
            done.append(replace(launch, after=after))
            problems.append(problem)
        return _Decoded(done, problems)

    def _content(
        self,
        content: Content,
        elements: Sequence[Element | None],
        known: _Known,
        beside: Content | None,
    ) -> Content:
        """Raises _CannotSayError where the bits of a content may be keys of elements, and which
        is not known."""
        if content.data is None:
            raise _CannotSayError("results lie beyond the recording's bound")
        if known.is_cut:
            raise _CannotSayError(_TOO_MANY)
        of = of_tensor(content.dtype)
        if of is not None and None in elements:
            elements = (of,)
        element = elements[0] if len(elements) == 1 else None
        if element is None or element.name not in _FORMATS:
            if known.has_any(content.data):
                raise _CannotSayError("a buffer of which the type is not known has numbers in it")
            return Content(content.size, content.digest, content.data)
        bits = _FORMATS[element.name][1]
        whole = len(content.data) // element.size * element.size
        words = np.frombuffer(content.data[:whole], bits)
        distinct, places = np.unique(words, return_inverse=True)
        known.left -= len(distinct)
        if known.left < 0:
            raise _CannotSayError(_TOO_MANY)
        keys = self._keys(element, distinct, known)
        ids = np.array([self.numbers.setdefault(k, len(self.numbers)) for k in keys], np.int64)
        finite = np.array([not isinstance(key, str) for key in keys], bool)
        if len(ids) and _is_finite_beside(finite[places], element, beside):
            raise _CannotSayError("a result is infinite or no number, and on numbers it is finite")
        data = ids[places].tobytes() if len(ids) else b""
        return Content(content.size, content.digest, data + content.data[whole:])

    def _keys(
        self, element: Element, words: npt.NDArray[np.unsignedinteger], known: _Known
    ) -> list[tuple[int, int] | str]:
        with np.errstate(invalid="ignore"):  # of NaNs that quiet ones are made of
            values = element.values(words.tobytes())
        both = zip(words, values, strict=True)
        return [self._key(element, int(word), float(value), known) for word, value in both]

    def _key(
        self, element: Element, word: int, value: float, known: _Known
    ) -> tuple[int, int] | str:
        sign = 1 << (8 * element.size - 1)
        residue = known.residues.get((_FORMATS[element.name][0], word & ~sign))
        q = self.ring.q
        if residue is not None:
            return (-residue[0] % q, -residue[1] % q) if word & sign else residue
        if np.isfinite(value):
            return (self.ring.deep(value), 0)
        if value != value and word & ~sign not in _NANS[element.name]:
            raise _CannotSayError(Account(bits=1).problem)
        return str(value)


def _is_finite_beside(
    finite: npt.NDArray[np.bool_], element: Element, beside: Content | None
) -> bool:
    """Whether a run on numbers has a finite one where an element is none."""
    if beside is None or beside.data is None:
        return False
    values = element.values(beside.data)
    return len(values) == len(finite) and bool((np.isfinite(values) & ~finite).any())


#: Above, numbers of elements of a launch take too long.
MOST_VALUES = 2_000_000
_TOO_MANY = "too many values"


@dataclass
class _Known:
    """Patterns of bits that stand for elements, by their format; ``left``: how many values a launch
    may have yet."""

    residues: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    patterns: dict[int, set[int]] = field(default_factory=dict)
    left: int = MOST_VALUES
    is_cut: bool = False

    def add(self, dumped: bytes) -> None:
        count = len(dumped) // _DUMPED.itemsize
        self.is_cut = self.is_cut or count > MOST_VALUES
        if self.is_cut:
            return
        for one in np.frombuffer(dumped[: count * _DUMPED.itemsize], _DUMPED):
            at = (int(one["format"]), int(one["pattern"]))
            self.residues[at] = (int(one["deep"][0]), int(one["deep"][1]))
            self.patterns.setdefault(at[0], set()).add(at[1])

    def has_any(self, data: bytes) -> bool:
        """Whether a word of any format is a pattern, whatever its sign."""
        for format_, bits in _FORMATS.values():
            patterns = self.patterns.get(format_)
            if patterns:
                size = np.dtype(bits).itemsize
                words = np.frombuffer(data[: len(data) // size * size], bits)
                words = words & bits((1 << (8 * size - 1)) - 1)
                if np.isin(words, np.fromiter(patterns, bits, len(patterns))).any():
                    return True
        return False
