"""Differences between models on the same tasks at equal numbers of samples, and which are shown."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from portkern.experiment.compare.columns import FigureColumn, values
from portkern.experiment.compare.figures import Clocks, clocks
from portkern.experiment.compare.grouped import SampleGroup
from portkern.experiment.compare.intervals import pooled_geometric, share_difference
from portkern.experiment.compare.result import METRICS, ModelDifference, Venue
from portkern.experiment.section import counted, points, times
from portkern.experiment.statistics import SIGNIFICANT, Estimate, Floats, corrected, sign_flips

#: One task of two models.
_Pair = tuple[SampleGroup, SampleGroup]


def differences(groups: Sequence[SampleGroup]) -> tuple[ModelDifference, ...]:
    """The differences between each two models in each venue, in pass@1, pass@k, fast_1 and the
    geometric speedup, all under one correction."""
    timed = clocks(groups)
    by_model: dict[str, dict[tuple[object, ...], SampleGroup]] = defaultdict(dict)
    for group in groups:
        if group.n:
            key = group.op, group.dtype, group.place, group.venue
            by_model[group.model][key] = group
    found: list[ModelDifference] = []
    for first, second in combinations(by_model, 2):
        both = [key for key in by_model[first] if key in by_model[second]]
        pairs = [_equal(by_model[first][key], by_model[second][key]) for key in both]
        for venue in dict.fromkeys(pair[0].venue for pair in pairs):
            own = [pair for pair in pairs if pair[0].venue == venue]
            found += _of_pair(first, second, venue, own, timed)
    return tuple(_corrected(found))


def _equal(first: SampleGroup, second: SampleGroup) -> _Pair:
    n = min(first.n, second.n)
    return first.first(n), second.first(n)


def _of_pair(
    first: str, second: str, venue: Venue, pairs: Sequence[_Pair], timed: Clocks
) -> Iterator[ModelDifference]:
    least = min(one.n for one, _ in pairs)
    asked = [
        FigureColumn("pass", 1),
        FigureColumn("fast", 1, 1.0),
        FigureColumn("speedup_geometric", 1),
    ]
    if least > 1:
        asked.insert(1, FigureColumn("pass", least))
    for column in asked:
        kept = [
            pair for pair in pairs if not column.timed or (pair[0].place, pair[0].venue) in timed
        ]
        sums = _Sums.of(kept, column)
        if sums.tasks.any():
            yield _difference(first, second, venue, column, sums)


@dataclass(frozen=True)
class _Sums:
    """Sums over the tasks of each op."""

    first: Floats
    second: Floats
    tasks: Floats

    @classmethod
    def of(cls, pairs: Sequence[_Pair], column: FigureColumn) -> _Sums:
        rows = {op: row for row, op in enumerate(dict.fromkeys(one.op for one, _ in pairs))}
        sums = np.zeros((3, len(rows)))
        a, b = (values([pair[side] for pair in pairs], [column], {})[:, 0] for side in (0, 1))
        for (one, _), left, right in zip(pairs, a, b, strict=True):
            if not math.isnan(left + right):  # else one of them is not known: nothing was timed
                sums[:, rows[one.op]] += left, right, 1
        return cls(*sums[:, sums[2] > 0])

    @property
    def p_value(self) -> float | None:
        """The p-value; None for a single op, which can show nothing."""
        apart = self.first - self.second
        return sign_flips(apart.tolist()) if len(apart) > 1 else None


def _difference(
    first: str, second: str, venue: Venue, column: FigureColumn, sums: _Sums
) -> ModelDifference:
    if column.metric == "speedup_geometric":
        estimate: Estimate | None = pooled_geometric(sums.first - sums.second, sums.tasks)
    else:
        estimate = share_difference(sums.first, sums.second, sums.tasks)
    assert column.k is not None
    return ModelDifference(
        first,
        second,
        column.metric,
        column.k,
        column.p,
        venue,
        estimate,
        p_value=sums.p_value,
        p_holm=None,
        tasks=int(sums.tasks.sum()),
        tests=0,
        words="",
    )


def _corrected(found: Sequence[ModelDifference]) -> Iterator[ModelDifference]:
    adjusted = corrected([one.p_value for one in found])
    tests = sum(p is not None for p in adjusted)
    for one, p_holm in zip(found, adjusted, strict=True):
        known = replace(one, p_holm=p_holm, tests=tests)
        yield replace(known, words=_words(known))


def _words(one: ModelDifference) -> str:
    title = METRICS[one.metric].title.replace("@k", f"@{one.k}")
    if one.threshold is not None:
        title = title.replace("_p", f"_{one.threshold:g}")
    none = f"{title}: no difference shown between {one.first} and {one.second}"
    if one.p_holm is None or one.estimate is None:
        return f"{none}: one op alone shows none"
    venue = f", {one.venue}" if one.venue else ""
    told = (
        f"{_amount(one, one.estimate)} over {counted(one.tasks, 'task')}{venue}, "
        f"p = {one.p_holm:.2g} of {counted(one.tests, 'test')}"
    )
    if one.shown:
        apart = one.estimate.value - (one.metric == "speedup_geometric")
        better, worse = (one.first, one.second) if apart > 0 else (one.second, one.first)
        return f"{title}: {better} is better than {worse} ({told})"
    if one.least_p >= SIGNIFICANT:
        told += f"; {one.estimate.n} ops are too few to show any of {counted(one.tests, 'test')}"
    return f"{none} ({told})"


def _amount(one: ModelDifference, estimate: Estimate) -> str:
    """How far the first model is ahead of the second, in words."""
    if one.metric == "speedup_geometric":
        return f"{one.first} is {times(estimate)} {one.second}"
    value, _, interval = points(estimate).partition(" ")
    return " ".join(filter(None, (f"{one.first} less {one.second} is {value} points", interval)))
