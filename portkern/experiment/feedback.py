"""Whether feedback mends errors: the same loop of turns with and without it.

Turns of one job depend on each other, so jobs (an operator and a seed) are the units of intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from portkern.agent.attempt import Status
from portkern.experiment import section
from portkern.experiment.ending import BAD_RESULTS, AttemptEnding
from portkern.experiment.job import FinishedJob, StudyQuestion
from portkern.experiment.section import (
    Chart,
    ChartLine,
    Section,
    SectionAnswer,
    SectionTable,
    percent,
)
from portkern.experiment.statistics import FEW, Estimate, difference, ratio, ratios
from portkern.experiment.study import Study

if TYPE_CHECKING:
    from portkern.spec.json_types import JsonObject

FULL, VERDICT, NONE = "full", "verdict", "none"
#: Arms in words, and what they are made of besides Caesar's loop.
_SAID = {FULL: "with feedback", VERDICT: "verdict only", NONE: "without feedback"}
_CHOICES = {FULL: (), VERDICT: ("feedback=none",), NONE: ("feedback=none", "memory=none")}

Which = Callable[[AttemptEnding], bool]
#: A step of a turn, judged by the one before it in the same job.
Step = Callable[[AttemptEnding, AttemptEnding], bool]
#: The counts for each job: in how many turns something was so, and how many turns there were.
Counts = tuple[list[float], list[float]]


def broken(ending: AttemptEnding) -> bool:
    return ending.status is Status.BUILD_FAILED


def bad(ending: AttemptEnding) -> bool:
    return ending.status in BAD_RESULTS


def correct(ending: AttemptEnding) -> bool:
    return ending.correct


def missing(ending: AttemptEnding) -> bool:
    return ending.status in (Status.NO_CODE, Status.REJECTED)


def mended(before: AttemptEnding, now: AttemptEnding) -> bool:
    return broken(before) and now.built


def looping(before: AttemptEnding, now: AttemptEnding) -> bool:
    """The compiler says the same again, wherever it says it."""
    return broken(before) and broken(now) and before.error == now.error


def righted(before: AttemptEnding, now: AttemptEnding) -> bool:
    return bad(before) and now.correct


RATES: Mapping[str, tuple[str, Which]] = {
    "compile_errors": ("compile errors", broken),
    "wrong_results": ("wrong results", bad),
    "correct": ("correct", correct),
    "no_kernel": ("no kernel", missing),
}


@dataclass(frozen=True)
class FeedbackArm:
    """A row for each job, with as many turns as were asked for; None where one was not
    evaluated."""

    name: str
    jobs: tuple[tuple[str, int], ...]
    rows: tuple[tuple[AttemptEnding | None, ...], ...]

    @property
    def said(self) -> str:
        return _SAID[self.name]

    def by_turn(self, which: Which) -> list[Estimate | None]:
        tops = [[bool(ending and which(ending)) for ending in row] for row in self.rows]
        return ratios(tops, [[ending is not None for ending in row] for row in self.rows])

    def so_far(self, which: Which) -> list[Estimate | None]:
        """The share of jobs in which it was so in this turn or before."""
        tops = [
            [any(ending and which(ending) for ending in row[: k + 1]) for k in range(len(row))]
            for row in self.rows
        ]
        return ratios(tops, [[True] * len(row) for row in self.rows])

    def steps_by_turn(self, step: Step, after: Which) -> list[Estimate | None]:
        """The rates of steps from turn 2 on, over the turns that follow one of the kind
        ``after``."""
        pairs = [
            [(a, b) if a and b and after(a) else None for a, b in pairwise(row)]
            for row in self.rows
        ]
        tops = [[bool(pair and step(*pair)) for pair in row] for row in pairs]
        return ratios(tops, [[pair is not None for pair in row] for row in pairs])

    def later(self, which: Which) -> Counts:
        """The counts over turn 2 and all later ones: in the first turn no arm knows anything."""
        rows = [[ending for ending in row[1:] if ending] for row in self.rows]
        return [float(sum(map(which, row))) for row in rows], [float(len(row)) for row in rows]

    def steps(self, step: Step, after: Which = lambda _: True) -> Counts:
        rows = [[(a, b) for a, b in pairwise(row) if a and b and after(a)] for row in self.rows]
        tops = [float(sum(step(a, b) for a, b in row)) for row in rows]
        return tops, [float(len(row)) for row in rows]

    def only(self, jobs: Sequence[tuple[str, int]]) -> FeedbackArm:
        rows = dict(zip(self.jobs, self.rows, strict=True))
        return FeedbackArm(self.name, tuple(jobs), tuple(rows[job] for job in jobs))

    def document(self) -> JsonObject:
        as_json = section.document
        return {
            "jobs": len(self.jobs),
            "by_turn": {key: list(map(as_json, self.by_turn(w))) for key, (_, w) in RATES.items()},
            "correct_so_far": list(map(as_json, self.so_far(correct))),
            "from_turn_2": {key: as_json(ratio(*self.later(w))) for key, (_, w) in RATES.items()},
            "compile_errors_mended": as_json(ratio(*self.steps(mended, broken))),
            "compile_errors_mended_per_turn": as_json(ratio(*self.steps(mended))),
            "compile_errors_mended_by_turn": list(map(as_json, self.steps_by_turn(mended, broken))),
            "syntax_looping": as_json(ratio(*self.steps(looping, broken))),
            "syntax_looping_by_turn": list(map(as_json, self.steps_by_turn(looping, broken))),
            "wrong_results_righted": as_json(ratio(*self.steps(righted, bad))),
            "wrong_results_righted_per_turn": as_json(ratio(*self.steps(righted))),
        }


@dataclass(frozen=True)
class Against:
    """How much the rates of two arms differ from turn 2 on, over the jobs that both have."""

    arm: FeedbackArm
    than: FeedbackArm

    @classmethod
    def of(cls, arm: FeedbackArm, than: FeedbackArm) -> Against:
        jobs = [job for job in arm.jobs if job in than.jobs]
        return cls(arm.only(jobs), than.only(jobs))

    def difference(self, which: Which) -> Estimate | None:
        return difference(self.arm.later(which), self.than.later(which))

    def document(self) -> JsonObject:
        rates: JsonObject = {
            key: section.document(self.difference(w)) for key, (_, w) in RATES.items()
        }
        return {
            "arm": self.arm.name,
            "than": self.than.name,
            "jobs": len(self.arm.jobs),
            **rates,
        }


class FeedbackStudy(Study):
    title = "Does feedback mend errors?"
    arms = (FULL, VERDICT, NONE)
    compared = (FULL, NONE)
    seeds = (0, 1, 2)
    counts = "turns"
    varied = ("strategy", "preset", "feedback", "memory")

    def choices(self, question: StudyQuestion) -> Mapping[str, Sequence[str]]:
        loop = ("preset=caesar", "strategy.turns=null")  # the budget ends it
        return {arm: (*loop, *_CHOICES[arm]) for arm in question.arms}

    def findings(self, question: StudyQuestion, done: Sequence[FinishedJob]) -> SectionAnswer:
        every = [_arm(name, question.count, done) for name in question.arms]
        arms = [arm for arm in every if any(any(row) for row in arm.rows)]
        against = [Against.of(arms[0], arm) for arm in arms[1:]]
        sections = [_turns(arms)] if arms else []
        if arms and question.count > 1:
            sections += [_errors(arms), *([_differences(against)] if against else [])]
        return SectionAnswer(
            _lead(arms, against),
            {
                "arms": {arm.name: arm.document() for arm in arms},
                "differences": [comparison.document() for comparison in against],
            },
            tuple(sections),
            tuple(note for arm in arms for note in _notes(arm)),
        )


def _arm(name: str, turns: int, done: Sequence[FinishedJob]) -> FeedbackArm:
    own = [finished for finished in done if finished.job.arm == name]
    rows = []
    for finished in own:
        ends = [end if end.status else None for end in finished.endings][:turns]
        rows.append((*ends, *[None] * (turns - len(ends))))
    return FeedbackArm(
        name, tuple((finished.job.op, finished.job.seed) for finished in own), tuple(rows)
    )


def _lead(arms: Sequence[FeedbackArm], against: Sequence[Against]) -> str:
    rates = [(arm, ratio(*arm.later(broken))) for arm in arms]
    shares = [f"{percent(rate)} of turns {arm.said}" for arm, rate in rates if rate]
    if not shares:
        return "No turn after the first was evaluated."
    lead = f"From turn 2 on, compile errors end {section.listed(shares)}."
    differs = against[-1].difference(broken) if against else None
    if differs is None:
        return lead
    low, high = differs.ends
    sure = ", which these jobs do not tell from none" if low <= 0 <= high else ""
    if differs.ci95 is None:
        sure = ", in one job"
    return f"{lead} The difference is {section.points(differs)} points{sure}."


def _notes(arm: FeedbackArm) -> list[str]:
    notes = []
    unevaluated = sum(ending is None for row in arm.rows for ending in row)
    if unevaluated:
        count = section.counted(unevaluated, "turn")
        notes.append(f"{arm.said}: {count} that were not taken or not evaluated do not count.")
    if len(arm.jobs) < FEW:
        count = section.counted(len(arm.jobs), "job")
        notes.append(f"{arm.said}: {count}; intervals over so few are rough.")
    return notes


def _turns(arms: Sequence[FeedbackArm]) -> Section:
    charts = [
        Chart(
            title, "turn", tuple(ChartLine(arm.said, tuple(arm.by_turn(w))) for arm in arms), True
        )
        for title, w in list(RATES.values())[:3]
    ]
    so_far = tuple(ChartLine(arm.said, tuple(arm.so_far(correct))) for arm in arms)
    charts.append(Chart("correct so far", "turn", so_far, True))
    head = ("arm", "jobs", *(title for title, _ in RATES.values()), "correct at last")
    rows = [
        (
            arm.said,
            str(len(arm.jobs)),
            *(percent(ratio(*arm.later(which))) for _, which in RATES.values()),
            percent(arm.so_far(correct)[-1]),
        )
        for arm in arms
    ]
    return Section(
        "How turns end",
        "Shares of turns, over jobs; the table has turn 2 and later, since the first knows nothing "
        "in any arm. Wrong results are those of kernels that were built: wrong numbers, crashes, "
        "timeouts. Correct at last: jobs in which any turn was correct.",
        tuple(charts),
        (),
        SectionTable(head, tuple(rows)),
    )


def _errors(arms: Sequence[FeedbackArm]) -> Section:
    head = (
        "arm",
        "turns after a compile error",
        "mended",
        "same error again",
        "mended per turn",
        "wrong results righted",
        "righted per turn",
    )
    rows = [
        (
            arm.said,
            f"{sum(arm.steps(mended, broken)[1]):.0f}",
            percent(ratio(*arm.steps(mended, broken))),
            percent(ratio(*arm.steps(looping, broken))),
            section.plain(ratio(*arm.steps(mended))),
            percent(ratio(*arm.steps(righted, bad))),
            section.plain(ratio(*arm.steps(righted))),
        )
        for arm in arms
    ]
    charts = [
        Chart(
            title,
            "turn",
            tuple(ChartLine(arm.said, tuple(arm.steps_by_turn(step, broken))) for arm in arms),
            True,
            2,
        )
        for title, step in (("compile errors mended", mended), ("same error again", looping))
    ]
    return Section(
        "What becomes of errors",
        "Of the turns that followed a compile error: mended, it builds now; same error again "
        "(syntax looping), the compiler's first error is that of the turn before, wherever it "
        "stands. Righted: correct after wrong results.",
        tuple(charts),
        (),
        SectionTable(head, tuple(rows)),
    )


def _differences(against: Sequence[Against]) -> Section:
    rows = [
        (
            f"{comparison.arm.said} less {comparison.than.said}",
            str(len(comparison.arm.jobs)),
            *(section.points(comparison.difference(which)) for _, which in RATES.values()),
        )
        for comparison in against
    ]
    head = ("difference", "jobs", *(title for title, _ in RATES.values()))
    return Section(
        "The difference",
        "In points, from turn 2 on, over the jobs that both arms have.",
        (),
        (),
        SectionTable(head, tuple(rows)),
    )
