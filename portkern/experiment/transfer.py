"""Whether a loop gains on every target what it gains on one: the same author, tasks and budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from portkern.experiment import contrast, section
from portkern.experiment.baseline import ENDLESS, TEMPERATURE
from portkern.experiment.contrast import Contrast, ContrastMeasure, Scores
from portkern.experiment.job import FinishedJob, StudyQuestion
from portkern.experiment.measured import (
    correct,
    scores,
    solved,
    solved_by_turn,
    speedup,
    usual_speedup,
)
from portkern.experiment.paired import CATALOGUE, LOOP, WRITER
from portkern.experiment.section import Chart, Section, SectionAnswer, SectionTable, listed
from portkern.experiment.statistics import mean
from portkern.experiment.study import Study

if TYPE_CHECKING:
    from portkern.spec.json_types import JsonObject

SAMPLES, ONE, LOOPED = "samples", "one sample", "loop"
OFFLINE = (
    "No model wrote: samples are settings of the catalogue's kernel at random (the first as it "
    "ships), the loop turns its knobs from the best one on. What it gains is what tuning gains, "
    "which says nothing of a model's loop; all of its kernels are right, or nearly."
)
_HOW = (
    "Over the tasks that both have, in this place. One sample: the mean over the samples of a "
    "task; samples: the best of as many as the loop has attempts. Speedups, over the framework, as "
    "ratios of those that are correct and were timed here. p: the paired permutation test over "
    "tasks, corrected after Holm for all rows of this table."
)
_ACROSS = (
    "The gain over as many samples in one place less the gain in the first, over tasks that both "
    "places have; corrected for all rows of this table. That no difference is shown is not yet "
    "that there is none: see the intervals."
)


@dataclass(frozen=True)
class Gain:
    """The scores by task, in one place, of the loop and of what it is compared with."""

    measure: ContrastMeasure
    than: str
    loop: Scores
    other: Scores

    @property
    def by_task(self) -> Scores:
        """An operator each, so that places can be compared."""
        return {
            task[0] if isinstance(task, tuple) else task: self.loop[task] - self.other[task]
            for task in self.loop
            if task in self.other
        }

    def contrast(self, where: str) -> Contrast:
        return Contrast.of(self.measure, LOOPED, self.than, self.loop, self.other, where)


class TransferStudy(Study):
    title = "Does a loop gain on every target?"
    arms = (SAMPLES, LOOPED)
    compared = (SAMPLES, LOOPED)
    seeds = (0,)
    counts = "turns"
    asks_model = False
    varied = ("strategy", "preset", "proposer", "backend", "target")
    in_places = True

    def choices(self, question: StudyQuestion) -> Mapping[str, Sequence[str]]:
        """Samples differ by temperature; the loop sees the last kernel and what was measured."""
        author = WRITER if question.model else CATALOGUE
        warm = (f"models.coder.temperature={TEMPERATURE}",) if question.model else ()
        samples = ("strategy=best_of_n", f"strategy.n={ENDLESS}", "inflight=1", "memory=none")
        made = {SAMPLES: (*samples, author, *warm), LOOPED: (*LOOP, author, "memory=last", *warm)}
        return {arm: made[arm] for arm in question.arms}

    def findings(self, question: StudyQuestion, done: Sequence[FinishedJob]) -> SectionAnswer:
        places = list(dict.fromkeys(finished.job.place for finished in done))
        gains = {place: _gains(place, done) for place in places}
        within = contrast.corrected(
            [gain.contrast(place) for place in places for gain in gains[place]]
        )
        across = contrast.corrected(list(_across(gains)))
        loops = {place: _own(place, LOOPED, done) for place in places}
        lines = solved_by_turn(loops, question.count)
        chart = Chart("tasks that the loop has solved so far", "turn", lines, percent=True)
        charts = (chart,) if lines else ()
        shown = [Section("The places", charts=charts, table=_table(places, done))]
        if any(one.pairs for one in within):
            shown.append(
                Section("The loop's gain", _HOW, table=contrast.table(within, places=True))
            )
        if across:
            shown.append(
                Section("From place to place", _ACROSS, table=contrast.table(across, places=True))
            )
        return SectionAnswer(
            _lead(places, within, across),
            {
                "places": {place: _document(place, done) for place in places},
                "contrasts": [one.document() for one in within],
                "across": [one.document() for one in across],
                "author": question.model or "catalogue",
            },
            tuple(shown),
            (*([] if question.model else [OFFLINE]), *contrast.notes(within)),
        )


def _own(place: str, arm: str, done: Sequence[FinishedJob]) -> list[FinishedJob]:
    return [one for one in done if (one.job.place, one.job.arm) == (place, arm)]


def _gains(place: str, done: Sequence[FinishedJob]) -> list[Gain]:
    samples, loop = (_own(place, arm, done) for arm in (SAMPLES, LOOPED))
    wanted: Sequence[tuple[ContrastMeasure, str, Callable[[FinishedJob], float | None], Scores]] = (
        (_SOLVED, ONE, solved, scores(samples, correct)),
        (_SOLVED, SAMPLES, solved, scores(samples, solved)),
        (_SPEEDUP, ONE, speedup, scores(samples, usual_speedup)),
        (_SPEEDUP, SAMPLES, speedup, scores(samples, speedup)),
    )
    return [Gain(measure, than, scores(loop, of), other) for measure, than, of, other in wanted]


_SOLVED = ContrastMeasure("solved", "solved")
_SPEEDUP = ContrastMeasure("speedup", "speedup", ratio=True)


def _across(gains: Mapping[str, Sequence[Gain]]) -> list[Contrast]:
    """The contrasts of each place with the first, where the gain over as many samples is known
    in both."""
    (first, reference), *others = gains.items()
    return [
        made
        for place, own in others
        for mine, its in zip(own, reference, strict=True)
        if mine.than == SAMPLES
        and (
            made := Contrast.of(mine.measure, place, first, mine.by_task, its.by_task, place)
        ).pairs
    ]


def _lead(places: Sequence[str], within: Sequence[Contrast], across: Sequence[Contrast]) -> str:
    """The lead: what the loop does against as many samples, then whether that differs by place."""
    words: dict[str, list[str]] = {}
    for place in places:
        own = [one for one in within if one.where == place and one.than == SAMPLES]
        words.setdefault(_said(own), []).append(place)
    each = "; ".join(f"{said} on {listed(where)}" for said, where in words.items())
    lead = f"Of the loop against as many samples: {each}."
    if not across:
        return f"{lead} Places were not compared with each other."
    apart = [one for one in across if one.shown]
    if not apart:
        return f"{lead} Between places, {contrast.NO_DIFFERENCE}."
    told = [f"{one.where} ({one.measure.title})" for one in apart]
    return f"{lead} The gain differs from that on {apart[0].than} on {listed(told)}."


def _said(own: Sequence[Contrast]) -> str:
    known = [one for one in own if one.pairs]
    if not known:
        return "nothing was compared"
    shown = [one for one in known if one.shown]
    untimed = any(one.measure.ratio and not one.pairs for one in own)
    timing = f" (speedup {contrast.NOT_TIMED})" if untimed else ""
    if not shown:
        return f"{contrast.NO_DIFFERENCE}{timing}"
    told = [f"{one.measure.title} {one.measure.difference(one.difference)}" for one in shown]
    return f"a difference in {listed(told)}{timing}"


def _columns(place: str, done: Sequence[FinishedJob]) -> list[tuple[str, ContrastMeasure, Scores]]:
    samples, loop = (_own(place, arm, done) for arm in (SAMPLES, LOOPED))
    return [
        ("one sample correct", _SOLVED, scores(samples, correct)),
        ("samples: solved", _SOLVED, scores(samples, solved)),
        ("loop: solved", _SOLVED, scores(loop, solved)),
        ("one sample", _SPEEDUP, scores(samples, usual_speedup)),
        ("best sample", _SPEEDUP, scores(samples, speedup)),
        ("loop", _SPEEDUP, scores(loop, speedup)),
    ]


def _table(places: Sequence[str], done: Sequence[FinishedJob]) -> SectionTable:
    rows = []
    for place in places:
        columns = _columns(place, done)
        tasks = len({one.job.operator for one in done if one.job.place == place})
        told = [measure.told(mean(list(own.values()))) for _, measure, own in columns]
        rows.append((place, str(tasks), *told))
    head = ("place", "tasks", *(title for title, _, _ in _columns("", ())))
    return SectionTable(head, tuple(rows))


def _document(place: str, done: Sequence[FinishedJob]) -> JsonObject:
    return {
        f"{title}{' (log speedup)' if measure.ratio else ''}": section.document(
            mean(list(own.values()))
        )
        for title, measure, own in _columns(place, done)
    }
