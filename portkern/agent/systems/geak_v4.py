"""GEAK's fourth version, for one kernel: a tech lead, engineers by specialty, and an integrator.

Each round a tech lead gives directions, and an engineer takes each by itself, with tools. Where
several come to something an integrator combines them, and the best of the round is what the next
one builds on, if it is faster by enough. Directions are the budget.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Final

from pydantic import Field

from portkern.agent import replies
from portkern.agent.attempt import Attempt, PromptBlock
from portkern.agent.axes import AgentContext, KernelDraft, Reply
from portkern.agent.log import Log
from portkern.agent.memory.history import Told, VisibleLog, last
from portkern.agent.proposer.tool_agent import ToolAgent
from portkern.agent.proposer.writing import KernelWriter
from portkern.agent.replies import Unread
from portkern.agent.slot import Slot
from portkern.agent.strategy.search import Count, Search, names, ranked, written

LEAD, INTEGRATOR = "tech_lead", "integrator"
INTEGRATE, STOP = "integrate", "stop"
#: It has a round of its own, and costs more than others.
DEEP: Final = "deep_explore"
SPECIALTIES: Final = {
    "algorithm": "another way to compute the same, with less work or fewer passes",
    "memory": "what is read and written, in which order, and where it is kept",
    "compute": "instructions, their order, and how well the units are filled",
    "host_runtime": "launches, sizes of blocks and grids, and everything outside of the kernel",
    DEEP: "the kernel written anew, by whatever means, towards what the hardware allows",
}


class TeamRounds(Search):
    """``directions`` a round at most and ``budget`` in all, of which one of ``deep_explore`` takes
    ``deep_cost``; ``tries`` kernels for each. The best of a round is built on from ``min_gain``
    on; after ``idle`` rounds without one the search is over."""

    class Options(Search.Options):
        budget: Count = 6
        directions: Count = 3
        tries: Count = 5
        deep_cost: Count = 2
        min_gain: Annotated[float, Field(ge=1)] = 1.02
        idle: Count = 2

    class State(Search.State):
        """``current``: what rounds build on; ``rivals``: what this round came to, and ``parts``
        those of them that are to be integrated."""

        current: str = ""
        rounds: int = 0
        spent: int = 0
        idle: int = 0
        rivals: list[str] = Field(default_factory=list)
        parts: list[str] = Field(default_factory=list)
        done: bool = False

    options: Options
    state: State

    def next(self, known: Log) -> Slot | None:
        state, options = self.state, self.options
        if state.out:
            return None
        if self.given and not state.asked:
            return Slot()
        if state.parts:
            return Slot(parents=tuple(state.parts), operator=INTEGRATE)
        left = options.budget - state.spent
        if state.done or left < 1:
            return None
        state.rounds += 1
        return Slot(
            parents=(state.current,) if state.current else (),
            ideas=min(options.directions, left),
            n=options.tries,
        )

    def learn(self, slot: Slot, attempts: Sequence[Attempt], known: Log) -> None:
        state = self.state
        if self.given and not state.rounds:
            state.current = next(iter(names(written(attempts))), "")
            return
        if slot.operator == INTEGRATE:
            state.rivals += names(ranked(attempts)[:1])
            state.parts = []
        else:
            directions = dict.fromkeys(attempt.arm for attempt in attempts)
            state.spent += sum(map(self._cost, directions)) or 1
            state.done |= any(attempt.operator == STOP for attempt in attempts)
            state.rivals = list(names(self._verified(attempts, known)))
            state.parts = state.rivals if len(state.rivals) > 1 else []
        if not state.parts:
            self._commit(known)

    def _cost(self, direction: str) -> int:
        return self.options.deep_cost if direction.startswith(f"{DEEP}:") else 1

    def _verified(self, attempts: Sequence[Attempt], known: Log) -> list[Attempt]:
        """The fastest of each direction, of those that are faster than what the run began with."""
        start = next(iter(known)).score if self.given else 0.0
        best: dict[str, Attempt] = {}
        for attempt in ranked(attempts):
            best.setdefault(attempt.arm, attempt)
        return [attempt for attempt in best.values() if attempt.score > start]

    def _commit(self, known: Log) -> None:
        state, options = self.state, self.options
        before = known[state.current].score if state.current else 0.0
        best = ranked(known.some(state.rivals))[:1]
        if best and best[0].score > before * options.min_gain:
            state.current, state.idle = best[0].id, 0
        else:
            state.idle += 1
        state.done |= state.idle >= options.idle
        state.rivals = []


@dataclass(frozen=True)
class Direction:
    specialty: str
    text: str

    def __str__(self) -> str:
        return f"{self.specialty}: {self.text}"


class Team(ToolAgent):
    others = (LEAD, INTEGRATOR)

    async def propose(self, slot: Slot, context: AgentContext) -> list[KernelDraft]:
        writer = self.writer(slot, context, context.llm)
        if slot.operator == INTEGRATE:
            return [await self._integrated(writer)]
        plan = await self._plan(writer)
        planned = tuple(context.llm.calls)
        if isinstance(plan, Unread):
            return [KernelDraft(None, detail=plan.why, calls=planned)]
        if not plan:
            why = "the tech lead sees nothing more to be gained"
            return [KernelDraft(None, detail=why, operator=STOP, calls=planned)]
        work = [
            ToolAgent.propose(
                self,
                replace(slot, ideas=0, arm=str(direction)),
                replace(context, llm=context.llm.within(str(number))),
            )
            for number, direction in enumerate(plan)
        ]
        ended = await asyncio.gather(*work, return_exceptions=True)
        failed = [one for one in ended if isinstance(one, BaseException)]
        drafts = [draft for one in ended if not isinstance(one, BaseException) for draft in one]
        if failed and not drafts:  # what an engineer tried is paid for, whatever the others met
            raise failed[0]
        # What the plan costs is the first one's, so that it is counted once.
        return [replace(drafts[0], calls=(*planned, *drafts[0].calls)), *drafts[1:]]

    async def _plan(self, writer: KernelWriter) -> list[Direction] | Unread:
        """The directions of a round; none to stop."""
        most = max(writer.slot.ideas, 1)

        def directions(reply: Reply) -> list[Direction] | Unread:
            for each in list(replies.objects(replies.spoken(reply.text)))[::-1]:
                if each.get("stop") is True:
                    return []
                found = _directions(each.get("directions"))
                if found:
                    deep = [one for one in found if one.specialty == DEEP]
                    return deep[:1] or found[:most]
            return Unread("it holds neither directions with a specialty each nor a stop")

        facts = writer.facts(LEAD, shown=writer.parents[:1])
        facts |= {"wanted": most, "specialties": SPECIALTIES}
        return await writer.ask(LEAD, "directions", directions, facts, form="json")

    async def _integrated(self, writer: KernelWriter) -> KernelDraft:
        draft = await writer.write(
            "crossover",
            role=INTEGRATOR,
            shown=writer.parents,
            inspirations=[],
            level="code",
            rationale=True,
        )
        parts = ", ".join(parent.id for parent in writer.parents)
        calls = tuple(writer.llm.calls)
        return replace(draft, operator=INTEGRATE, idea=f"combine {parts}", calls=calls)


def _directions(given: object) -> list[Direction]:
    """The directions with a specialty that there is, each once."""
    told = [each for each in given if isinstance(each, Mapping)] if isinstance(given, list) else []
    found = [
        Direction(specialty, " ".join(str(each.get("direction") or "").split()))
        for each in told
        if (specialty := str(each.get("specialty"))) in SPECIALTIES
    ]
    return [one for one in dict.fromkeys(found) if one.text]


def ledger(past: VisibleLog) -> Told:
    """Tells of the kernel at hand, and of all directions what came of them and whether it is built
    on, so that what led nowhere is not tried again."""
    yield from last(past)
    rows = _rows(past)
    if rows:
        yield PromptBlock(kind="geak_v4", title="Directions so far", text="\n".join(rows))


def _rows(past: VisibleLog) -> list[str]:
    best: dict[str, Attempt] = {}
    for attempt in past.log:
        key = attempt.arm or (attempt.idea if attempt.operator == INTEGRATE else "")
        if key and attempt.score >= getattr(best.get(key), "score", 0.0):
            best[key] = attempt
    committed = {one.parents[0] for one in past.log if one.parents and one.operator != INTEGRATE}
    committed.update(past.slot.parents[:1])
    return [
        f"- {key}: {_came(one)}{'; it is built on' if one.id in committed else ''}"
        for key, one in best.items()
    ]


def _came(attempt: Attempt) -> str:
    if attempt.correct and attempt.speedups:
        return f"{attempt.score:.2f} times as fast as the framework"
    return "right, not timed" if attempt.correct else attempt.status.replace("_", " ")
