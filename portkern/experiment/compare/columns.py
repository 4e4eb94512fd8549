"""The values that each task contributes to the means over tasks, as a table: a row for each task,
a column for each metric, k and p."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from portkern.experiment.compare.estimators import best_of_k
from portkern.experiment.compare.grouped import SampleGroup
from portkern.experiment.compare.result import METRICS
from portkern.experiment.statistics import Floats, pass_at_k

#: What fast_p is told for.
FASTER: Final = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0)
#: Their values are logarithms: the mean over tasks is geometric too.
GEOMETRIC: Final = ("speedup_geometric", "speedup_correct_geometric")
#: Metrics that leave a task without enough correct samples out, instead of calling it unknown.
CONDITIONAL: Final = ("speedup_correct", "speedup_correct_geometric")
NO: Final = math.nan


@dataclass(frozen=True)
class FigureColumn:
    metric: str
    k: int | None = None
    p: float | None = None

    @property
    def timed(self) -> bool:
        """fast_0 is the share of correct ones, which no clock is needed for."""
        return METRICS[self.metric].timed and self.p != 0


def columns(ks: Sequence[int]) -> list[FigureColumn]:
    found = [FigureColumn("no_code"), FigureColumn("cheat")]
    for k in ks:
        found += [FigureColumn("build", k), FigureColumn("pass", k)]
        found += [FigureColumn("fast", k, p) for p in FASTER]
        found += [FigureColumn(name, k) for name in _SPEEDS]
    return found


def values(
    groups: Sequence[SampleGroup], asked: Sequence[FigureColumn], units: Mapping[str, int]
) -> Floats:
    """NaN where a task has no such value."""
    table = [[_value(group, column, units) for column in asked] for group in groups]
    return np.array(table, float).reshape(len(groups), len(asked))


def known(group: SampleGroup, column: FigureColumn) -> int:
    """Samples that tell something of a number."""
    if not column.timed:
        return group.n
    return group.rated if column.metric == "efficiency" else group.clocked


def _value(group: SampleGroup, column: FigureColumn, units: Mapping[str, int]) -> float:
    n, k = known(group, column), column.k
    if n == 0 or (k is not None and k > n):
        return NO
    if column.metric == "cheat" and not group.cheats_sought:
        return NO
    if k is None:
        return (group.no_code if column.metric == "no_code" else group.cheats) / n
    if column.p is not None:
        return pass_at_k(n, group.faster(column.p), k)
    if column.metric in _SPEEDS:
        return _SPEEDS[column.metric](group, k, units)
    return pass_at_k(n, group.built if column.metric == "build" else len(group.correct), k)


def _arithmetic(group: SampleGroup, k: int, _: Mapping[str, int]) -> float:
    return best_of_k(_padded(group.speedups, group.clocked, 0.0), k)


def _geometric(group: SampleGroup, k: int, _: Mapping[str, int]) -> float:
    return best_of_k(_padded(_logs(group), group.clocked, 0.0), k)


def _correct(group: SampleGroup, k: int, _: Mapping[str, int]) -> float:
    return best_of_k(group.speedups, k) if k <= len(group.speedups) else NO


def _correct_geometric(group: SampleGroup, k: int, _: Mapping[str, int]) -> float:
    return best_of_k(_logs(group), k) if k <= len(group.speedups) else NO


def _roofline(group: SampleGroup, k: int, _: Mapping[str, int]) -> float:
    return best_of_k(_padded(group.efficiencies, group.rated, 0.0), k)


def _pareval(group: SampleGroup, k: int, units: Mapping[str, int]) -> float:
    count = units.get(group.place.target)
    return best_of_k(_padded(group.speedups, group.clocked, 0.0), k) / count if count else NO


def _logs(group: SampleGroup) -> list[float]:
    return [math.log(speedup) for speedup in group.speedups]


def _padded(found: Sequence[float], n: int, failed: float) -> list[float]:
    """The values, padded to ``n`` with ``failed``: what has no value failed."""
    return [*found, *[failed] * (n - len(found))]


_SPEEDS: Final[Mapping[str, Callable[[SampleGroup, int, Mapping[str, int]], float]]] = {
    "speedup_arithmetic": _arithmetic,
    "speedup_geometric": _geometric,
    "speedup_correct": _correct,
    "speedup_correct_geometric": _correct_geometric,
    "efficiency": _roofline,
    "efficiency_pareval": _pareval,
}
