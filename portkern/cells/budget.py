"""A limit to a run's time: what changed and what was looked at longest ago runs first, and the rest
stands as the last run that looked at it found it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from portkern.cells.carrying import same_place, stands
from portkern.cells.selection import SelectedCell
from portkern.cells.to_record import environment_of, unroutable
from portkern.records.record import Record, Verdict

#: Verdicts that are looked at again first: those of kernels that somebody may have mended, and of
#: cells that could not run.
_OPEN = (Verdict.UNAVAILABLE, Verdict.SUSPICIOUS)


@dataclass(frozen=True)
class Budget:
    """``known``: the newest record of each question; ``ages``: of earlier runs how many are newer,
    by name."""

    minutes: float
    known: Mapping[str, Record]
    ages: Mapping[str, int]
    began: float = field(default_factory=time.monotonic)

    @classmethod
    def of(cls, minutes: float, runs: Iterable[Sequence[Record]], order: Sequence[str]) -> Budget:
        """``runs`` and their names in ``order``: the newest first."""
        known: dict[str, Record] = {}
        for records in runs:
            for key, record in {one.key: one for one in records}.items():  # its last, not its first
                known.setdefault(key, record)
        return cls(minutes, known, {name: age for age, name in enumerate(order)})

    @property
    def over(self) -> bool:
        return time.monotonic() - self.began > 60 * self.minutes

    def batches(self, cells: Sequence[SelectedCell]) -> Iterator[list[SelectedCell]]:
        """Kernels of an operator and dtype that are equally old, while there is time: they race
        with each other, and a batch that has begun is gone through."""
        groups: dict[tuple[int, str, str], list[SelectedCell]] = {}
        for cell in cells:
            groups.setdefault((-self._age(cell), cell.op.name, cell.dtype), []).append(cell)
        for place in sorted(groups):
            if self.over:
                return
            yield groups[place]

    def left(self, run: str, cell: SelectedCell) -> Record:
        """The record of a cell that there was no time for."""
        one = self._record(cell)
        if one is None:
            told = "new or changed, and not looked at"
            reason = f"{told}: budget_minutes={self.minutes:g} were over before it"
            return unroutable(run, cell, reason)
        return stands(one, run, cell)

    def _age(self, cell: SelectedCell) -> int:
        """How many runs ago it was looked at; more than any for what is to be looked at first."""
        one, most = self._record(cell), len(self.ages)
        if one is None or one.verdict.bad or one.verdict in _OPEN:
            return most + 1
        return self.ages.get(one.carried or one.run, most)

    def _record(self, cell: SelectedCell) -> Record | None:
        """The record that nothing has changed since."""
        one = self.known.get(cell.key)
        return one if one and same_place(one.environment, environment_of(cell, ran=True)) else None
