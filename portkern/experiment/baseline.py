"""Baseline correctness: how often one sample is right, or one of several, and where the others end.

KernelBench's one-shot setting: samples know nothing of each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from portkern.agent.attempt import Status
from portkern.experiment.compare.intervals import share_over_ops, task_share
from portkern.experiment.ending import STAGES, AttemptEnding
from portkern.experiment.job import FinishedJob, StudyQuestion
from portkern.experiment.section import (
    DASH,
    Bars,
    Chart,
    ChartLine,
    Section,
    SectionAnswer,
    SectionTable,
    counted,
    document,
    listed,
    percent,
)
from portkern.experiment.statistics import FEW, Estimate, pass_at_k, share
from portkern.experiment.study import Study

if TYPE_CHECKING:
    from portkern.spec.json_types import JsonObject

ARM = "oneshot"
#: More than any budget: it is the budget that ends a job, so that a larger one goes on with it.
ENDLESS = 100_000
#: The temperature of samples that are to differ (KernelBench's presets have 0.7 to 0.8); one alone
#: is greedy.
TEMPERATURE = 0.7
#: What fast_p is told for.
FASTER = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0)
#: Neither 0 nor slow.
NOT_TIMED = "not timed"
_WORDS = {Status.PASSED: "correct"}


@dataclass(frozen=True)
class Sampled:
    """The outcomes of an operator's samples; those that nobody evaluated are only counted.
    ``clock`` is whether anything was timed, of this operator or another one."""

    op: str
    samples: tuple[AttemptEnding, ...]
    unevaluated: int
    clock: bool

    @property
    def n(self) -> int:
        return len(self.samples)

    @property
    def correct(self) -> int:
        return sum(sample.correct for sample in self.samples)

    @property
    def built(self) -> int:
        return sum(sample.built for sample in self.samples)

    def faster(self, p: float) -> Estimate | None:
        """The share that is correct and more than ``p`` times as fast; above 0 None where that is
        not known, since nothing was timed."""
        correct = [sample for sample in self.samples if sample.correct]
        known = any(sample.timed for sample in correct) or (self.clock and not correct)
        if p and not known:
            return None
        return share(sum(sample.faster(p) for sample in self.samples), self.n)

    @property
    def stages(self) -> Counter[Status | None]:
        return Counter(sample.status for sample in self.samples)

    def at(self, k: int) -> float:
        return pass_at_k(self.n, self.correct, k)

    def document(self) -> JsonObject:
        return {
            "samples": self.n,
            "unevaluated": self.unevaluated,
            "correct": self.correct,
            "pass_at_1": document(share(self.correct, self.n)) if self.n else None,
            "pass_at": {str(k): self.at(k) for k in range(1, self.n + 1)},
            "built_at_1": document(share(self.built, self.n)) if self.n else None,
            "fast": {f"{p:g}": _value(self.faster(p)) for p in FASTER} if self.n else {},
            "ended": {str(stage): self.stages[stage] for stage in STAGES if self.stages[stage]},
        }


class BaselineStudy(Study):
    title = "How often is a kernel right that was written in one go?"
    arms = (ARM,)
    compared = (ARM,)
    seeds = (0,)
    counts = "n"

    def choices(self, question: StudyQuestion) -> Mapping[str, Sequence[str]]:
        chosen = ["preset=kernelbench_oneshot", "strategy=best_of_n", f"strategy.n={ENDLESS}"]
        if question.count > 1:
            chosen.append(f"models.coder.temperature={TEMPERATURE}")
        return {ARM: chosen}

    def findings(self, question: StudyQuestion, done: Sequence[FinishedJob]) -> SectionAnswer:
        every = [
            _sampled(op, done) for op in dict.fromkeys(finished.job.operator for finished in done)
        ]
        evaluated = [sampled for sampled in every if sampled.n]
        overall = pass_at_k_of_all(evaluated)
        return SectionAnswer(
            _lead(evaluated, overall),
            {
                "ops": {sampled.op: sampled.document() for sampled in every},
                "pass_at": {str(k): document(estimate) for k, estimate in enumerate(overall, 1)},
            },
            (_passes(evaluated, overall), _stages(evaluated)) if evaluated else (),
            _notes(every),
        )


def _sampled(op: str, done: Sequence[FinishedJob]) -> Sampled:
    ends = [end for finished in done if finished.job.operator == op for end in finished.endings]
    evaluated = tuple(end for end in ends if end.status)
    clock = any(end.timed for finished in done for end in finished.endings)
    return Sampled(op, evaluated, len(ends) - len(evaluated), clock)


def pass_at_k_of_all(evaluated: Sequence[Sampled]) -> list[Estimate]:
    """pass@1, pass@2, … as far as every operator has samples, with the intervals that ``portkern
    compare`` gives the same samples: operators are the units."""
    most = min((sampled.n for sampled in evaluated), default=0)
    return [_pass_at(evaluated, k) for k in range(1, most + 1)]


def _pass_at(evaluated: Sequence[Sampled], k: int) -> Estimate:
    if len(evaluated) > 1:
        return share_over_ops((sampled.op, sampled.at(k)) for sampled in evaluated)
    [only] = evaluated
    return Estimate(only.at(k), task_share(only.correct, only.n, k))


def _lead(evaluated: Sequence[Sampled], overall: Sequence[Estimate]) -> str:
    if not evaluated:
        return "No sample was evaluated."
    several = f", pass@{len(overall)} {percent(overall[-1])}" if len(overall) > 1 else ""
    over = (
        f" over {counted(len(evaluated), 'operator')}"
        if len(evaluated) > 1
        else f" on {evaluated[0].op}"
    )
    failed = Counter(
        end.status for sampled in evaluated for end in sampled.samples if not end.correct
    )
    if not failed:
        return f"pass@1 is {percent(overall[0])}{several}{over}; no sample failed."
    [(stage, count)] = failed.most_common(1)
    total = sum(failed.values())
    most = f"all ended as {_word(stage)}" if count == total else f"{count} ended as {_word(stage)}"
    return f"pass@1 is {percent(overall[0])}{several}{over}. Of {counted(total, 'failure')} {most}."


def _notes(every: Sequence[Sampled]) -> tuple[str, ...]:
    notes = [
        f"{sampled.op}: of {sampled.n + sampled.unevaluated} samples {sampled.unevaluated} were "
        "not evaluated (no model answered, or there was nothing to run them on) and do not count."
        for sampled in every
        if sampled.unevaluated
    ]
    untimed = [sampled.op for sampled in every if sampled.n and not sampled.faster(1.0)]
    if untimed and len(untimed) < len(every):
        notes.append(f"fast₁ of all is without {listed(untimed)}, where nothing was timed.")
    if 1 < len(every) < FEW:
        notes.append(f"{len(every)} operators: intervals over so few are rough.")
    return tuple(notes)


def _passes(evaluated: Sequence[Sampled], overall: Sequence[Estimate]) -> Section:
    most = len(overall)
    head = ("operator", "samples", "correct", "pass@1", f"pass@{most}", "builds", "fast₁")
    rows = [
        (
            sampled.op,
            str(sampled.n),
            str(sampled.correct),
            percent(share(sampled.correct, sampled.n)),
            percent(Estimate(sampled.at(most))),
            percent(share(sampled.built, sampled.n)),
            _timed(sampled.faster(1.0)),
        )
        for sampled in evaluated
    ]
    if len(evaluated) > 1:
        builds = share_over_ops((sampled.op, sampled.built / sampled.n) for sampled in evaluated)
        fast = [(one.op, known.value) for one in evaluated if (known := one.faster(1.0))]
        rows.append(
            (
                "all",
                str(sum(sampled.n for sampled in evaluated)),
                str(sum(sampled.correct for sampled in evaluated)),
                percent(overall[0]),
                percent(overall[-1]),
                percent(builds),
                _timed(share_over_ops(fast) if fast else None),
            )
        )
    lines = [
        ChartLine(sampled.op, tuple(Estimate(sampled.at(k)) for k in range(1, most + 1)))
        for sampled in evaluated
    ]
    if len(evaluated) > 1:
        lines.append(ChartLine("all", tuple(overall)))
    charts = (Chart("pass@k", "k", tuple(lines), percent=True),) if most > 1 else ()
    return Section(
        "Correct samples",
        "pass@k is how likely one of k samples is correct: 1 - C(n-c, k) / C(n, k), of n samples "
        "with c correct ones. fast₁ is the share that is correct and faster than the framework. "
        "Intervals are Wilson's; for all, over operators, as portkern compare has them.",
        charts,
        (),
        SectionTable(head, tuple(rows)),
    )


def _stages(evaluated: Sequence[Sampled]) -> Section:
    seen = [stage for stage in STAGES if any(sampled.stages[stage] for sampled in evaluated)]
    words = tuple(map(_word, seen))
    bars = [(sampled.op, tuple(sampled.stages[stage] for stage in seen)) for sampled in evaluated]
    rows = [(op, *(str(n) if n else DASH for n in counts)) for op, counts in bars]
    return Section(
        "Where samples end",
        "A sample ends at the first stage that it does not pass.",
        (),
        (Bars("samples", words, tuple(bars)),),
        SectionTable(("operator", *words), tuple(rows)),
    )


def _timed(estimate: Estimate | None) -> str:
    return percent(estimate) if estimate else NOT_TIMED


def _value(estimate: Estimate | None) -> float | None:
    return estimate.value if estimate else None


def _word(stage: Status | None) -> str:
    assert stage is not None
    return _WORDS.get(stage, str(stage).replace("_", " "))
