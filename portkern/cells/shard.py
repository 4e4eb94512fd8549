"""A part of a matrix for each of several jobs, by operator: its kernels race with each other."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from portkern.cells.selection import Selection
from portkern.errors import ConfigError


@dataclass(frozen=True)
class Shard:
    """Job ``number`` of ``jobs``, from 1."""

    number: int
    jobs: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """``2/4``. Raises ConfigError."""
        found = re.fullmatch(r"([0-9]{1,4})/([0-9]{1,4})", text)
        number, jobs = map(int, found.groups()) if found else (0, 0)
        if not 1 <= number <= jobs:
            raise ConfigError(f"Got shard={text}, expected a job and how many there are, as 2/4")
        return cls(number, jobs)

    def part(self, question: Selection) -> Selection:
        """The question of this job: all jobs together have every operator once, and as many cells
        each as can be. Raises ConfigError where there are more jobs than operators."""
        parts = {name: replace(question, ops=[name]) for name in question.op_names}
        sizes = {name: len(part.cells_if_any()) for name, part in parts.items()}
        mine = self.names(sizes)
        if not mine:
            raise ConfigError(
                f"Got shard={self.number}/{self.jobs} with {len(sizes)} operators, expected at "
                "most as many jobs"
            )
        return replace(question, ops=mine)

    def names(self, sizes: Mapping[str, int]) -> list[str]:
        """The names of this job: the largest is dealt first, each to the job that has least."""
        filled = [0] * self.jobs
        mine = []
        for name in sorted(sizes, key=lambda name: (-sizes[name], name)):
            job = filled.index(min(filled))
            filled[job] += sizes[name]
            if job == self.number - 1:
                mine.append(name)
        return mine
