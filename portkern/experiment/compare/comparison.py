"""Samples of models, compared: everything that follows from ``samples.jsonl``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from portkern.experiment.compare.result import (
    METRICS,
    Comparison,
    Difference,
    Divergence,
    Figure,
    Metric,
    Place,
    Portability,
    Scope,
    Step,
    TaskResult,
    Translation,
    Venue,
)
from portkern.experiment.compare.sample import Sample

__all__ = [
    "METRICS",
    "Comparison",
    "Difference",
    "Divergence",
    "Figure",
    "Metric",
    "Place",
    "Portability",
    "Scope",
    "Step",
    "TaskResult",
    "Translation",
    "Venue",
    "compare",
]


def compare(
    samples: Sequence[Sample],
    *,
    places: Sequence[Place] = (),
    ks: Sequence[int] = (),
    sources: Mapping[str, str] | None = None,
    units: Mapping[str, int] | None = None,
) -> Comparison:
    """``places`` are all that kernels were asked for, those of the samples unless given. ``ks``
    are those that numbers are given for; without, 1, 5, 10, … as far as there are samples.
    ``sources`` are kernels by their samples' digest, for the divergence of code; ``units``
    processing units by target, for ParEval's efficiency.

    Raises ValueError for a k that no task has so many samples for.
    """
    seen = dict.fromkeys(Place(sample.backend, sample.target) for sample in samples)
    return Comparison(
        models=tuple(dict.fromkeys(sample.model for sample in samples)),
        places=tuple(dict.fromkeys([*places, *seen])),
        suites=tuple(dict.fromkeys(sample.suite for sample in samples)),
        ops=len({(sample.op, sample.dtype) for sample in samples}),
        ks=tuple(ks) or (1,),
        samples=len(samples),
        unevaluated=sum(not sample.evaluated for sample in samples),
    )
