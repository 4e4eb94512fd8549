"""Samples by model and task, and how what is known of each is known."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property

from portkern.agent.attempt import Status
from portkern.experiment.compare.intervals import task_share
from portkern.experiment.compare.result import AskedPlace, TaskResult, Venue
from portkern.experiment.compare.sample import Sample, by_language
from portkern.experiment.statistics import Estimate

_Keys = tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class SampleGroup:
    """The samples of one model on one task that were evaluated in one venue, by their index."""

    model: str
    op: str
    dtype: str
    suite: str
    place: AskedPlace
    venue: Venue
    samples: tuple[Sample, ...]
    unevaluated: int

    @property
    def n(self) -> int:
        return len(self.samples)

    @cached_property
    def no_code(self) -> int:
        return sum(sample.status is Status.NO_CODE for sample in self.samples)

    @cached_property
    def built(self) -> int:
        return sum(sample.built for sample in self.samples)

    @cached_property
    def correct(self) -> tuple[Sample, ...]:
        return tuple(sample for sample in self.samples if sample.correct)

    @cached_property
    def speedups(self) -> tuple[float, ...]:
        """The speedups of the samples that are correct and timed."""
        return tuple(s.speedup for s in self.correct if s.speedup is not None)

    @cached_property
    def efficiencies(self) -> tuple[float, ...]:
        return tuple(s.efficiency for s in self.correct if s.efficiency is not None)

    @cached_property
    def cheats(self) -> int:
        return sum(bool(sample.cheat) for sample in self.samples)

    @cached_property
    def cheats_sought(self) -> bool:
        return all(sample.cheats_sought for sample in self.samples)

    @cached_property
    def clocked(self) -> int:
        """Samples of which it is known how fast they are: what is correct and was not timed is
        missing, whether there was too much noise or no time, and is neither fast nor slow."""
        return self.n - len(self.correct) + len(self.speedups)

    @cached_property
    def rated(self) -> int:
        """The same of shares of the roofline."""
        return self.n - len(self.correct) + len(self.efficiencies)

    def faster(self, p: float) -> int:
        """Correct, and more than ``p`` times as fast as the baseline."""
        return sum(speedup > p for speedup in self.speedups) if p else len(self.correct)

    def first(self, n: int) -> SampleGroup:
        """The group's first samples, so that two models can be compared at equal budget."""
        return self if n >= self.n else replace(self, samples=self.samples[:n], unevaluated=0)

    def result(self) -> TaskResult:
        n, c = self.n, len(self.correct)
        return TaskResult(
            self.model,
            self.op,
            self.suite,
            self.dtype,
            self.place.backend,
            self.place.target,
            self.venue,
            samples=n,
            unevaluated=self.unevaluated,
            no_code=self.no_code,
            built=self.built,
            correct=c,
            timed=len(self.speedups),
            cheats=self.cheats,
            passed=Estimate(c / n, task_share(c, n, 1), n) if n else None,
            best_speedup=max(self.speedups, default=None),
            best_efficiency=max(self.efficiencies, default=None),
            best_us=min((s.us for s in self.correct if s.us is not None), default=None),
        )


def by_task(samples: Sequence[Sample]) -> list[SampleGroup]:
    """The groups of samples by task, in the order of the samples. Raises ValueError for a sample
    that is there twice, or whose speedup is not a ratio of times."""
    samples = by_language(samples)
    every: dict[tuple[str, ...], list[Sample]] = defaultdict(list)
    for sample in samples:
        every[sample.model, *sample.task].append(sample)
    known = _Venues(samples)
    groups = []
    for several in every.values():
        _check(several)
        done = [sample for sample in several if sample.evaluated]
        split: dict[Venue, list[Sample]] = defaultdict(list)
        for sample in sorted(done, key=lambda one: one.index):
            for venue in known.of(sample):
                split[venue].append(sample)
        if not split:
            split[known.of(several[0])[0]] = []
        first = several[0]
        groups += [
            SampleGroup(
                first.model,
                first.op,
                first.dtype,
                first.suite,
                AskedPlace(first.backend, first.target),
                venue,
                tuple(own),
                len(several) - len(done),
            )
            for venue, own in split.items()
        ]
    return groups


def by_model_and_suite(groups: Sequence[SampleGroup]) -> dict[tuple[str, str], list[SampleGroup]]:
    """The groups of each model: as a whole, where the suite is empty, and by suite where there are
    several."""
    several = len({group.suite for group in groups}) > 1
    found: dict[tuple[str, str], list[SampleGroup]] = defaultdict(list)
    for group in groups:
        found[group.model, ""].append(group)
        if several and group.suite:
            found[group.model, group.suite].append(group)
    return found


class _Venues:
    """A sample that ended before it ran would have ended so anywhere: it counts where the others of
    its task ran, else where the model's others of its place did, else everybody's."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        self._seen: Mapping[tuple[str, ...], set[Venue]] = defaultdict(set)
        for sample in samples:
            venue = _own(sample)
            if venue:
                for key in _levels(sample):
                    self._seen[key].add(venue)

    def of(self, sample: Sample) -> Sequence[Venue]:
        own = _own(sample)
        if own:
            return (own,)
        found: Set[Venue] = next(
            (self._seen[key] for key in _levels(sample) if key in self._seen), set()
        )
        return sorted(found) or ("",)


def _own(sample: Sample) -> Venue:
    return sample.evidence if sample.evidence in ("measured", "emulated") else ""


def _levels(sample: Sample) -> _Keys:
    place = ("place", sample.backend, sample.target)
    return ("task", sample.model, *sample.task), ("own", sample.model, *place), place


def _check(several: Iterable[Sample]) -> None:
    seen: set[int] = set()
    for sample in several:
        what = f"Sample {sample.index} of {sample.model} on {' '.join(sample.task)}"
        if sample.index in seen:
            raise ValueError(f"{what} is there twice, expected each index once")
        seen.add(sample.index)
        for name in ("speedup", "efficiency", "us"):
            value: float | None = getattr(sample, name)
            # Infinity and nan are not results of a clock either.
            if value is not None and not 0 < value < float("inf"):
                raise ValueError(
                    f"{what} has {name} {value}, expected a number above 0, or none where it was "
                    "not timed"
                )
