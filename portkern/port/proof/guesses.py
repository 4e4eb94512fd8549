"""Guesses of a case: what it takes for granted of a launch because the source does not say it.

All such guesses come together here, and :func:`settled` decides what may rest on them: what is
assumed of a launch is never proven. Sizes and values of a kernel's inputs are another thing: any
of them is one that it may be given.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace

from portkern.cuda_source.syntax import LaunchText
from portkern.port.proof.expression import Names
from portkern.port.proof.outcome import KernelProof, Outcome

BLOCK = "block of unknown size"
GRID = "grid of unknown size"
SHARED = "dynamic shared memory of unknown size"
#: Threads of a block that nothing says the size of: the first is what is examined as every launch
#: is, with the others it is looked at whether they change anything.
THREADS = (256, 64, 1024)
#: Names of what launches are made of, not of data.
_OF_LAUNCH = re.compile(
    r"block|thread|tpb|nthr|grid|(?:\b|_)ctas?|smem|shmem|shared|sh_?mem|bytes|sh_?size",
    re.IGNORECASE,
)
#: Host code asks a tensor or a container for its size, or the machine how large it is.
_MEASURED = re.compile(
    r"(?:\.|->)\s*(?:sizes?|numel|dim|shape|strides?|_?nnz|length|rows|cols|ne)\b|\bsizes?\s*\["
)
_OF_MACHINE = re.compile(r"multi_?processor|\bnum_?sms?\b|sm_?count", re.IGNORECASE)
_DYNAMIC = re.compile(
    r"\bextern\s++(?:(?!__shared__)\w++\s++|(?:__align__|alignas)\(\d++\)\s*+){0,8}+__shared__"
)
#: Host code gives a variable of the device its value.
_SET = re.compile(
    r"\b(?:cuda|hip)MemcpyToSymbol(?:Async)?\s*+\(\s*+(?:HIP_SYMBOL\s*+\(\s*+)?(?:&\s*+)?([\w:]++)"
)
#: A launch with attributes beside its shape: clusters, priorities, dependencies.
_ATTRIBUTES = re.compile(r"\.\s*attrs\s*=|\bcudaLaunchAttribute(?:ClusterDimension|Cooperative)\b")


@dataclass(frozen=True)
class Guess:
    """``what`` is not said by the source, ``tried`` is what the case has instead."""

    what: str
    tried: str


def settled(proof: KernelProof, guesses: Iterable[Guess]) -> KernelProof:
    """The proof as it holds where these were assumed: at most *not proven*, with their names."""
    why = unsettled(guesses)
    if not why or proof.outcome is not Outcome.PROVEN:
        return proof
    return replace(proof, outcome=Outcome.UNPROVEN, why=why)


def unsettled(guesses: Iterable[Guess]) -> str:
    """Why nothing is proven where these were assumed; '' where nothing was."""
    tried: dict[str, dict[str, None]] = {}
    for guess in guesses:
        tried.setdefault(guess.what, {})[guess.tried] = None
    return "; ".join(f"{what}: tried {', '.join(values)}" for what, values in tried.items())


class Unsaid:
    """The parts of one launch that do not follow from the source and the kernel's inputs. ``told``
    are names that the kernel is given; the rest of what the names depend on is looked up in the
    host's code before the offset."""

    def __init__(
        self, launch: LaunchText | None, names: Names, offset: int, told: Collection[str]
    ) -> None:
        self._names, self._offset, self._told = names, offset, told
        self._before = names.before(offset)
        self.parts = frozenset(self._parts(launch))

    def _parts(self, launch: LaunchText | None) -> Iterator[str]:
        if launch is None:
            yield from (BLOCK, GRID, SHARED)
            return
        for part, text in ((BLOCK, launch.block), (SHARED, launch.shared)):
            follows = all(map(self._is_given, self._open(text)))
            if not follows or (text and self._names.is_changed(text, self._offset)):
                yield part
        of_block = self._open(launch.block)
        if not all(name in of_block or self._is_of_data(name) for name in self._open(launch.grid)):
            yield GRID

    def _open(self, text: str) -> list[str]:
        return self._names.unknown(text, self._offset) if text else []

    def _is_given(self, name: str) -> bool:
        return name in self._told or self._is_measured(name)

    def _is_measured(self, name: str) -> bool:
        return _MEASURED.search(self._before.get(name, name)) is not None

    def _is_of_data(self, name: str) -> bool:
        """Whether a name in a grid's size is a size of the data, or of the machine."""
        said = self._before.get(name, "")
        if self._is_given(name) or _OF_MACHINE.search(f"{name} {said}"):
            return True
        return not said and not _OF_LAUNCH.search(name)


def is_of_launch(name: str) -> bool:
    """Whether it is called as what launches are made of."""
    return _OF_LAUNCH.search(name) is not None


def is_of_machine(name: str) -> bool:
    """Whether it is called as what says how large a machine is."""
    return _OF_MACHINE.search(name) is not None


def has_dynamic_memory(text: str) -> bool:
    """Whether device code has shared memory whose size the launch says."""
    return _DYNAMIC.search(text) is not None or "HIP_DYNAMIC_SHARED" in text


def of_attributes(launch: LaunchText | None, host: str) -> Iterator[Guess]:
    """The guess that a launch has a shape and nothing beside it, where it has attributes."""
    if launch is not None and "KernelEx" in launch.by and _ATTRIBUTES.search(host):
        yield Guess("attributes of the launch", "none")


def of_variables(reached: Collection[str], host: str) -> Iterator[Guess]:
    """The guesses of what the device's variables hold that host code sets and that a kernel
    reaches: a case leaves them as they are."""
    for name in dict.fromkeys(found.rpartition("::")[2] for found in _SET.findall(host)):
        if name in reached:
            yield Guess(f"what host code sets {name} to", "its initial value")
