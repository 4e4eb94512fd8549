"""Performance portability after Pennycook, Sewall and Lee, over the places that were measured.

PP is the harmonic mean of a kernel's efficiencies over all places, and 0 as soon as one has no
correct kernel. The *application* efficiency is the best time that is known for the op on that
hardware over the model's; the *architectural* one is the share of the roofline.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from portkern.experiment.compare.grouped import SampleGroup, by_model_and_suite
from portkern.experiment.compare.intervals import mean_over_ops, share_over_ops
from portkern.experiment.compare.result import (
    AskedPlace,
    CascadeStep,
    Figure,
    Kind,
    Portability,
    SampleScope,
)
from portkern.experiment.compare.sample import Sample
from portkern.experiment.section import counted
from portkern.experiment.statistics import Estimate

KINDS: tuple[Kind, ...] = ("application", "architectural")
_WHAT: Mapping[Kind, str] = {"application": "time", "architectural": "share of the roofline"}
#: What times are compared of: one op in one dtype on one device.
_Work = tuple[str, str, str, str]
Best = Mapping[_Work, float]


def best_times(groups: Sequence[SampleGroup]) -> Best:
    """The best times in microseconds, among everybody's kernels in all backends of a target."""
    best: dict[_Work, float] = {}
    for group in groups:
        for sample in _timed(group):
            assert sample.us is not None
            best[_work(sample)] = min(sample.us, best.get(_work(sample), float("inf")))
    return best


def digest(best: Best) -> str:
    lines = "\n".join(f"{work} {us!r}" for work, us in sorted(best.items()))
    return hashlib.sha256(lines.encode()).hexdigest()[:12] if best else ""


def portabilities(
    groups: Sequence[SampleGroup], places: Sequence[AskedPlace], best: Best
) -> Iterator[Portability]:
    """The portability of each model, op and kind; nothing where nothing was measured."""
    measured = [group for group in groups if group.venue == "measured" and group.n]
    seen = {group.place for group in measured}
    asked = [place for place in places if place in seen]
    by_op: dict[tuple[str, str, str], dict[AskedPlace, SampleGroup]] = defaultdict(dict)
    for group in measured:
        by_op[group.model, group.op, group.dtype][group.place] = group
    for (model, op, dtype), found in by_op.items():
        for kind in KINDS:
            yield _Cells(found, asked, best).portability(model, op, dtype, kind)


def means(every: Sequence[Portability], groups: Sequence[SampleGroup]) -> Iterator[Figure]:
    """The means over ops, for each model as a whole and by suite."""
    for (model, suite), own in by_model_and_suite(groups).items():
        ops = {(group.op, group.dtype) for group in own}
        for kind in KINDS:
            kept = [one for one in _of(every, model, kind) if (one.op, one.dtype) in ops]
            yield _mean(SampleScope(model, "measured", suite=suite), kind, kept)


def cascades(every: Sequence[Portability]) -> Iterator[Portability]:
    """The cascade of each model and kind, over the model's ops."""
    for model in dict.fromkeys(one.model for one in every):
        for kind in KINDS:
            own = _of(every, model, kind)
            whole = _cascade(model, kind, own)
            if whole.steps:
                yield whole


def _of(every: Sequence[Portability], model: str, kind: Kind) -> list[Portability]:
    return [one for one in every if one.model == model and one.kind == kind]


@dataclass(frozen=True)
class _Cells:
    """One model's kernels for one op, by place."""

    found: Mapping[AskedPlace, SampleGroup]
    places: Sequence[AskedPlace]
    best: Best

    def portability(self, model: str, op: str, dtype: str, kind: Kind) -> Portability:
        lacking = [place for place in self.places if place not in self.found]
        if lacking:
            reason = f"it was not sampled for {lacking[0]}"
            return Portability(model, op, dtype, kind, None, reason=reason)
        blocked = [place for place in self.places if not self.found[place].correct]
        known = {place: self._efficiency(self.found[place], kind) for place in self.places}
        unknown = tuple(place for place, value in known.items() if value is None)
        steps = cascade({place: value for place, value in known.items() if value is not None})
        if blocked:
            reason = f"no correct kernel for {blocked[0]}"
            return Portability(model, op, dtype, kind, 0.0, steps, blocked[0], reason, unknown)
        if unknown:
            reason = f"no {_WHAT[kind]} is known for {unknown[0]}"
            return Portability(model, op, dtype, kind, None, steps, None, reason, unknown)
        return Portability(model, op, dtype, kind, steps[-1].portability, steps)

    def _efficiency(self, group: SampleGroup, kind: Kind) -> float | None:
        """The efficiency of the group's best sample; 0 where none is correct, None where it is
        not known."""
        if not group.correct:
            return 0.0
        if kind == "architectural":
            return max(group.efficiencies, default=None)
        return max((self._applied(sample) for sample in _timed(group)), default=None)

    def _applied(self, sample: Sample) -> float:
        assert sample.us is not None
        return self.best[_work(sample)] / sample.us


def cascade(efficiencies: Mapping[AskedPlace, float]) -> tuple[CascadeStep, ...]:
    """Places by falling efficiency, each with the portability over those so far."""
    ordered = sorted(efficiencies.items(), key=lambda item: -item[1])
    kept = [value for _, value in ordered]
    return tuple(
        CascadeStep(place, value, harmonic(kept[:count]))
        for count, (place, value) in enumerate(ordered, 1)
    )


def harmonic(values: Sequence[float]) -> float:
    """The harmonic mean, which is 0 as soon as one of them is."""
    return len(values) / sum(1 / value for value in values) if all(values) else 0.0


def _mean(scope: SampleScope, kind: Kind, own: Sequence[Portability]) -> Figure:
    metric = f"pp_{kind}"
    known = [one for one in own if one.value is not None]
    why = _no_mean(own, known)
    if why:
        return Figure(scope, metric, None, reason=why)
    blocked = Counter(str(one.blocked) for one in known if one.blocked)
    said = []
    if blocked:
        [(place, _)] = blocked.most_common(1)
        zeros = f"0 in {blocked.total()} of {counted(len(known), 'op')}"
        said.append(f"{zeros}, most often for want of a correct kernel for {place}")
    if len(known) < len(own):
        said.append(f"not known of {counted(len(own) - len(known), 'op')}: {_first_unknown(own)}")
    return Figure(scope, metric, _over_ops(known), tasks=len(known), reason="; ".join(said))


def _no_mean(own: Sequence[Portability], known: Sequence[Portability]) -> str:
    """Why there is none over ops, empty where there is one."""
    if not known:
        return own[0].reason if own else "nothing was measured"
    if len(known) < len(own) and not any(one.value for one in known):
        # Those that are not known are right everywhere: the zeros alone would be no mean.
        what = counted(len(own) - len(known), "op")
        return f"not known of {what}: {_first_unknown(own)}"
    return ""


def _over_ops(known: Sequence[Portability]) -> Estimate | None:
    values = [(one.op, one.value or 0.0) for one in known]
    if max(value for _, value in values) > 1:  # of a roofline that a cache lifts it above
        return mean_over_ops(values)
    return share_over_ops(values)


def _first_unknown(own: Sequence[Portability]) -> str:
    return next(one.reason for one in own if one.value is None)


def _cascade(model: str, kind: Kind, own: Sequence[Portability]) -> Portability:
    """The cascade over the same ops as :func:`_mean`, so that the last step is its value. Where
    that is not known, the places that are known for every op."""
    known = [one for one in own if one.value is not None]
    why = _no_mean(own, known)
    unknown = tuple(dict.fromkeys(place for one in own for place in one.unknown)) if why else ()
    ops = [
        {step.place: step.efficiency for step in one.steps if step.place not in unknown}
        for one in (own if why else known)
    ]
    steps = tuple(_mean_steps([op for op in ops if op]))
    blocked = next((step.place for step in steps if not step.efficiency), None)
    value = None if why or not steps else steps[-1].portability
    if why and unknown:
        why = f"no {_WHAT[kind]} is known for {unknown[0]} in some ops"
    reason = f"no correct kernel for {blocked}" if blocked else why
    return Portability(model, "", "", kind, value, steps, blocked, reason, unknown)


def _mean_steps(ops: Sequence[Mapping[AskedPlace, float]]) -> Iterator[CascadeStep]:
    """Places by falling mean efficiency, each with the mean over ops of the portability over those
    so far."""
    found: dict[AskedPlace, list[float]] = defaultdict(list)
    for op in ops:
        for place, value in op.items():
            found[place].append(value)
    means = {place: sum(values) / len(values) for place, values in found.items()}
    order = sorted(means, key=lambda place: -means[place])
    for count, place in enumerate(order, 1):
        over = [[op[one] for one in order[:count] if one in op] for op in ops]
        values = [harmonic(several) for several in over if several]
        yield CascadeStep(place, means[place], sum(values) / len(values))


def _timed(group: SampleGroup) -> list[Sample]:
    measured = group.correct if group.venue == "measured" else ()
    return [sample for sample in measured if sample.us is not None]


def _work(sample: Sample) -> _Work:
    return sample.op, sample.dtype, sample.target, sample.device
