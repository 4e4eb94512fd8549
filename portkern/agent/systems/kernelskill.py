"""KernelSkill: a long-term memory of skills, of which measurements and the code say which are
allowed, and a short-term one of what was tried on a kernel and in mending it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from portkern.agent.attempt import Attempt
from portkern.agent.axes import KernelDraft
from portkern.agent.critic import rules
from portkern.agent.critic.reading import Bound
from portkern.agent.critic.rules import Between
from portkern.agent.log import Log
from portkern.agent.memory.family import family
from portkern.agent.proposer.planned import Planned, named
from portkern.agent.proposer.writing import KernelWriter
from portkern.agent.replies import Unread
from portkern.agent.slot import Arm, Slot
from portkern.agent.strategy.search import Count, Search, failing, ranked, written
from portkern.agent.task import Task
from portkern.spec.foreign_text import yaml_value

MEND, OPTIMISE = "debug", "optimise"
Factor = Annotated[float, Field(ge=1)]


class SkillRounds(Search):
    """A kernel that fails is mended until it is right; else the base is optimised. A kernel is the
    new base when it is ``factor`` times as fast as that, or its speedup is more by ``more``."""

    class Options(Search.Options):
        rounds: Count | None = 10
        factor: Factor = 1.3
        more: Annotated[float, Field(ge=0)] = 0.3

    class State(Search.State):
        base: str = ""
        mending: str = ""

    options: Options
    state: State

    def next(self, known: Log) -> Slot | None:
        state = self.state
        if state.out or self.asked_of_authors == self.options.rounds:
            return None
        if state.mending:
            return Slot(parents=(state.mending,), operator=MEND)
        return Slot(parents=(state.base,), operator=OPTIMISE) if state.base else Slot()

    def learn(self, slot: Slot, attempts: Sequence[Attempt], known: Log) -> None:
        state, best = self.state, next(iter(ranked(attempts)), None)
        if best is None:
            state.mending = next((one.id for one in failing(attempts)), state.mending)
            return
        state.mending = ""
        before = known[state.base].score if state.base else 0.0
        if best.score >= before * self.options.factor or best.score - before >= self.options.more:
            state.base = best.id


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SkillCase(_Part):
    """``has`` and ``lacks`` are features of the code."""

    bound: tuple[Bound, ...]
    families: tuple[str, ...] = ()
    has: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    when: dict[str, Between] = {}
    methods: tuple[str, ...]

    def fits(self, attempt: Attempt, task: Task) -> bool:
        metrics, found = attempt.metrics, features(attempt.source)
        measured = all(
            name in metrics and each.least <= metrics[name] < each.below
            for name, each in self.when.items()
        )
        return (
            rules.bound(metrics, task) in self.bound
            and (not self.families or family(task.op) in self.families)
            and found.issuperset(self.has)
            and found.isdisjoint(self.lacks)
            and measured
        )


class SkillTable(_Part):
    features: dict[str, str]
    methods: dict[str, str]
    cases: tuple[SkillCase, ...]


@cache
def table() -> SkillTable:
    text = files(__package__).joinpath("kernelskill.yaml").read_text("utf-8")
    return SkillTable.model_validate(yaml_value(text))


def features(source: str) -> set[str]:
    return {name for name, pattern in table().features.items() if re.search(pattern, source)}


def allowed(base: Attempt, task: Task, log: Log) -> list[Arm]:
    """The methods of all cases that fit the kernel, without those that were tried on it, unless
    there are no others."""
    fitting = [case for case in table().cases if case.fits(base, task)]
    methods = list(dict.fromkeys(method for case in fitting for method in case.methods))
    tried = {child.arm for child in written(log.children(base.id))}
    left = [method for method in methods if method not in tried] or methods
    return [Arm(method, table().methods[method]) for method in left]


class Skilled(Planned):
    """A planner takes one of the methods that are allowed, a coder applies it; a debugger mends."""

    operators = (MEND, OPTIMISE)
    others = ("planner", "debugger")
    planning = "macro"

    async def draft(self, writer: KernelWriter) -> KernelDraft:
        parent, context = writer.parent, writer.context
        if parent is None:
            return replace(await writer.write("direct"), operator="init")
        if not parent.correct:
            mended = await writer.write("debug", role="debugger", shown=[parent])
            return replace(mended, operator=MEND, arm=parent.arm, idea=f"mend {parent.id}")
        arms = {arm.name: arm for arm in allowed(parent, context.task, context.log)}
        writer = replace(writer, arms=arms)
        plan = await self.plan(writer)
        if isinstance(plan, Unread):
            return KernelDraft(None, detail=plan.why, operator=OPTIMISE)
        draft = await self.realised(writer, "micro", plan)
        return replace(draft, operator=OPTIMISE, arm=named(plan.text, arms))
