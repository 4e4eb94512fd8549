"""Studies that put arms side by side on the same tasks, at the same number of attempts."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from portkern.experiment import contrast, section
from portkern.experiment.contrast import Contrast, ContrastMeasure
from portkern.experiment.job import FinishedJob, StudyQuestion
from portkern.experiment.measured import MEASURES, evaluated, scores, solved_by_turn
from portkern.experiment.section import Chart, Section, SectionAnswer, SectionTable, counted, listed
from portkern.experiment.statistics import FEW, SIGNIFICANT, Estimate, mean
from portkern.experiment.study import Study

if TYPE_CHECKING:
    from portkern.spec.json_types import JsonObject

#: One loop for all arms: it goes on from the best kernel until the budget ends it. One slot at a
#: time, since a loop that knows less when it asks is another one.
LOOP = ("strategy=refine", "strategy.turns=null", "strategy.parent=best", "inflight=1")
WRITER, CATALOGUE = "proposer=direct", "proposer=catalogue"


class PairedStudy(Study):
    """``said`` are the arms in words, ``made`` what they are made of besides the loop, and
    ``against`` what is compared, where both are asked for. ``offline``: what a run without a model
    can and cannot show."""

    seeds = (0,)
    counts = "turns"
    asks_model = False
    varied: ClassVar[tuple[str, ...]] = ("strategy", "preset", "proposer")
    said: ClassVar[Mapping[str, str]]
    made: ClassVar[Mapping[str, Sequence[str]]]
    offline: ClassVar[str] = (
        "No model wrote: the catalogue's author turns knobs and reads no prompt, so all arms are "
        "the same search and their differences are noise. Such a run shows that the question is "
        "put and what the evaluation cannot tell apart, and nothing about models."
    )

    @abstractmethod
    def against(self, arms: Sequence[str]) -> Sequence[tuple[str, str]]:
        """Pairs of an arm and the one that it is compared with; the first answers the question."""

    def choices(self, question: StudyQuestion) -> Mapping[str, Sequence[str]]:
        author = WRITER if question.model else CATALOGUE
        return {arm: (*LOOP, author, *self.made[arm]) for arm in question.arms}

    def findings(self, question: StudyQuestion, done: Sequence[FinishedJob]) -> SectionAnswer:
        by_arm = {
            arm: own
            for arm in question.arms
            if (own := [finished for finished in done if finished.job.arm == arm])
        }
        contrasts = contrast.corrected(
            [
                Contrast.of(measure, arm, than, scores(by_arm[arm], of), scores(by_arm[than], of))
                for arm, than in self.against(tuple(by_arm))
                for measure, of in MEASURES.items()
            ]
        )
        compared = [Section("The differences", _HOW, table=contrast.table(contrasts))]
        return SectionAnswer(
            self.lead(contrasts),
            {
                "arms": {arm: _document(own) for arm, own in by_arm.items()},
                "contrasts": [one.document() for one in contrasts],
                "author": question.model or "catalogue",
            },
            (self._arms(by_arm, question.count), *(compared * bool(contrasts))),
            (
                *([] if question.model else [self.offline]),
                *contrast.notes(contrasts),
                *_notes(by_arm, question.count),
            ),
        )

    def lead(self, contrasts: Sequence[Contrast]) -> str:
        """The answer of each comparison, in words."""
        pairs = dict.fromkeys((one.arm, one.than) for one in contrasts)
        if not pairs:
            return "One arm alone answers nothing; name two or more with arms=."
        return " ".join(
            self._answer(
                arm, than, [one for one in contrasts if (one.arm, one.than) == (arm, than)]
            )
            for arm, than in pairs
        )

    def _answer(self, arm: str, than: str, own: Sequence[Contrast]) -> str:
        what = f"{self.said[arm]} against {self.said[than]}"
        what = what[:1].upper() + what[1:]
        shown = [
            f"{one.measure.title} {one.measure.difference(one.difference)}"
            for one in own
            if one.shown
        ]
        untimed = [one for one in own if one.measure.ratio and not one.pairs]
        timing = f"; speedup {contrast.NOT_TIMED}" if untimed else ""
        if not shown:
            return f"{what}: {contrast.NO_DIFFERENCE}{timing}."
        return f"{what}: a difference is shown in {listed(shown)}{timing}."

    def _arms(self, by_arm: Mapping[str, Sequence[FinishedJob]], count: int) -> Section:
        chart = Chart("tasks solved so far", "turn", solved_by_turn(by_arm, count), percent=True)
        return Section("The arms", _ARMS, (chart,), table=self._table(by_arm))

    def _table(self, by_arm: Mapping[str, Sequence[FinishedJob]]) -> SectionTable:
        head = ("arm", "what it is", "tasks", "attempts", *(one.title for one in MEASURES))
        rows = [
            (
                arm,
                self.said[arm],
                str(len({finished.job.op for finished in own})),
                str(sum(len(evaluated(finished)) for finished in own)),
                *(measure.told(estimate) for measure, estimate in _estimates(own).items()),
            )
            for arm, own in by_arm.items()
        ]
        return SectionTable(head, tuple(rows), names=2)


_ARMS = (
    "Solved: tasks of which any attempt was correct. Speedup: the best kernel's over the "
    "framework, as the race at the job's end measured it, in the geometric mean over the tasks "
    "that were solved and timed. Intervals are the bootstrap's over tasks."
)
_HOW = (
    "Over the tasks that both arms have, seeds averaged; shares in points, speedups as a ratio. p: "
    "the paired permutation test over tasks (signs of differences flipped), two-sided; corrected "
    f"after Holm for all rows of this table. Shown means below {SIGNIFICANT:g} then."
)


def _estimates(own: Sequence[FinishedJob]) -> dict[ContrastMeasure, Estimate | None]:
    return {measure: mean(list(scores(own, of).values())) for measure, of in MEASURES.items()}


def _document(own: Sequence[FinishedJob]) -> JsonObject:
    """Speedups are logarithms there, as they were averaged."""
    document: JsonObject = {
        ("log_speedup" if measure.ratio else measure.name): section.document(estimate)
        for measure, estimate in _estimates(own).items()
    }
    document |= {"jobs": len(own), "attempts": sum(len(evaluated(finished)) for finished in own)}
    return document


def _notes(by_arm: Mapping[str, Sequence[FinishedJob]], count: int) -> list[str]:
    notes = []
    for arm, own in by_arm.items():
        short = [finished for finished in own if len(evaluated(finished)) < count]
        if short:
            notes.append(
                f"{arm}: {counted(len(short), 'job')} evaluated fewer than the {count} attempts of "
                "its budget (another limit ended it, or there was no more to try)."
            )
    tasks = len({finished.job.operator for own in by_arm.values() for finished in own})
    if 1 < tasks < FEW:
        notes.append(f"{counted(tasks, 'operator')}: intervals over so few are rough.")
    return notes
