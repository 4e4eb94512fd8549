"""The chance that a sweep shows a difference which there is, before anybody pays for one.

The test is the one that :mod:`.paired` makes; its chance is that of Student's test on the mean over
operators, which ``benchmarks/compare_study.py`` bears out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from portkern.experiment.statistics import SIGNIFICANT, least_p

#: The part of sweeps which should show a difference for it to count as found.
CHANCE: Final = 0.8
_MOST_OPS: Final = 100_000
_STEPS: Final = 40


@dataclass(frozen=True)
class Design:
    """The weaker of two models passes at ``rate``, the stronger at ``wanted`` more. Operators
    differ by ``spread`` of the most that rates can (0: all are as hard, 1: each is always or never
    solved); ``alike`` is the correlation of what is hard for the two. An operator stands in
    ``places``; Holm's correction is for ``tests``."""

    wanted: float
    rate: float
    spread: float
    alike: float
    places: int = 1
    tests: int = 1

    def possible(self, ops: int) -> bool:
        """Whether so many operators can show any difference, whatever it is."""
        return ops > 1 and self.tests * least_p(ops) < SIGNIFICANT

    def chance(self, ops: int, samples: int) -> float:
        """The part of sweeps that show it, of ``samples`` of each model, operator and place."""
        from scipy.stats import nct, t

        if not self.possible(ops):
            return 0.0
        error = math.sqrt(self._variance(samples) / ops)
        reach = float(t.isf(SIGNIFICANT / self.tests / 2, ops - 1))
        if error < 1e-9:
            return 1.0
        found = float(nct.sf(reach, ops - 1, self.wanted / error))
        return found if math.isfinite(found) else 1.0  # so far off that the tail is beyond floats

    def fewest_ops(self, samples: int) -> int | None:
        """The least number of operators that has :data:`CHANCE`; None where no number does."""
        low, high = 1, 2
        while self.chance(high, samples) < CHANCE:
            low, high = high, high * 2
            if high > _MOST_OPS:
                return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.chance(middle, samples) >= CHANCE else (middle, high)
        return high

    def least_difference(self, ops: int, samples: int) -> float | None:
        """The least difference that has :data:`CHANCE`; None where not even the largest does."""
        low, high = 0.0, 1 - self.rate
        if replace(self, wanted=high).chance(ops, samples) < CHANCE:
            return None
        for _ in range(_STEPS):
            middle = (low + high) / 2
            enough = replace(self, wanted=middle).chance(ops, samples) >= CHANCE
            low, high = (low, middle) if enough else (middle, high)
        return high

    def _variance(self, samples: int) -> float:
        """The variance of an operator's difference: by how far its rates are apart, and by chance
        of its samples."""
        weak, strong = (rate * (1 - rate) for rate in (self.rate, self.rate + self.wanted))
        apart = weak + strong - 2 * self.alike * math.sqrt(weak * strong)
        chance = (weak + strong) * (1 - self.spread) / samples
        return (self.spread * apart + chance) / self.places
