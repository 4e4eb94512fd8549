"""cuPilot: what evolves is a strategy in words, and a kernel is what a strategy is translated to.

A strategist crosses the strategies of two parents, whose code it does not see. A translator applies
the new one to the initial kernel, a revisor mends what fails, and of what works a critic says which
strategy it follows in fact, which is the one that is crossed later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from portkern.agent import briefing
from portkern.agent.attempt import Attempt, Diagnosis, PromptBlock
from portkern.agent.axes import AgentContext, KernelDraft, Reply
from portkern.agent.critic import ceiling, reading, shown
from portkern.agent.critic.reading import Form, Text, brief
from portkern.agent.critic.silent import FAILED, AskingCriticOptions, Silent
from portkern.agent.log import Log
from portkern.agent.proposer.ideas import Idea, read_ideas
from portkern.agent.proposer.writing import KernelWriter, Modelled, besides
from portkern.agent.replies import Unread
from portkern.agent.slot import Slot
from portkern.agent.strategy.evolutionary import Evolutionary
from portkern.agent.task import Task

#: What the given kernel came of, and what mends another.
GIVEN, MEND = "given", "debug"
PLANNER, REVISOR = "planner", "revisor"
Zone = Literal["", "memory", "compute", "middle"]
#: Within this factor of the ridge neither resource is the only limit.
_MIDDLE = 2.0


class StrategyEvolution(Evolutionary):
    """A population like others, but for a kernel that fails, which is revised ``revisions`` times
    at most before its generation is over."""

    class Options(Evolutionary.Options):
        revisions: Annotated[int, Field(ge=0)] = 2

    class State(Evolutionary.State):
        """``mending``: kernels that are to be revised."""

        mending: list[str] = Field(default_factory=list)

    options: Options
    state: State

    @property
    def operators(self) -> tuple[str, ...]:
        return (*super().operators, MEND) if self.options.revisions else super().operators

    @property
    def _first(self) -> int:
        """The given kernel has no strategy: the first generation comes after it."""
        return self.given + self.options.islands * self.options.init

    def next(self, known: Log) -> Slot | None:
        state = self.state
        if not state.mending:
            return super().next(known)
        if self.asked_of_authors == self.options.trials:
            return None
        failed = known[state.mending.pop(0)]
        state.further += 1
        return Slot(parents=(failed.id,), operator=MEND, island=failed.island)

    def learn(self, slot: Slot, attempts: Sequence[Attempt], known: Log) -> None:
        super().learn(slot, attempts, known)
        for attempt in attempts:
            line = reversed(known.ancestors(attempt.id))
            # of this kernel: what its parents were revised for is over
            revised = sum(1 for _ in takewhile(lambda one: one.operator == MEND, line))
            if attempt.status in FAILED and attempt.source and revised < self.options.revisions:
                self.state.mending.append(attempt.id)


class Strategist(Modelled):
    operators = ("init", "mutate", "crossover", MEND)
    others = (PLANNER, REVISOR)

    async def draft(self, writer: KernelWriter) -> KernelDraft:
        parent = writer.parent
        if writer.slot.operator == MEND and parent is not None:
            draft = await writer.write("debug", role=REVISOR, shown=[parent])
            return replace(draft, operator=MEND, idea=parent.idea)
        strategy = await self._strategy(writer)
        operator = "crossover" if len(writer.parents) > 1 else "init"
        if isinstance(strategy, Unread):
            return KernelDraft(None, detail=strategy.why, operator=operator)
        start = [one for one in writer.context.log if one.operator == GIVEN][:1]
        draft = await writer.write(
            "implement", shown=start, idea=strategy, parent=start[0] if start else None
        )
        return replace(
            draft, operator=operator, idea=strategy.text, rationale=strategy.why or draft.rationale
        )

    async def _strategy(self, writer: KernelWriter) -> Idea | Unread:
        """A new strategy, of those of the parents or from nothing."""

        def strategy(reply: Reply) -> Idea | Unread:
            ideas = read_ideas(reply.text)
            return ideas[-1] if ideas else Unread("no strategy came of the planner's reply")

        limits = roofline(writer.context.task, writer.parents)
        facts = besides(writer.facts(PLANNER), limits)
        facts["strategies"] = [(aligned(parent), parent) for parent in writer.parents]
        return await writer.ask(PLANNER, "strategy", strategy, facts, form="json")


def aligned(attempt: Attempt) -> str:
    """The strategy that a kernel follows: as it was found in its code, or else as it was meant."""
    told = attempt.diagnosis
    return told.problem if told and told.critic == "cupilot" else attempt.idea


def roofline(task: Task, parents: Sequence[Attempt]) -> list[PromptBlock]:
    """Tells which resource is the limit, by the operation's intensity and, where somebody counted,
    by what the fastest parent reaches; nothing where no peaks are known."""
    lines = [_ADVICE[zone(task)]] if zone(task) else []
    lines += filter(None, (ceiling.told(parent.metrics) for parent in parents[:1]))
    text = "\n".join(lines)
    return [PromptBlock(kind="roofline", title="By the roofline", text=text)] if text else []


_ADVICE = {
    "memory": "Memory is the limit: what moves fewer bytes, or moves them better, comes first.",
    "compute": "Arithmetic is the limit: what keeps its units busy comes first.",
    "middle": "Memory and arithmetic are both near the limit: a strategy has to serve both.",
}


def zone(task: Task) -> Zone:
    """Places the operation on the target's roofline, by the largest size that is timed or meant."""
    ridge = briefing.ridge(task)
    timed = task.ends == "hardware"
    several = task.workloads[task.scored] if timed else task.op.workloads.get("typical", ())
    if not ridge or not several:
        return ""
    work = max(several, key=lambda one: task.op.nbytes(one.dims, task.dtype))
    intensity = task.op.flops(work.dims) / max(task.op.nbytes(work.dims, task.dtype), 1)
    if intensity < float(ridge) / _MIDDLE:
        return "memory"
    return "compute" if intensity > float(ridge) * _MIDDLE else "middle"


class Followed(Form):
    strategy: Text


class AlignmentOptions(AskingCriticOptions):
    """``words`` of the strategy are kept."""

    kind: str = "cupilot"
    words: int = Field(80, ge=1)


class Alignment(Silent):
    """Says which strategy a kernel that works follows, whatever it was meant to follow."""

    options_type: ClassVar[type[AlignmentOptions]] = AlignmentOptions

    def __init__(self, options: AlignmentOptions) -> None:
        super().__init__(options)
        self.options = options

    async def diagnose(self, seen: Attempt, context: AgentContext) -> Diagnosis | None:
        if not seen.correct or not seen.idea or seen.operator == GIVEN:
            return None
        options = self.options
        answer = await reading.ask(
            context.llm,
            options.role,
            "critic_strategy",
            Followed,
            **shown.facts(seen, context),
            words=options.words,
        )
        return Diagnosis(critic=options.kind, problem=brief(answer.strategy, options.words))
