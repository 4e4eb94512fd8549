"""All numbers of a model: as a whole, by backend, by place and by suite, each venue by itself."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from portkern.experiment.compare.columns import (
    CONDITIONAL,
    GEOMETRIC,
    FigureColumn,
    columns,
    known,
    values,
)
from portkern.experiment.compare.grouped import SampleGroup
from portkern.experiment.compare.intervals import (
    pooled_geometric,
    pooled_mean,
    pooled_share,
    task_share,
)
from portkern.experiment.compare.result import AskedPlace, Figure, SampleScope, Venue
from portkern.experiment.compare.sample import Sample
from portkern.experiment.section import counted
from portkern.experiment.statistics import Estimate, Floats

#: What is right or wrong of each sample; other values may lie above 1.
_SHARES = ("no_code", "cheat", "build", "pass", "fast")
#: Rates of single samples, which one task alone has an interval of.
_COUNTED: Mapping[str, Callable[[SampleGroup], int]] = {
    "no_code": lambda group: group.no_code,
    "cheat": lambda group: group.cheats,
    "build": lambda group: group.built,
    "pass": lambda group: len(group.correct),
}
NOTHING = "no sample was evaluated"
EMULATED = "not timed: it ran in an emulator"
UNTIMED = "not timed"
NOT_SOUGHT = "not looked for: the samples have verdicts of others"

Bools = npt.NDArray[np.bool_]
Clocks = frozenset[tuple[AskedPlace, Venue]]


def clocks(groups: Iterable[SampleGroup], metric: str = "") -> Clocks:
    """The places where anybody's correct samples were timed, which is where times can be had: of
    the share of the roofline those where that is known, which results of others may have alone."""
    return frozenset((group.place, group.venue) for group in groups if _times(group, metric))


def _times(group: SampleGroup, metric: str) -> Sequence[float]:
    return group.efficiencies if metric == "efficiency" else group.speedups


@dataclass(frozen=True)
class _Part:
    """The tasks of a scope, and their rows in the table of values."""

    scope: SampleScope
    groups: Sequence[SampleGroup]
    table: Floats

    @cached_property
    def ops(self) -> Floats:
        """A row for each op, with 1 in the columns of its tasks."""
        names = [group.op for group in self.groups]
        rows = {op: row for row, op in enumerate(dict.fromkeys(names))}
        member = np.zeros((len(rows), len(names)))
        member[[rows[op] for op in names], range(len(names))] = 1
        return member

    @cached_property
    def counts(self) -> npt.NDArray[np.int64]:
        return np.array([group.n for group in self.groups])

    @cached_property
    def evaluated(self) -> _Kept:
        return _Kept(self, self.counts > 0)

    def clocked(self, timed: Clocks) -> _Kept:
        """The tasks in places where times can be had."""
        has = np.array([(group.place, group.venue) in timed for group in self.groups])
        return _Kept(self, (self.counts > 0) & has)


@dataclass(frozen=True)
class _Kept:
    """The tasks of a scope that a number is computed over."""

    part: _Part
    rows: Bools

    @cached_property
    def groups(self) -> list[SampleGroup]:
        return [self.part.groups[row] for row in np.flatnonzero(self.rows).tolist()]

    @cached_property
    def correct(self) -> int:
        return sum(len(group.correct) for group in self.groups)

    def timed(self, column: FigureColumn) -> int:
        """Correct samples that have what a number of this kind is made of."""
        return sum(len(_times(group, column.metric)) for group in self.groups)

    @cached_property
    def samples(self) -> int:
        return int(self.part.counts[self.rows].sum())

    @cached_property
    def places(self) -> set[AskedPlace]:
        return {group.place for group in self.groups}

    def with_value(self, found: Floats) -> _Kept:
        return _Kept(self.part, self.rows & ~np.isnan(found))


def figures(
    groups: Sequence[SampleGroup], ks: Sequence[int], units: Mapping[str, int]
) -> Iterator[Figure]:
    """The figures of all scopes that have a sample."""
    asked = columns(ks)
    timed = {metric: clocks(groups, metric) for metric in dict.fromkeys(c.metric for c in asked)}
    table = values(groups, asked, units)
    rows: dict[SampleScope, list[int]] = defaultdict(list)
    suites = {group.suite for group in groups}
    for row, group in enumerate(groups):
        for scope in _scopes(group, by_suite=len(suites) > 1):
            rows[scope].append(row)
    for scope, own in rows.items():
        part = _Part(scope, [groups[row] for row in own], table[own])
        yield from _means(part, asked, timed, units)
        yield _heldout(part)
        yield from _costs(part)


def _scopes(group: SampleGroup, *, by_suite: bool) -> Iterator[SampleScope]:
    whole = SampleScope(group.model, group.venue)
    by_backend = replace(whole, backend=group.place.backend)
    for scope in (whole, by_backend, replace(by_backend, target=group.place.target)):
        yield scope
        if by_suite and group.suite:
            yield replace(scope, suite=group.suite)


def _means(
    part: _Part,
    asked: Sequence[FigureColumn],
    timed: Mapping[str, Clocks],
    units: Mapping[str, int],
) -> Iterator[Figure]:
    for place, column in enumerate(asked):
        found, clocked = part.table[:, place], part.clocked(timed[column.metric])
        kept = clocked if column.timed else part.evaluated
        estimate, reason = None, _missing(kept, column, found, units)
        if column.timed:
            kept = kept.with_value(found)
        if not reason:
            estimate = _estimate(kept, column, found)
            reason = _caution(clocked, column)
        yield Figure(part.scope, column.metric, estimate, column.k, column.p,
                     tasks=len(kept.groups), samples=kept.samples, reason=reason)  # fmt: skip


def _estimate(kept: _Kept, column: FigureColumn, found: Floats) -> Estimate | None:
    ops = kept.part.ops
    tops, bottoms = ops @ np.where(kept.rows, found, 0.0), ops @ kept.rows.astype(float)
    if column.metric in GEOMETRIC:
        return pooled_geometric(tops, bottoms)
    if column.metric not in _SHARES:
        return pooled_mean(tops, bottoms)
    if len(kept.groups) > 1:
        return pooled_share(tops, bottoms)
    [group] = kept.groups
    p = column.p
    count = group.faster(p) if p is not None else _COUNTED[column.metric](group)
    return Estimate(float(tops.sum()), task_share(count, known(group, column), column.k or 1))


def _missing(kept: _Kept, column: FigureColumn, found: Floats, units: Mapping[str, int]) -> str:
    """Why there is no number, or empty."""
    part, k = kept.part, column.k
    if not part.evaluated.groups:
        return NOTHING
    if not kept.groups:
        return EMULATED if part.scope.venue == "emulated" else UNTIMED
    if column.timed and kept.correct and not kept.timed(column):
        return UNTIMED
    if k is not None and (few := int((part.counts[kept.rows] < k).sum())):
        return f"{few} of {counted(len(kept.groups), 'task')} have fewer than {k} samples"
    if column.metric == "efficiency_pareval":
        unknown = {place.target for place in kept.places if not units.get(place.target)}
        if unknown:
            return f"how many processing units {min(unknown)} has is not known"
    lacking = np.isnan(found[kept.rows])
    if column.metric == "cheat" and lacking.any():
        return NOT_SOUGHT
    if column.metric in CONDITIONAL and lacking.all():
        return f"no task has {counted(k or 1, 'correct sample')} with a time"
    if column.metric == "efficiency" and any(g.rated < g.clocked for g in kept.groups):
        return "the share of the roofline is not known of all tasks"
    if column.timed and lacking.all():
        return f"{UNTIMED}: no task has {counted(k or 1, 'sample')} of which a time is known"
    return ""


def _caution(kept: _Kept, column: FigureColumn) -> str:
    if not column.timed:
        return ""
    said = []
    without = kept.part.evaluated.places - kept.places
    if without and column.metric not in CONDITIONAL:
        said.append(f"without {', '.join(map(str, sorted(without)))}, where nothing was timed")
    if untimed := kept.correct - kept.timed(column):
        said.append(f"{untimed} of {kept.correct} correct samples were not timed and are missing")
    if column.metric in GEOMETRIC and not kept.correct:
        said.append("nothing is correct: all of it falls back to the framework")
    return "; ".join(said)


def _heldout(part: _Part) -> Figure:
    """Right on sizes that were not seen, of those right on the seen ones that were tried there."""
    tried = [[s for s in group.correct if s.heldout is not None] for group in part.groups]
    bottoms = [len(several) for several in tried]
    total = sum(bottoms)
    if not total:
        reason = "no correct sample was run on held-out sizes"
        return Figure(part.scope, "heldout", None, reason=reason)
    tops = [sum(bool(sample.heldout) for sample in several) for several in tried]
    if len(part.groups) == 1:
        estimate = Estimate(sum(tops) / total, task_share(sum(tops), total, 1), 1)
    else:
        estimate = pooled_share(part.ops @ np.array(tops, float), part.ops @ np.array(bottoms))
    tasks = sum(bool(count) for count in bottoms)
    return Figure(part.scope, "heldout", estimate, tasks=tasks, samples=total)


def _costs(part: _Part) -> Iterator[Figure]:
    solved = np.array([float(bool(group.correct)) for group in part.groups])
    for metric, spent in _SPENT.items():
        costs = [[spent(sample) for sample in group.samples] for group in part.groups]
        estimate, reason = None, ""
        if not part.evaluated.groups:
            reason = NOTHING
        elif any(cost is None for several in costs for cost in several):
            reason = "not known of all samples"
        elif not solved.any():
            reason = "no task is solved"
        else:
            # What was spent on tasks that are not solved counts above the line.
            spents = np.array([math.fsum(filter(None, several)) for several in costs])
            estimate = pooled_mean(part.ops @ spents, part.ops @ solved)
        yield Figure(part.scope, metric, estimate, tasks=int(solved.sum()),
                     samples=part.evaluated.samples, reason=reason)  # fmt: skip


def _tokens(sample: Sample) -> float | None:
    known = [n for n in (sample.tokens_in, sample.tokens_out) if n is not None]
    return float(sum(known)) if known else None


_SPENT: Mapping[str, Callable[[Sample], float | None]] = {
    "tokens_per_solved": _tokens,
    "usd_per_solved": lambda sample: sample.usd,
    "seconds_per_solved": lambda sample: sample.seconds,
}
