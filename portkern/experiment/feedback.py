"""Whether feedback mends errors: the same loop of turns with and without it.

Turns of one job depend on each other, so jobs (an operator and a seed) are the units of intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from portkern.agent.attempt import Status
from portkern.experiment.ending import BAD_RESULTS, Ending, endings
from portkern.experiment.job import Done, Question
from portkern.experiment.section import (
    Chart, Findings, Line, Section, Table, counted, document, percent, plain,
)  # fmt: skip
from portkern.experiment.statistics import Estimate, difference, ratio, ratios
from portkern.experiment.study import Study

FULL, VERDICT, NONE = "full", "verdict", "none"
#: Arms in words, and what they are made of besides Caesar's loop.
_SAID = {FULL: "with feedback", VERDICT: "verdict only", NONE: "without feedback"}
_CHOICES = {FULL: (), VERDICT: ("feedback=none",), NONE: ("feedback=none", "memory=none")}

#: Of a turn, by the one before it in the same job.
Step = Callable[[Ending, Ending], bool]
Which = Callable[[Ending], bool]


def broken(one: Ending) -> bool:
    return one.status is Status.BUILD_FAILED


def bad(one: Ending) -> bool:
    return one.status in BAD_RESULTS


def without_kernel(one: Ending) -> bool:
    return one.status in (Status.NO_CODE, Status.REJECTED)


def correct(one: Ending) -> bool:
    return one.correct


def mended(before: Ending, now: Ending) -> bool:
    return broken(before) and now.built


def looping(before: Ending, now: Ending) -> bool:
    """The compiler says the same again, wherever it says it."""
    return broken(before) and broken(now) and before.error == now.error


def righted(before: Ending, now: Ending) -> bool:
    return bad(before) and now.correct


RATES: Mapping[str, tuple[str, Which]] = {
    "compile_errors": ("compile errors", broken),
    "wrong_results": ("wrong results", bad),
    "correct": ("correct", correct),
    "no_kernel": ("no kernel", without_kernel),
}


@dataclass(frozen=True)
class Arm:
    """A row for each job, with as many turns as were asked for; None where one was not judged."""

    name: str
    jobs: tuple[tuple[str, int], ...]
    turns: tuple[tuple[Ending | None, ...], ...]

    def by_turn(self, which: Which) -> list[Estimate | None]:
        return ratios(*_table([[(one and which(one), one) for one in row] for row in self.turns]))

    def ever(self, which: Which) -> list[Estimate | None]:
        """The share of jobs in which it was so in this turn or before."""
        told = [[any(o and which(o) for o in row[: k + 1]) for k in range(len(row))]
                for row in self.turns]  # fmt: skip
        return ratios(told, [[1] * len(row) for row in self.turns]) if told else []

    def parts(self, which: Which, *, first: int = 1) -> tuple[list[float], list[float]]:
        """Of each job in how many turns it was so, and how many there were, from turn ``first``."""
        rows = [[one for one in row[first - 1 :] if one] for row in self.turns]
        return [float(sum(map(which, row))) for row in rows], [float(len(row)) for row in rows]

    def steps(self, step: Step, after: Which | None = None) -> tuple[list[float], list[float]]:
        """Of each job in how many turns it was so, of those ``after`` such a turn."""
        pairs = [[(a, b) for a, b in self._pairs(row) if after is None or after(a)]
                 for row in self.turns]  # fmt: skip
        return [float(sum(step(*p) for p in row)) for row in pairs], [
            float(len(row)) for row in pairs
        ]

    def step_by_turn(self, step: Step, after: Which) -> list[Estimate | None]:
        """From turn 2 on."""
        return ratios(*_table([
            [(step(a, b), after(a)) if a and b else (None, None)
             for a, b in zip(row, row[1:], strict=False)]
            for row in self.turns
        ]))  # fmt: skip

    @staticmethod
    def _pairs(row: Sequence[Ending | None]) -> list[tuple[Ending, Ending]]:
        return [(a, b) for a, b in zip(row, row[1:], strict=False) if a and b]

    def paired(self, other: Arm) -> tuple[Arm, Arm]:
        """Both with the jobs that both have, in one order."""
        common = [job for job in self.jobs if job in other.jobs]

        def only(arm: Arm) -> Arm:
            rows = dict(zip(arm.jobs, arm.turns, strict=True))
            return Arm(arm.name, tuple(common), tuple(rows[job] for job in common))

        return only(self), only(other)


def _table(rows: Sequence[Sequence[tuple[Any, Any]]]) -> tuple[list[list[bool]], list[list[bool]]]:
    """Tops and bottoms of :func:`ratios`."""
    tops = [[bool(top and bottom) for top, bottom in row] for row in rows]
    return tops, [[bool(bottom) for _, bottom in row] for row in rows]


class Feedback(Study):
    title = "Does feedback mend errors?"
    arms = (FULL, VERDICT, NONE)
    compared = (FULL, NONE)
    seeds = (0, 1, 2)
    counts = "turns"
    varied = ("strategy", "preset", "feedback", "memory")

    def choices(self, question: Question) -> Mapping[str, Sequence[str]]:
        loop = ("preset=caesar", "strategy.turns=null")  # the budget ends it
        return {arm: (*loop, *_CHOICES[arm]) for arm in question.arms}

    def findings(self, question: Question, done: Sequence[Done]) -> Findings:
        arms = [_arm(name, question.count, done) for name in question.arms]
        arms = [arm for arm in arms if any(any(row) for row in arm.turns)]
        against = [_against(arms[0], arm) for arm in arms[1:]]
        sections = (_turns(arms), _steps(arms), _differences(against))
        return Findings(
            _lead(arms, against),
            {
                "arms": {arm.name: _numbers(arm) for arm in arms},
                "differences": [
                    {key: document(one) if key in RATES else one for key, one in each.items()}
                    for each in against
                ],
            },
            tuple(one for one in sections if one) if arms else (),
            _notes(arms),
        )  # fmt: skip


def _arm(name: str, turns: int, done: Sequence[Done]) -> Arm:
    own = [one for one in done if one.job.arm == name]
    rows = []
    for one in own:
        ends = [end if end.status else None for end in endings(one.log)][:turns]
        rows.append((*ends, *[None] * (turns - len(ends))))
    return Arm(name, tuple((one.job.op, one.job.seed) for one in own), tuple(rows))


def _numbers(arm: Arm) -> dict[str, Any]:
    by_turn = {key: [document(o) for o in arm.by_turn(which)] for key, (_, which) in RATES.items()}
    return {
        "jobs": len(arm.jobs),
        "by_turn": by_turn,
        "correct_so_far": [document(one) for one in arm.ever(correct)],
        "from_turn_2": {
            key: document(ratio(*arm.parts(which, first=2))) for key, (_, which) in RATES.items()
        },
        "compile_errors_mended": document(ratio(*arm.steps(mended, broken))),
        "compile_errors_mended_per_turn": document(ratio(*arm.steps(mended))),
        "compile_errors_mended_by_turn": [document(o) for o in arm.step_by_turn(mended, broken)],
        "syntax_looping": document(ratio(*arm.steps(looping, broken))),
        "syntax_looping_by_turn": [document(one) for one in arm.step_by_turn(looping, broken)],
        "wrong_results_righted": document(ratio(*arm.steps(righted, bad))),
        "wrong_results_righted_per_turn": document(ratio(*arm.steps(righted))),
    }  # fmt: skip


def _against(first: Arm, other: Arm) -> dict[str, Any]:
    """By how much the rates from turn 2 on differ, over jobs that both have."""
    a, b = first.paired(other)
    found: dict[str, Any] = {"arm": first.name, "than": other.name, "jobs": len(a.jobs)}
    for key, (_, which) in RATES.items():
        found[key] = difference(a.parts(which, first=2), b.parts(which, first=2))
    return found


def _lead(arms: Sequence[Arm], against: Sequence[Mapping[str, Any]]) -> str:
    if not arms:
        return "No turn was judged."
    told = [
        f"{percent(ratio(*arm.parts(broken, first=2)))} {_SAID[arm.name]}" for arm in arms
    ]  # fmt: skip
    lead = f"From turn 2 on, compile errors end {', '.join(told)}."
    differs = against[-1]["compile_errors"] if against else None
    if differs is None:
        return lead
    low, high = differs.ends
    told_apart = differs.ci95 is not None and not low <= 0 <= high
    points = f"{differs.value * 100:+.0f} points"
    ends = f" [{low * 100:.0f}, {high * 100:.0f}]" if differs.ci95 else ""
    sure = "" if told_apart else ", which these jobs do not tell from none"
    return f"{lead} The difference is {points}{ends}{sure}."


def _notes(arms: Sequence[Arm]) -> tuple[str, ...]:
    notes = []
    for arm in arms:
        unjudged = sum(one is None for row in arm.turns for one in row)
        if unjudged:
            notes.append(
                f"{_SAID[arm.name]}: {counted(unjudged, 'turn')} were not taken or not judged and do "
                "not count."
            )
        if len(arm.jobs) < 5:
            notes.append(
                f"{_SAID[arm.name]}: {counted(len(arm.jobs), 'job')}; intervals over so few are rough."
            )
    return tuple(notes)


def _turns(arms: Sequence[Arm]) -> Section:
    charts = [
        Chart(title, "turn", tuple(Line(_SAID[a.name], tuple(a.by_turn(which))) for a in arms), True)
        for title, which in list(RATES.values())[:3]
    ]  # fmt: skip
    charts.append(
        Chart(
            "correct so far", "turn",
            tuple(Line(_SAID[arm.name], tuple(arm.ever(correct))) for arm in arms), True,
        )
    )  # fmt: skip
    head = ("arm", "jobs", *(f"{title}" for title, _ in RATES.values()), "correct at last")
    rows = [
        (
            _SAID[arm.name], str(len(arm.jobs)),
            *(percent(ratio(*arm.parts(which, first=2))) for _, which in RATES.values()),
            percent(arm.ever(correct)[-1]),
        )
        for arm in arms
    ]  # fmt: skip
    return Section(
        "How turns end",
        "Shares of turns, over jobs; the table has turns 2 and later, since the first knows nothing "
        "in any arm. Correct at last: jobs in which any turn was correct. Wrong results are those of "
        "kernels that were built: wrong numbers, crashes, timeouts.",
        tuple(charts), (), Table(head, tuple(rows)),
    )  # fmt: skip


def _steps(arms: Sequence[Arm]) -> Section | None:
    if all(len(row) < 2 for arm in arms for row in arm.turns):
        return None
    head = (
        "arm", "turns after a compile error", "mended", "same error again", "mended per turn",
        "wrong results righted", "righted per turn",
    )  # fmt: skip
    rows = [
        (
            _SAID[arm.name], f"{sum(arm.steps(mended, broken)[1]):.0f}",
            percent(ratio(*arm.steps(mended, broken))), percent(ratio(*arm.steps(looping, broken))),
            plain(ratio(*arm.steps(mended))), percent(ratio(*arm.steps(righted, bad))),
            plain(ratio(*arm.steps(righted))),
        )
        for arm in arms
    ]  # fmt: skip
    charts = tuple(
        Chart(
            title, "turn",
            tuple(Line(_SAID[a.name], tuple(a.step_by_turn(step, broken))) for a in arms), True, 2,
        )
        for title, step in (("compile errors mended", mended), ("same error again", looping))
    )  # fmt: skip
    return Section(
        "What becomes of errors",
        "Of the turns that followed a compile error: mended, it builds now; same error again (syntax "
        "looping), the compiler's first error is the one of the turn before, wherever it stands.",
        charts, (), Table(head, tuple(rows)),
    )  # fmt: skip


def _differences(against: Sequence[Mapping[str, Any]]) -> Section | None:
    if not against:
        return None
    rows = [
        (
            f"{_SAID[one['arm']]}, not {_SAID[one['than']]}", str(one["jobs"]),
            *(percent(one[key]) for key in RATES),
        )
        for one in against
    ]  # fmt: skip
    head = ("difference of", "jobs", *(title for title, _ in RATES.values()))
    return Section(
        "The difference",
        "In points, from turn 2 on, over the jobs that both arms have.",
        (), (), Table(head, tuple(rows)),
    )  # fmt: skip
