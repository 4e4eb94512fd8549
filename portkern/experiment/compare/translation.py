"""How often a kernel of another backend, shown as a donor, became a correct one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from portkern.experiment.compare.grouped import SampleGroup
from portkern.experiment.compare.intervals import share_over_ops, task_share
from portkern.experiment.compare.result import TranslationRate, Venue
from portkern.experiment.statistics import Estimate

_Way = tuple[str, str, str, Venue]


def translations(groups: Sequence[SampleGroup]) -> Iterator[TranslationRate]:
    """The pass@1 of each model, donor, backend and venue, over tasks."""
    tasks: dict[_Way, list[tuple[str, int, int]]] = defaultdict(list)
    for group in groups:
        for donor in dict.fromkeys(sample.donor for sample in group.samples if sample.donor):
            shown = [sample for sample in group.samples if sample.donor == donor]
            right = sum(sample.correct for sample in shown)
            way = group.model, donor, group.place.backend, group.venue
            tasks[way].append((group.op, right, len(shown)))
    for way, found in tasks.items():
        samples = sum(n for _, _, n in found)
        yield TranslationRate(*way, _estimate(found), tasks=len(found), samples=samples)


def _estimate(found: Sequence[tuple[str, int, int]]) -> Estimate:
    if len(found) == 1:
        [(_, right, n)] = found
        return Estimate(right / n, task_share(right, n, 1))
    return share_over_ops((op, right / n) for op, right, n in found)
