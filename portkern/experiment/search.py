"""Strategies of search at an equal budget of attempts: how soon, and how far, each comes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from portkern.agent.attempt import Status
from portkern.experiment.baseline import ENDLESS
from portkern.experiment.job import FinishedJob, StudyQuestion
from portkern.experiment.section import (
    DASH,
    Chart,
    ChartLine,
    Section,
    SectionAnswer,
    SectionTable,
    counted,
    document,
    listed,
    percent,
    times,
)
from portkern.experiment.statistics import (
    FEW,
    Estimate,
    area,
    mean,
    means,
    median,
    padded,
    reached,
    spread,
)
from portkern.experiment.study import Study

if TYPE_CHECKING:
    from portkern.spec.json_types import JsonObject

#: So much of the best score of all counts as having found it.
NEAR, NEAR_SAID = 0.95, "95 %"

#: Nothing but the budget ends a strategy. ``staged`` has as many rounds as actions.
_ENDLESS: Mapping[str, tuple[str, ...]] = {
    "bandit": ("strategy.trials=null", "strategy.mask=false"),  # masks want hardware counters
    "beam": ("strategy.rounds=null",),
    "best_of_n": (f"strategy.n={ENDLESS}",),
    "branching": ("strategy.rounds=null",),
    "evolutionary": ("strategy.generations=null",),
    "mcts_graph": ("strategy.trials=null",),
    "parallel_refine": ("strategy.turns=null", "strategy.early_exit=false"),
    "refine": ("strategy.turns=null", "strategy.parent=best"),  # greedy
    "staged": (),
    "tree_eps": ("strategy.trials=null",),
}
#: Strategies with a model: whatever they build on is shown with its results, which is all that
#: ``memory=last`` does; strategies that choose actions need a menu of them.
_WRITERS: Mapping[str, tuple[str, ...]] = {
    "bandit": ("proposer=direct", "proposer.actions=menu/six"),
    "branching": ("proposer=ideas_then_code",),
    "evolutionary": ("proposer=evolve",),
    "mcts_graph": ("proposer=direct", "proposer.actions=menu/six"),
    "staged": ("proposer=direct", "proposer.actions=menu/stages"),
}


@dataclass(frozen=True)
class SearchTrace:
    """One job: the best score so far after each attempt, as far as the budget goes. ``raced`` is
    the speedup that its best kernel had in the race at its end, where it was timed."""

    arm: str
    seed: int
    curve: tuple[float, ...]
    made: int
    fresh: int
    raced: float | None
    scores: Mapping[str, float]


@dataclass(frozen=True)
class StrategyStanding:
    """One strategy on one operator, over its seeds. ``near``: after how many attempts each job came
    to :data:`NEAR` of ``top``, the best of all."""

    arm: str
    traces: tuple[SearchTrace, ...]
    top: float

    @property
    def curve(self) -> list[Estimate]:
        return means([trace.curve for trace in self.traces])

    @property
    def area(self) -> Estimate:
        return _mean([area(trace.curve) for trace in self.traces])

    @property
    def share(self) -> Estimate:
        return _mean([area(trace.curve) / self.top for trace in self.traces])

    @property
    def score(self) -> Estimate:
        return _mean([trace.curve[-1] for trace in self.traces])

    @property
    def raced(self) -> Estimate | None:
        return mean([trace.raced for trace in self.traces if trace.raced is not None])

    @property
    def near(self) -> list[int | None]:
        return [reached(trace.curve, NEAR * self.top) for trace in self.traces]

    def document(self) -> JsonObject:
        return {
            "seeds": [trace.seed for trace in self.traces],
            "curve": [document(estimate) for estimate in self.curve],
            "curves": {str(trace.seed): list(trace.curve) for trace in self.traces},
            "area": document(self.area),
            "area_of_best": document(self.share),
            "score": document(self.score),
            "raced": document(self.raced),
            "attempts_to_95": self.near,
            "median_attempts_to_95": median(self.near),
            "attempts": [trace.made for trace in self.traces],
            "new_kernels": [trace.fresh for trace in self.traces],
        }


@dataclass(frozen=True)
class StrategyContest:
    """All strategies on one operator; the largest area first."""

    op: str
    top: float
    standings: tuple[StrategyStanding, ...]
    noise: float | None
    repeated: int


class SearchStudy(Study):
    title = "Which search gets furthest with the same number of attempts?"
    arms = tuple(_ENDLESS)
    compared = ("refine", "branching", "evolutionary", "bandit", "best_of_n")
    seeds = (0, 1, 2)
    counts = "attempts"
    asks_model = False
    varied = ("strategy", "preset", "proposer")

    def choices(self, question: StudyQuestion) -> Mapping[str, Sequence[str]]:
        """One slot at a time: a strategy that knows less when it asks is another strategy."""
        return {arm: ("inflight=1", *self._choice(arm, question)) for arm in question.arms}

    def _choice(self, arm: str, question: StudyQuestion) -> tuple[str, ...]:
        author: tuple[str, ...] = ("proposer=catalogue",)
        if question.model:
            author = (*_WRITERS.get(arm, ("proposer=direct",)), "memory=last")
        return (f"strategy={arm}", *_ENDLESS[arm], *author)

    def findings(self, question: StudyQuestion, done: Sequence[FinishedJob]) -> SectionAnswer:
        ops = dict.fromkeys(finished.job.operator for finished in done)
        every = [_contest(op, question, done) for op in ops]
        contests = [contest for contest in every if contest.standings]
        totals = _totals(contests)
        return SectionAnswer(
            " ".join(map(_lead, contests)) or "No strategy found a correct kernel.",
            {
                "ops": {
                    contest.op: {
                        "best": contest.top,
                        "noise": contest.noise,
                        "repeated": contest.repeated,
                        "strategies": {each.arm: each.document() for each in contest.standings},
                    }
                    for contest in contests
                },
                "all": {total.arm: total.document() for total in totals},
            },
            (
                *([_together(totals)] if len(contests) > 1 else []),
                *(_section(contest, question, alone=len(contests) == 1) for contest in contests),
            ),
            _notes(contests, question),
        )


def _mean(values: Sequence[float]) -> Estimate:
    average = mean(values)
    assert average is not None, "a standing has a trace"
    return average


def _contest(op: str, question: StudyQuestion, done: Sequence[FinishedJob]) -> StrategyContest:
    """The contest over one op, without standings where nobody found a correct kernel."""
    traces = [_trace(finished, question.count) for finished in done if finished.job.operator == op]
    top = max((trace.curve[-1] for trace in traces), default=0.0)
    by_arm = {arm: tuple(trace for trace in traces if trace.arm == arm) for arm in question.arms}
    standings = [StrategyStanding(arm, own, top) for arm, own in by_arm.items() if own and top]
    standings.sort(key=lambda standing: -standing.area.value)
    repeated: dict[str, list[float]] = {}
    for trace in traces:
        for digest, score in trace.scores.items():
            repeated.setdefault(digest, []).append(score)
    several = [scores for scores in repeated.values() if len(scores) > 1]
    return StrategyContest(op, top, tuple(standings), spread(several), len(several))


def _trace(finished: FinishedJob, length: int) -> SearchTrace:
    raced = list(finished.summary.get("speedups", {}).values())
    attempts = list(finished.log)
    return SearchTrace(
        finished.job.arm,
        finished.job.seed,
        tuple(padded(finished.log.curve(), length)),
        len(attempts),
        sum(a.status not in (Status.DUPLICATE, Status.NO_CODE) for a in attempts),
        math.exp(sum(map(math.log, raced)) / len(raced)) if raced else None,
        {a.digest: a.score for a in attempts if a.correct and a.speedups},
    )


def _lead(contest: StrategyContest) -> str:
    first, *others = contest.standings
    lead = f"{contest.op}: {first.arm} has the best curve, {times(first.area)} on average."
    if not others:
        return lead
    close = [other.arm for other in others if other.area.overlaps(first.area)]
    if first.area.ci95 is None:
        return f"{lead} One seed each does not tell strategies apart."
    if not close:
        return f"{lead} Its interval overlaps no other's."
    return f"{lead} Its interval overlaps {_possessive(close)}: they are not told apart."


def _possessive(names: Sequence[str]) -> str:
    return f"{'that' if len(names) == 1 else 'those'} of {listed(names)}"


def _notes(contests: Sequence[StrategyContest], question: StudyQuestion) -> tuple[str, ...]:
    notes = []
    for contest in contests:
        if contest.noise is not None:
            notes.append(
                f"{contest.op}: {counted(contest.repeated, 'kernel')} had scores in several jobs, "
                f"which differ by {contest.noise * 100:.1f} % (standard deviation). Smaller "
                "differences of strategies mean nothing, and a highest score is in part luck: see "
                "the race."
            )
        for each in contest.standings:
            short = [trace for trace in each.traces if trace.made < question.count]
            if short:
                least = min(trace.made for trace in short)
                notes.append(
                    f"{contest.op}: {each.arm} had no more to try in {counted(len(short), 'job')} "
                    f"(after {least} attempts at the earliest) and keeps its score from there on."
                )
    if len(question.seeds) < FEW:
        notes.append(f"{counted(len(question.seeds), 'seed')}: intervals over so few are rough.")
    return tuple(notes)


def _section(contest: StrategyContest, question: StudyQuestion, *, alone: bool) -> Section:
    count = question.count
    head = (
        "strategy",
        "jobs",
        "mean of the curve",
        "of the best",
        f"score after {count}",
        "raced at the end",
        f"attempts to {NEAR_SAID}",
        "new kernels",
    )
    rows = [
        (
            standing.arm,
            str(len(standing.traces)),
            times(standing.area),
            percent(standing.share),
            times(standing.score),
            times(standing.raced),
            _near(standing, count),
            " ".join(str(trace.fresh) for trace in standing.traces),
        )
        for standing in contest.standings
    ]
    lines = tuple(ChartLine(standing.arm, tuple(standing.curve)) for standing in contest.standings)
    return Section(
        "Curves" if alone else contest.op,
        "The best speedup over the framework so far, after each attempt: mean over seeds, with the "
        "95 % interval of the bootstrap over them. The mean of the curve is the area under it over "
        f"its length; of the best, as a share of {contest.top:.2f}×, the highest score of all. "
        "Raced at the end: each job's best kernel, timed anew beside others of its job, on all "
        f"sizes. Attempts to {NEAR_SAID} of the best: the median job's, and how many came there.",
        (Chart("best so far", "attempts", lines),),
        (),
        SectionTable(head, tuple(rows)),
    )


@dataclass(frozen=True)
class Total:
    """One strategy on all operators, as shares of the best score on each: they count alike."""

    arm: str
    jobs: int
    area: Estimate
    score: Estimate

    @classmethod
    def of(cls, arm: str, standings: Sequence[StrategyStanding]) -> Total:
        pairs = [(trace.curve, standing.top) for standing in standings for trace in standing.traces]
        return cls(
            arm,
            len(pairs),
            _mean([area(curve) / top for curve, top in pairs]),
            _mean([curve[-1] / top for curve, top in pairs]),
        )

    def document(self) -> JsonObject:
        return {
            "jobs": self.jobs,
            "area_of_best": document(self.area),
            "score_of_best": document(self.score),
        }


def _totals(contests: Sequence[StrategyContest]) -> list[Total]:
    """The largest area first."""
    standings = [standing for contest in contests for standing in contest.standings]
    arms = dict.fromkeys(standing.arm for standing in standings)
    totals = [
        Total.of(arm, [standing for standing in standings if standing.arm == arm]) for arm in arms
    ]
    return sorted(totals, key=lambda standing: -standing.area.value)


def _together(totals: Sequence[Total]) -> Section:
    rows = [
        (total.arm, str(total.jobs), percent(total.area), percent(total.score)) for total in totals
    ]
    return Section(
        "All operators",
        "As shares of the highest score of all jobs on the same operator.",
        table=SectionTable(
            ("strategy", "jobs", "mean of the curve", "score at the end"), tuple(rows)
        ),
    )


def _near(standing: StrategyStanding, count: int) -> str:
    there = sum(k is not None for k in standing.near)
    middle = median(standing.near)
    attempts = f"> {count}" if middle is None else f"{middle:g}"
    return f"{attempts} ({there} of {len(standing.near)})" if standing.near else DASH
