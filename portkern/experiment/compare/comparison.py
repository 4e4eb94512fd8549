"""Samples of models, compared: everything that follows from ``samples.jsonl``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from portkern.experiment.compare import obstacles
from portkern.experiment.compare.divergence import divergences
from portkern.experiment.compare.figures import figures
from portkern.experiment.compare.grouped import SampleGroup, by_task
from portkern.experiment.compare.intervals import share_over_ops
from portkern.experiment.compare.paired import differences
from portkern.experiment.compare.pennycook import (
    best_times,
    cascades,
    digest,
    means,
    portabilities,
)
from portkern.experiment.compare.portable import portable_passes
from portkern.experiment.compare.result import (
    METRICS,
    AskedPlace,
    CascadeStep,
    Divergence,
    Figure,
    Metric,
    ModelComparison,
    ModelDifference,
    Portability,
    SampleScope,
    TaskResult,
    TranslationRate,
    Venue,
)
from portkern.experiment.compare.sample import Sample
from portkern.experiment.compare.translation import translations
from portkern.experiment.section import counted, percent
from portkern.experiment.statistics import FEW, SIGNIFICANT, fewest_ops
from portkern.spec import target

__all__ = [
    "METRICS",
    "AskedPlace",
    "CascadeStep",
    "Divergence",
    "Figure",
    "Metric",
    "ModelComparison",
    "ModelDifference",
    "Portability",
    "SampleScope",
    "TaskResult",
    "TranslationRate",
    "Venue",
    "compare",
]


def compare(
    samples: Sequence[Sample],
    *,
    places: Sequence[AskedPlace] = (),
    ks: Sequence[int] = (),
    sources: Mapping[str, str] | None = None,
    units: Mapping[str, int] | None = None,
) -> ModelComparison:
    """``places`` are all that kernels were asked for, those of the samples unless given. ``ks``
    are those that numbers are given for; without, 1, 5, 10, … as far as there are samples.
    ``sources`` are kernels by their samples' digest, for the divergence of code; ``units``
    processing units by target, for ParEval's efficiency: multiprocessors unless given.

    Raises ValueError for a k that no task has so many samples for, for a sample that is there
    twice, and for times that are none.
    """
    groups = by_task(samples)
    asked = tuple(dict.fromkeys([*places, *(group.place for group in groups)]))
    wanted = _ks(ks, groups)
    best = best_times(groups)
    apart = differences(groups)
    portability = tuple(portabilities(groups, asked, best))
    return ModelComparison(
        models=tuple(dict.fromkeys(group.model for group in groups)),
        places=asked,
        suites=tuple(sorted({group.suite for group in groups})),
        ops=len({(group.op, group.dtype) for group in groups}),
        ks=wanted,
        samples=len(samples),
        unevaluated=sum(not sample.evaluated for sample in samples),
        figures=(
            *figures(groups, wanted, _multiprocessors(asked) if units is None else units),
            *portable_passes(groups, asked, wanted),
            *means(portability, groups),
        ),
        tasks=tuple(group.result() for group in groups),
        portability=portability,
        cascades=tuple(cascades(portability)),
        translations=tuple(translations(groups)),
        divergences=tuple(divergences(groups, sources or {})),
        differences=apart,
        best_known=digest(best),
        notes=(
            *obstacles.notes(samples),
            *_notes(groups, asked),
            *_at_best(apart),
            *_own_headers(samples),
        ),
    )


def _common(groups: Sequence[SampleGroup]) -> Iterator[str]:
    """Notes on each model's share of the tasks that all models have, where they were asked for
    different ones."""
    tasks: dict[str, dict[tuple[object, ...], SampleGroup]] = {}
    for group in groups:
        if group.n:
            key = group.op, group.dtype, group.place
            tasks.setdefault(group.model, {})[key] = group
    every = set().union(*tasks.values())
    common = every.intersection(*tasks.values()) if tasks else set()
    if len(tasks) < 2 or len(common) == len(every):
        return
    if not common:
        yield f"No task is one of all {len(tasks)} models: their numbers are of different tasks."
        return
    shares = {
        model: share_over_ops(
            (group.op, len(group.correct) / group.n) for key, group in own.items() if key in common
        )
        for model, own in tasks.items()
    }
    told = [f"{model} {percent(estimate)}" for model, estimate in shares.items()]
    yield (
        f"Models have different tasks. On the {counted(len(common), 'task')} of {len(every)} that "
        f"all have, pass@1 is: {', '.join(told)}."
    )


def _at_best(apart: Sequence[ModelDifference]) -> Iterator[str]:
    """A note on what so many operators and tests can show at best, whatever the samples say."""
    known = [one for one in apart if one.estimate and one.p_value is not None]
    if not known:
        return
    best = min(known, key=lambda one: one.least_p)
    assert best.estimate is not None
    said = (
        f"Over {counted(best.estimate.n, 'operator')} and with {counted(best.tests, 'test')} the "
        f"least p that there can be is {best.least_p:.2g}"
    )
    if best.least_p < SIGNIFICANT:
        yield f"{said}; a difference is shown below {SIGNIFICANT:g}."
        return
    enough = fewest_ops(best.tests)
    more = (
        f"{enough} operators or more can show one"
        if enough
        else "compare fewer models at a time: no number of operators is enough for so many tests"
    )
    yield f"{said}: no difference can be shown, however large; {more}."


def _own_headers(samples: Sequence[Sample]) -> Iterator[str]:
    """Notes on correct samples that leave part of the work to portkern's own headers."""
    taken = [sample for sample in samples if sample.correct and sample.headers]
    if taken:
        names = sorted({name for sample in taken for name in sample.headers})
        yield (
            f"{counted(len(taken), 'correct sample')} of {sum(s.correct for s in samples)} leave "
            f"work to portkern's own headers: {', '.join(names)}."
        )


def _multiprocessors(places: Sequence[AskedPlace]) -> dict[str, int]:
    """The number of multiprocessors of each target that is known and states it; a public result
    set may have others."""
    known = set(target.names())
    counts = {
        place.target: target.load(place.target).multiprocessors
        for place in places
        if place.target in known
    }
    return {name: count for name, count in counts.items() if count}


def _ks(asked: Sequence[int], groups: Sequence[SampleGroup]) -> tuple[int, ...]:
    counts = [group.n for group in groups if group.n]
    most = max(counts, default=0)
    for k in asked:
        if not 1 <= k <= most:
            raise ValueError(
                f"Got k={k}, and no task has more than {counted(most, 'sample')}; expected a k "
                "from 1 to that, or more samples"
            )
    usual = [10**power * digit for power in range(len(str(most))) for digit in (1, 5)]
    # Where the sweep ended early, the least is the last k that all tasks have.
    ends = [min(counts), most] if counts else []
    return tuple(sorted({*(asked or (k for k in (*usual, *ends) if k <= most))}))


def _notes(groups: Sequence[SampleGroup], places: Sequence[AskedPlace]) -> Iterator[str]:
    unevaluated = {(group.model, group.op, group.dtype, group.place): group.unevaluated
                   for group in groups}  # fmt: skip
    left = sum(unevaluated.values())
    if left:
        yield (
            f"{counted(left, 'sample')} had no verdict (no model answered, or there was nothing to "
            "run it on) and count for nothing."
        )
    counts = {group.n for group in groups if group.n}
    if len(counts) > 1:
        yield (
            f"Tasks have from {min(counts)} to {max(counts)} samples; tables are of the largest k "
            "that all models have, differences over the first samples that both have."
        )
    yield from _common(groups)
    ops = {group.op for group in groups}
    if 1 < len(ops) < FEW:
        yield f"{len(ops)} operators: intervals over so few are rough."
    measured = {group.place for group in groups if group.venue == "measured" and group.n}
    if measured and len(measured) < len(places):
        yield (
            f"Speedups, efficiencies and PP are over the {len(measured)} of {len(places)} places "
            "that were measured on hardware."
        )
    above = max((value for group in groups for value in group.efficiencies), default=0.0)
    if above > 1:
        yield (
            f"The largest share of a roofline is {above:.2f}: data that stays in a cache is read "
            "faster than memory."
        )
