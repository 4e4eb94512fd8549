"""Two arms on the same tasks: by how much they differ, and whether that is shown."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from portkern.experiment import section, statistics
from portkern.experiment.section import DASH, SectionTable, counted
from portkern.experiment.statistics import SIGNIFICANT, Estimate, mean, sign_flips

if TYPE_CHECKING:
    from portkern.spec.json_types import JsonObject

NO_DIFFERENCE, NOT_TIMED = "no difference shown", "not timed"

#: The results of one arm by task; a task of which nothing is known is left out.
Scores = Mapping[object, float]


@dataclass(frozen=True)
class ContrastMeasure:
    """``ratio``: of logarithms, so that a difference is a ratio of times; else shares. ``better``:
    whether more of it is better, 1, or less, -1."""

    name: str
    title: str
    ratio: bool = False
    better: int = 1

    def told(self, estimate: Estimate | None) -> str:
        """The estimate of one arm as a text."""
        if self.ratio:
            return section.times(_exponential(estimate)) if estimate else NOT_TIMED
        return section.percent(estimate)

    def difference(self, estimate: Estimate | None) -> str:
        if estimate is None:
            return NOT_TIMED if self.ratio else DASH
        if self.ratio:
            return section.times(_exponential(estimate))
        return section.points(estimate)


@dataclass(frozen=True)
class Contrast:
    """``pairs``: of each task that both arms have, what the one did less what the other did.
    ``p``: how likely equal arms differ as much; ``corrected`` for all that were looked at."""

    measure: ContrastMeasure
    arm: str
    than: str
    pairs: tuple[float, ...]
    where: str = ""
    corrected: float | None = None

    @classmethod
    def of(
        cls,
        measure: ContrastMeasure,
        arm: str,
        than: str,
        ours: Scores,
        theirs: Scores,
        where: str = "",
    ) -> Contrast:
        both = [task for task in ours if task in theirs]
        pairs = tuple(ours[task] - theirs[task] for task in both)
        return cls(measure, arm, than, pairs, where)

    @property
    def difference(self) -> Estimate | None:
        return mean(self.pairs)

    @property
    def p(self) -> float | None:
        """The p-value; None where fewer than two tasks were compared."""
        return sign_flips(self.pairs) if len(self.pairs) > 1 else None

    @property
    def shown(self) -> bool:
        return self.corrected is not None and self.corrected < SIGNIFICANT

    @property
    def verdict(self) -> str:
        if not self.pairs:
            return NOT_TIMED if self.measure.ratio else "nothing to compare"
        if len(self.pairs) == 1:
            return "one task does not tell"
        if not self.shown:
            return NO_DIFFERENCE
        better = sum(self.pairs) * self.measure.better > 0
        return f"{self.arm} is {'better' if better else 'worse'}"

    def document(self) -> JsonObject:
        estimate = self.difference
        if estimate is not None and self.measure.ratio:
            estimate = _exponential(estimate)
        return {
            "measure": self.measure.name,
            "arm": self.arm,
            "than": self.than,
            "where": self.where,
            "tasks": len(self.pairs),
            "ratio" if self.measure.ratio else "difference": section.document(estimate),
            "p": self.p,
            "p_corrected": self.corrected,
            "shown": self.shown,
            "verdict": self.verdict,
        }


def corrected(contrasts: Sequence[Contrast]) -> list[Contrast]:
    """The contrasts with p corrected after Holm, over all that have one."""
    adjusted = statistics.corrected([contrast.p for contrast in contrasts])
    return [replace(contrast, corrected=p) for contrast, p in zip(contrasts, adjusted, strict=True)]


def tasks_needed(count: int) -> int:
    """The fewest tasks with which one of ``count`` comparisons can be shown at all, however they
    end."""
    return math.ceil(math.log2(2 * max(count, 1) / SIGNIFICANT))


def table(contrasts: Sequence[Contrast], *, places: bool = False) -> SectionTable:
    rows = [
        (
            *([contrast.where] if places else []),
            contrast.measure.title,
            f"{contrast.arm} against {contrast.than}",
            str(len(contrast.pairs)),
            contrast.measure.difference(contrast.difference),
            _probability(contrast.p),
            _probability(contrast.corrected),
            contrast.verdict,
        )
        for contrast in contrasts
    ]
    head = ("measure", "arms", "tasks", "difference", "p", "p corrected", "")
    return SectionTable((*(["where"] if places else []), *head), tuple(rows), names=2 + places)


def notes(contrasts: Sequence[Contrast]) -> tuple[str, ...]:
    """Notes on contrasts that have too few tasks for anything to be shown."""
    tested = [contrast for contrast in contrasts if contrast.p is not None]
    least = tasks_needed(len(tested))
    most = max((len(contrast.pairs) for contrast in tested), default=0)
    if not tested or most >= least:
        return ()
    return (
        f"{counted(most, 'task')} cannot show a difference in {counted(len(tested), 'comparison')}"
        f", however they end; name at least {least} operators.",
    )


def means(scores: Iterable[tuple[object, float]]) -> dict[object, float]:
    """The mean score of each task: seeds of one task are not tasks of their own."""
    by_task: dict[object, list[float]] = {}
    for task, score in scores:
        by_task.setdefault(task, []).append(score)
    return {task: sum(several) / len(several) for task, several in by_task.items()}


def _probability(p: float | None) -> str:
    return DASH if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def _exponential(estimate: Estimate | None) -> Estimate | None:
    if estimate is None:
        return None
    ends = estimate.ci95 and (math.exp(estimate.ci95[0]), math.exp(estimate.ci95[1]))
    return Estimate(math.exp(estimate.value), ends, estimate.n)
