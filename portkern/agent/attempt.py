"""One candidate of a generation run: where it came from, what became of it, and why."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import ClassVar, Final, Literal

from pydantic import AliasChoices, Field

from portkern.records.jsonl import JsonLine, JsonPart
from portkern.records.record import Cost, Record, Text, Verdict

SCHEMA: Final = 1
#: What a correct kernel scores that could not be timed: as fast as the framework, for all we know.
#: Where nothing can be timed it is the most that one scores (:mod:`portkern.agent.rank`).
UNTIMED: Final = 1.0


class Status(StrEnum):
    """A verdict over all workloads (the first that is not ``passed``), or why there is none."""

    NO_CODE = "no_code"  # the proposer came back without a kernel
    DUPLICATE = "duplicate"  # of an attempt of this run, whose result it has
    SCREENED = "screened"  # a critic held it back from the hardware, or people its idea
    UNSUPPORTED = Verdict.UNSUPPORTED.value
    UNAVAILABLE = Verdict.UNAVAILABLE.value
    REJECTED = Verdict.REJECTED.value
    BUILD_FAILED = Verdict.BUILD_FAILED.value
    CRASHED = Verdict.CRASHED.value
    TIMED_OUT = Verdict.TIMED_OUT.value
    WRONG = Verdict.WRONG.value
    SUSPICIOUS = Verdict.SUSPICIOUS.value
    PASSED = Verdict.PASSED.value

    @classmethod
    def of(cls, records: Sequence[Record]) -> Status:
        """Raises ValueError without a record."""
        if not records:
            raise ValueError("no records, expected one for each workload")
        bad = [record.verdict for record in records if record.verdict is not Verdict.PASSED]
        return cls(str(bad[0] if bad else Verdict.PASSED))


class PromptBlock(JsonPart):
    """A piece of text for a prompt or a reader. ``kind`` names the source or memory it is of.
    ``of_critics``: those who write kernels are not told of it."""

    kind: str
    title: str
    text: str
    of_critics: bool = False


Bound = Literal["", "memory", "compute", "latency", "overhead"]


class FurtherBottleneck(JsonPart):
    """A bottleneck beside the worst one, and what to do about it."""

    problem: str
    fix: str = ""
    bound: Bound = ""


class Diagnosis(JsonPart):
    """A critic's finding on an attempt: the one bottleneck or defect, and the one thing to do.
    ``bound`` is the resource that limits it, where that was found out; ``others`` are less
    urgent; ``lessons`` outlive it."""

    critic: str = Field(validation_alias=AliasChoices("critic", "judge"))  # "judge" before 0.2
    problem: str
    fix: str = ""
    why: str = ""
    bound: Bound = ""
    others: tuple[FurtherBottleneck, ...] = ()
    stop: bool = False  # nothing more is to be gained
    lessons: tuple[str, ...] = ()

    @property
    def fixes(self) -> tuple[str, ...]:
        """The fixes that may be tried, the most urgent first, each once."""
        return tuple(dict.fromkeys(filter(None, (self.fix, *(one.fix for one in self.others)))))

    def about(self, fix: str) -> Diagnosis:
        """The diagnosis with nothing but the finding whose fix this is; unchanged where no
        finding has it."""
        for one in self.others:
            if fix and one.fix == fix != self.fix:
                changes = {"problem": one.problem, "why": "", "fix": fix, "bound": one.bound}
                return self.model_copy(update={**changes, "others": ()})
        return self.model_copy(update={"others": ()}) if fix and fix == self.fix else self

    @property
    def lesser(self) -> list[str]:
        """The other findings, a line each."""
        return [f"Also: {one.problem} {one.fix}".rstrip() for one in self.others]


class Attempt(JsonLine):
    """Line of ``attempts.jsonl``. It holds no clock: equal replies and records make equal lines.

    ``id`` is ``<slot>.<number>``, of ``siblings`` that the slot has; ``turn`` is 1 more than the
    deepest parent's; ``score`` the geometric mean of the speedups over the baseline
    on all scored workloads, :data:`UNTIMED` where a correct kernel could not be timed on each of
    them, 0 for everything else; ``ranked`` what the score follows from where nothing can be timed;
    ``metrics``
    are what sources measured, see
    :mod:`portkern.agent.feedback`; ``calls`` name the lines of ``calls.jsonl`` that it took.
    """

    SCHEMA: ClassVar[int] = SCHEMA

    schema_: Literal[1] = 1
    id: str
    slot: int
    number: int
    siblings: int = 1
    turn: int = 1
    parents: tuple[str, ...] = ()
    arm: str = ""
    operator: Text = ""
    phase: str = ""
    island: int = 0
    op: str
    target: str
    backend: str
    language: str = ""
    dtype: str = "float32"
    author: str = ""
    idea: Text = ""
    rationale: str = ""
    source: str = ""
    digest: str = ""
    donor: str = ""
    status: Status
    detail: Text = ""
    score: float = 0.0
    speedups: dict[str, float] = {}
    ranked: Text = ""
    records: tuple[str, ...] = ()
    metrics: dict[str, float] = {}
    feedback: tuple[PromptBlock, ...] = ()
    diagnosis: Diagnosis | None = None
    notes: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    cost: Cost = Cost()

    @property
    def correct(self) -> bool:
        return self.score > 0


def speedups(records: Sequence[Record], baseline: str) -> dict[str, float]:
    """The speedup on each workload that was timed without too much noise."""
    return {
        record.workload.name: record.speedup[baseline].value
        for record in records
        if baseline in record.speedup and record.comparable
    }


def why_unscored(scored: Sequence[Record], by_workload: Mapping[str, float]) -> str:
    """Why an attempt has no score, where some of its workloads were timed and others were not: on
    those alone it would be compared with siblings by which of them the machine was quiet for."""
    left = len(scored) - len(by_workload)
    if not by_workload or not left:
        return ""
    return f"not scored: {left} of {len(scored)} workloads could not be timed without noise"


def score(status: Status, by_workload: Mapping[str, float]) -> float:
    """See :class:`Attempt`."""
    if status is not Status.PASSED:
        return 0.0
    if not by_workload:
        return UNTIMED
    return math.exp(sum(map(math.log, by_workload.values())) / len(by_workload))


def depth(parents: Sequence[Attempt]) -> int:
    return 1 + max((parent.turn for parent in parents), default=0)
