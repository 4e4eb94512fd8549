"""Users for workers and programs where the evaluator is root: each has a uid of its own, so that
the kernel counts its tasks alone and lets no other look into it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

#: The user of all of them, where the machine does not know enough uids.
NOBODY = 65534
#: Above what systems and containers give to users; below, room for two of each process id.
_FIRST, _PROCESSES = 0x70000000, 1 << 22


@dataclass(frozen=True)
class Users:
    """``worker`` is also the group; ``program`` is whom a worker's programs run as. ``alone``:
    no other worker has them."""

    worker: int
    program: int
    alone: bool

    @classmethod
    def of(cls, process: int) -> Self:
        """The users of the worker that this process id stands for, as long as it lives."""
        if process < _PROCESSES and all(map(_has_room, ("uid_map", "gid_map"))):
            return cls(_FIRST + 2 * process, _FIRST + 2 * process + 1, alone=True)
        return cls(NOBODY, NOBODY - 1, alone=False)


def _has_room(table: str) -> bool:
    """A container may know 65,536 of them only."""
    rows = [map(int, row.split()) for row in Path(f"/proc/self/{table}").read_text().splitlines()]
    last = _FIRST + 2 * _PROCESSES
    return any(first <= _FIRST and last <= first + count for first, _, count in rows)
