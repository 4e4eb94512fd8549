"""Right in all places at once."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence

from portkern.experiment.compare.grouped import SampleGroup, by_model_and_suite
from portkern.experiment.compare.intervals import share_over_ops, task_share
from portkern.experiment.compare.result import AskedPlace, Figure, SampleScope, Venue
from portkern.experiment.compare.sample import Sample
from portkern.experiment.section import counted
from portkern.experiment.statistics import Estimate, pass_at_k

METRIC = "portable_pass"
#: A problem: an op in a dtype, which is asked for in several places.
_Problem = tuple[str, str]


def portable_passes(
    groups: Sequence[SampleGroup], places: Sequence[AskedPlace], ks: Sequence[int]
) -> Iterator[Figure]:
    """The pass rates of each model over all places, and over those of each venue where there are
    several; as a whole and by suite."""
    venues: dict[Venue, list[AskedPlace]] = {"any": list(places)}
    for venue in ("measured", "emulated"):
        in_venue = {group.place for group in groups if group.venue == venue and group.n}
        venues[venue] = [place for place in places if place in in_venue]
    for (model, suite), own in by_model_and_suite(groups).items():
        for venue, asked in venues.items():
            if len(asked) > 1:
                kept = [group for group in own if venue in ("any", group.venue)]
                yield from _of_model(SampleScope(model, venue, suite=suite), kept, asked, ks)


def _of_model(
    scope: SampleScope,
    groups: Sequence[SampleGroup],
    places: Sequence[AskedPlace],
    ks: Sequence[int],
) -> Iterator[Figure]:
    samples: dict[_Problem, dict[AskedPlace, dict[int, Sample]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for group in groups:
        own = samples[group.op, group.dtype][group.place]
        own.update({sample.index: sample for sample in group.samples})
    whole = {
        problem: found for problem, found in samples.items() if all(found.get(p) for p in places)
    }
    joint = one_serves_all(whole.values())
    how = "one sample is judged in all places" if joint else "places are sampled by themselves"
    left = len(samples) - len(whole)
    said = f"{how}; {counted(left, 'op')} without samples everywhere left out" if left else how
    for k in ks:
        counts = {
            problem: _joint(found) if joint else _by_itself(found)
            for problem, found in whole.items()
        }
        few = sum(min(n for n, _ in several) < k for several in counts.values())
        reason = ""
        if not counts:
            reason = "no op was sampled in all places"
        elif few:
            reason = f"{few} of {counted(len(counts), 'op')} have fewer than {k} samples"
        yield Figure(
            scope,
            METRIC,
            None if reason else _estimate(counts, k),
            k,
            tasks=len(counts),
            samples=sum(n for several in counts.values() for n, _ in several),
            reason=reason or said,
        )


def one_serves_all(problems: Collection[dict[AskedPlace, dict[int, Sample]]]) -> bool:
    """Whether samples of one index have one source, which was judged in each place: then it is
    known which are right in all of them."""
    seen: dict[tuple[int, int], set[str]] = defaultdict(set)
    for number, found in enumerate(problems):
        for own in found.values():
            for index, sample in own.items():
                seen[number, index].add(sample.digest)
    known = [digests for digests in seen.values() if digests != {""}]
    return bool(known) and all(len(digests) == 1 for digests in seen.values())


def _joint(found: dict[AskedPlace, dict[int, Sample]]) -> list[tuple[int, int]]:
    """How many were judged everywhere, and how many are right everywhere."""
    everywhere = set.intersection(*(set(own) for own in found.values()))
    right = sum(all(own[index].correct for own in found.values()) for index in everywhere)
    return [(len(everywhere), right)]


def _by_itself(found: dict[AskedPlace, dict[int, Sample]]) -> list[tuple[int, int]]:
    """The numbers of samples and of correct ones in each place; k samples of each solve all with
    the product of the chances."""
    return [(len(own), sum(one.correct for one in own.values())) for own in found.values()]


def _estimate(counts: dict[_Problem, list[tuple[int, int]]], k: int) -> Estimate:
    chances = {
        problem: math.prod(pass_at_k(n, c, k) for n, c in several)
        for problem, several in counts.items()
    }
    if len(counts) == 1:
        [several], [value] = counts.values(), chances.values()
        ends = task_share(several[0][1], several[0][0], k) if len(several) == 1 else None
        return Estimate(value, ends)
    return share_over_ops((op, chance) for (op, _), chance in chances.items())
