"""A problem: an operator as a collection of others states it, before any of its code is run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path

from portkern.errors import ConfigError
from portkern.spec.safe_name import SafeName

#: The folder of stored tensors beside a Definition.
TENSORS = "tensors"


@dataclass(frozen=True)
class Problem:
    """``data`` is the operator file that portkern reads, with the collection's own code in it, or
    a Definition (``suffix``); ``beside`` are files of its name by their suffixes,
    ``tensors`` those that its workloads name, by their names in :data:`TENSORS` beside it.
    ``place``: where it was read. ``number`` is the collection's, if it counts them."""

    name: str
    group: str
    place: str
    data: bytes
    number: int | None = None
    suffix: str = ".py"
    beside: Mapping[str, bytes] = field(default_factory=dict)
    tensors: Mapping[str, Path] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return f"{self.group}/{self.name}" if self.group else self.name


@dataclass(frozen=True)
class UnreadableProblem:
    """An item that could not be read as a problem, and the reason."""

    name: str
    group: str
    place: str
    reason: str
    number: int | None = None

    @property
    def title(self) -> str:
        return f"{self.group}/{self.name}" if self.group else self.name


Item = Problem | UnreadableProblem


def chosen(items: Sequence[Item], patterns: Iterable[str]) -> list[Item]:
    """The items that one of ``patterns`` matches: a number, a name or ``group/name``, with ``*``
    for any text; all of them without patterns. Raises ConfigError for a pattern that matches
    none."""
    asked = list(dict.fromkeys(patterns))
    for pattern in asked:
        if not any(_is_of(pattern, item) for item in items):
            raise ConfigError(
                f"No problem {pattern!r} among {len(items)}, such as "
                f"{', '.join(item.title for item in items[:3]) or 'none'}; expected a number, a "
                "name or group/name, * for any text"
            )
    if not asked:
        return list(items)
    return [item for item in items if any(_is_of(pattern, item) for pattern in asked)]


def _is_of(pattern: str, item: Item) -> bool:
    if pattern.isdecimal():
        return item.number == int(pattern)
    group, _, number = pattern.rpartition("/")
    if number.isdecimal() and group == item.group:
        return item.number == int(number)
    return fnmatchcase(item.name, pattern) or fnmatchcase(item.title, pattern)


def distinct(items: Iterable[Item]) -> list[Item]:
    """The items, with a number behind a name that an earlier one of the group has, as names become
    file names."""
    taken: set[str] = set()
    several: list[Item] = []
    for item in items:
        group = SafeName.like(item.group) if item.group else ""
        plain = re.sub(r"[^\w.+-]+", "_", item.name, flags=re.ASCII).strip(".") or "unnamed"
        plain = SafeName.like(plain)
        name, number = str(plain), 2
        while f"{group}/{name}".casefold() in taken:
            name, number = f"{plain}_{number}", number + 1
        taken.add(f"{group}/{name}".casefold())
        several.append(replace(item, name=name, group=group))
    return several
