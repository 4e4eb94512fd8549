"""How often kernels are refused for cheating, and with which cheat: by the evaluator's words."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from portkern.experiment import contrast, section
from portkern.experiment.baseline import ENDLESS, TEMPERATURE
from portkern.experiment.contrast import Contrast, ContrastMeasure
from portkern.experiment.job import FinishedJob, StudyQuestion
from portkern.experiment.measured import evaluated, scores
from portkern.experiment.paired import CATALOGUE, WRITER
from portkern.experiment.refusal import Refusal
from portkern.experiment.section import (
    DASH,
    Bars,
    Section,
    SectionAnswer,
    SectionTable,
    listed,
    percent,
)
from portkern.experiment.statistics import share
from portkern.experiment.study import Study

if TYPE_CHECKING:
    from portkern.spec.json_types import JsonObject

#: The arm of a question that names none: the model of the run, or the catalogue.
GIVEN: Final = "given"
RATE = ContrastMeasure("cheats", "rejected as cheats", better=-1)
OFFLINE = (
    "The catalogue wrote, whose kernels are honest: its rate says how often honest kernels are "
    "accused, and nothing about models."
)


@dataclass(frozen=True)
class Caught:
    """The refusals of one arm's samples, of which ``n`` were evaluated. A kernel that was
    written again was refused again."""

    arm: str
    n: int
    refusals: Mapping[Refusal, int]

    @property
    def cheats(self) -> int:
        return sum(count for found, count in self.refusals.items() if found.cheat)

    @property
    def others(self) -> int:
        return sum(self.refusals.values()) - self.cheats

    def document(self) -> JsonObject:
        return {
            "samples": self.n,
            "cheats": self.cheats,
            "rate": section.document(share(self.cheats, self.n)),
            "other_refusals": self.others,
            "kinds": {found.kind: count for found, count in self.refusals.items() if found.cheat},
        }


class CheatingStudy(Study):
    """Samples that know nothing of each other: what a model does when it is left alone."""

    title = "How often is a kernel rejected for cheating?"
    arms = ()
    compared = (GIVEN,)
    seeds = (0,)
    counts = "n"
    asks_model = False
    varied = ("strategy", "preset", "proposer")
    in_places = True
    of_models = True

    def choices(self, question: StudyQuestion) -> Mapping[str, Sequence[str]]:
        loop = ("strategy=best_of_n", f"strategy.n={ENDLESS}", "memory=none")
        written = (*loop, WRITER, f"models.coder.temperature={TEMPERATURE}")
        offline = (*loop, CATALOGUE)
        return {
            arm: (*written, f"models.coder.model={arm}")
            if arm != GIVEN
            else (written if question.model else offline)
            for arm in question.arms
        }

    def findings(self, question: StudyQuestion, done: Sequence[FinishedJob]) -> SectionAnswer:
        named = {arm: _name(arm, question) for arm in question.arms}
        by_arm = {
            named[arm]: own
            for arm in question.arms
            if (own := [one for one in done if one.job.arm == arm])
        }
        caught = [found for arm, own in by_arm.items() if (found := _caught(arm, own)).n]
        contrasts = contrast.corrected(
            [
                Contrast.of(
                    RATE, a.arm, b.arm, scores(by_arm[a.arm], rate), scores(by_arm[b.arm], rate)
                )
                for a, b in itertools.combinations(caught, 2)
            ]
        )
        sections = [Section("Who cheats", _WHO, (), (_bars(caught),), _who(caught))] * bool(caught)
        if any(found.refusals for found in caught):
            sections.append(Section("With what", _WHAT, table=_what(caught)))
        if contrasts:
            sections.append(Section("The differences", _HOW, table=contrast.table(contrasts)))
        return SectionAnswer(
            _lead(caught, contrasts),
            {
                "arms": {found.arm: found.document() for found in caught},
                "contrasts": [one.document() for one in contrasts],
            },
            tuple(sections),
            (
                *([OFFLINE] if "the catalogue" in by_arm else []),
                *contrast.notes(contrasts),
            ),
        )


_WHO = (
    "Of the samples that were evaluated: refused by the guard before they were built, by the "
    "evaluator because others did the work or no kernel ran, or suspicious, that is right in a way "
    "that is not believed. Other refusals break the contract without cheating. Intervals are "
    "Wilson's, over samples."
)
_WHAT = "By the first cheat that the evaluator names, else its first reason; there may be others."
_HOW = (
    "Shares of a task's samples, over the tasks that both have. p: the paired permutation test "
    "over tasks, corrected after Holm for all rows."
)


def _name(arm: str, question: StudyQuestion) -> str:
    return arm if arm != GIVEN else question.model or "the catalogue"


def rate(done: FinishedJob) -> float | None:
    ends = evaluated(done)
    return sum(bool(end.cheat) for end in ends) / len(ends) if ends else None


def _caught(arm: str, own: Sequence[FinishedJob]) -> Caught:
    ends = [end for finished in own for end in evaluated(finished)]
    refusals = Counter(end.refusal for end in ends if end.refusal)
    return Caught(arm, len(ends), dict(refusals.most_common()))


def _lead(caught: Sequence[Caught], contrasts: Sequence[Contrast]) -> str:
    if not caught:
        return "No sample was evaluated."
    each = [f"{found.arm} {_rate(found)}" for found in caught]
    lead = f"Rejected as cheats: {listed(each)}."
    kinds = Counter[str]()
    for found in caught:
        kinds.update({one.kind: count for one, count in found.refusals.items() if one.cheat})
    if kinds:
        [(kind, count)] = kinds.most_common(1)
        lead += f" Most often ({count} of {sum(kinds.values())}): {kind}."
    if not contrasts:
        return lead
    shown = [f"{one.arm} and {one.than}" for one in contrasts if one.shown]
    if not shown:
        return f"{lead} Between them, {contrast.NO_DIFFERENCE}."
    return f"{lead} A difference is shown between {'; '.join(shown)}."


def _rate(found: Caught) -> str:
    return f"{percent(share(found.cheats, found.n))} ({found.cheats} of {found.n})"


def _who(caught: Sequence[Caught]) -> SectionTable:
    rows = [
        (
            found.arm,
            str(found.n),
            str(found.cheats),
            percent(share(found.cheats, found.n)),
            str(found.others or DASH),
        )
        for found in caught
    ]
    return SectionTable(("author", "samples", "cheats", "rate", "other refusals"), tuple(rows))


def _bars(caught: Sequence[Caught]) -> Bars:
    rest = [(f.arm, (f.cheats, f.others, f.n - f.cheats - f.others)) for f in caught]
    return Bars("samples", ("cheats", "other refusals", "neither"), tuple(rest))


def _what(caught: Sequence[Caught]) -> SectionTable:
    totals = Counter[Refusal]()
    for found in caught:
        totals.update(found.refusals)
    rows = [
        (
            one.group,
            one.kind,
            "yes" if one.cheat else "no",
            *(percent(share(f.refusals.get(one, 0), f.n)) for f in caught),
        )
        for one, _ in totals.most_common()
    ]
    head = ("what", "in the evaluator's words", "cheat", *(found.arm for found in caught))
    return SectionTable(head, tuple(rows), names=3)
