"""Two recordings of runs on elements of a ring: whether each kernel's port computes its original's
formula.

In the ring sums and products are exact, so that the order of a sum changes nothing and a missing
term, however small, changes the result. What is equal there is equal as a formula; what differs is
another formula, unless a decision was as near as rounding is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from portkern.port.proof.compare import Judged, LaunchResult, Types, compare
from portkern.port.proof.element import ELEMENTS, Element
from portkern.port.proof.outcome import Algebra, ByAlgebra
from portkern.port.proof.recording import Content, LaunchRecord
from portkern.simt.execute.ring import Ring

#: As portkern/simt/runtime/ring.cpp writes one.
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
    """A run of the port on elements; ``how`` names it as its run on numbers is named."""

    how: str
    launches: Sequence[LaunchRecord]
    problem: str = ""


def judged(
    ring: Ring,
    original: Sequence[LaunchRecord],
    others: Sequence[Sequence[LaunchRecord]],
    runs: Sequence[RingRun],
    types: Types,
) -> dict[str, Algebra]:
    """The verdict of the runs on each kernel that the original launches; ``others`` are the
    original's in other orders of its threads."""
    shared = _Shared(ring)
    first = shared.canonical(original, types)
    unstable = {
        result.number
        for other in others
        for result in _compared(first, shared.canonical(other, types), types)
        if result.judged is not Judged.EQUAL
    }
    found: dict[str, list[Algebra]] = {}
    for run in runs:
        port = shared.canonical(run.launches, types)
        results = _compared(first, port, types)
        for position, result in enumerate(results):
            pair = (first[position : position + 1], port[position : position + 1])
            launches = [launch for one in pair for launch in one]
            said = _of_launch(result, launches, unstable)
            if said.verdict is not ByAlgebra.EQUAL:
                said = replace(said, why=f"on {run.how}, launch {result.number}: {said.why}")
            found.setdefault(result.kernel, []).append(said)
        if run.problem:
            for kernel in {launch.name for launch in original}:
                found.setdefault(kernel, []).append(Algebra(ByAlgebra.UNKNOWN, run.problem))
    accounts: dict[str, Account] = {}
    for launch in original:
        accounts[launch.name] = _added(accounts.get(launch.name, Account()), Account.of(launch))
    return {name: _of_kernel(found.get(name, []), account) for name, account in accounts.items()}


def _compared(
    original: Sequence[LaunchRecord], port: Sequence[LaunchRecord], types: Types
) -> tuple[LaunchResult, ...]:
    return compare(original, port, _Ids(types))


def _of_launch(
    result: LaunchResult, launches: Iterable[LaunchRecord], unstable: set[int]
) -> Algebra:
    accounts = [Account.of(launch) for launch in launches]
    if problem := next((account.problem for account in accounts if account.problem), ""):
        return Algebra(ByAlgebra.UNKNOWN, problem)
    if result.judged is Judged.EQUAL:
        return Algebra(ByAlgebra.EQUAL)
    if result.judged is Judged.UNJUDGED:
        return Algebra(ByAlgebra.UNKNOWN, result.why)
    if result.number in unstable:
        why = "the original's own formula depends on the order of its threads"
        return Algebra(ByAlgebra.UNKNOWN, why)
    if any(account.close for account in accounts):
        why = "it differs, and a comparison or a whole number was as near as rounding is"
        return Algebra(ByAlgebra.UNKNOWN, why)
    return Algebra(ByAlgebra.DIFFERENT, _place(result))


def _place(result: LaunchResult) -> str:
    difference = result.difference
    if difference is None:
        return result.why
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


@dataclass
class _Shared:
    """Numbers of elements, the same in all runs of one ring."""

    ring: Ring
    numbers: dict[tuple[int, int] | str, int] = field(default_factory=dict)
    strange: int = 0  # patterns that no arithmetic has made, which no arithmetic may have read

    def canonical(self, launches: Sequence[LaunchRecord], types: Types) -> list[LaunchRecord]:
        """The launches, with each float of their contents as the number of its element. A buffer
        whose type is not known stays as it is."""
        known: dict[tuple[int, int], tuple[int, int]] = {}
        done = []
        for launch in launches:
            for one in np.frombuffer(
                launch.elements[: len(launch.elements) // _DUMPED.itemsize * _DUMPED.itemsize],
                _DUMPED,
            ):
                at = (int(one["format"]), int(one["pattern"]))
                known[at] = (int(one["deep"][0]), int(one["deep"][1]))
            of = types.of(launch)
            strange = self.strange
            after = {
                number: self._content(content, of.get(number, ("", (None,)))[1], known)
                for number, content in launch.after.items()
            }
            account = Account.of(launch)
            account = replace(account, bits=account.bits + self.strange - strange)
            done.append(replace(launch, after=after, account=_counts(account)))
        return done

    def _content(
        self,
        content: Content,
        elements: Sequence[Element | None],
        known: Mapping[tuple[int, int], tuple[int, int]],
    ) -> Content:
        element = elements[0] if len(elements) == 1 else None
        if content.data is None or element is None or element.name not in _FORMATS:
            return content
        format_, bits = _FORMATS[element.name]
        whole = len(content.data) // element.size * element.size
        words = np.frombuffer(content.data[:whole], bits)
        distinct, places = np.unique(words, return_inverse=True)
        with np.errstate(invalid="ignore"):  # of NaNs that quiet ones are made of
            values = element.values(distinct.tobytes())
        ids = np.array(
            [
                self._number(format_, element, int(word), float(value), known)
                for word, value in zip(distinct, values, strict=True)
            ],
            np.int64,
        )
        data = ids[places].tobytes() if len(ids) else b""
        return Content(content.size, content.digest, data + content.data[whole:])

    def _number(
        self,
        format_: int,
        element: Element,
        word: int,
        value: float,
        known: Mapping[tuple[int, int], tuple[int, int]],
    ) -> int:
        sign = 1 << (8 * element.size - 1)
        residue = known.get((format_, word & ~sign))
        key: tuple[int, int] | str
        if residue is not None:
            q = self.ring.q
            key = (-residue[0] % q, -residue[1] % q) if word & sign else residue
        elif np.isfinite(value):
            key = (self.ring.deep(value), 0)
        else:
            key = str(value)
            self.strange += value != value and word & ~sign not in _NANS[element.name]
        return self.numbers.setdefault(key, len(self.numbers))
