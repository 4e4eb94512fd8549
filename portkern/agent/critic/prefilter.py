"""Verifiers vote on kernels before any is run; the best of them go on (the AI CUDA Engineer).

They look at each kernel from different sides. Votes only rank: however bad they all are, some
kernels reach the hardware, whose word counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from pydantic import Field

from portkern.agent.attempt import Status
from portkern.agent.axes import AgentContext, KernelDraft
from portkern.agent.critic import reading
from portkern.agent.critic.reading import Form, Text, brief
from portkern.agent.critic.silent import AskingCriticOptions, Silent
from portkern.errors import ModelError
from portkern.spec.op import PRECISIONS

#: What the verifiers look for, in turns.
SIDES = (
    "whether it compiles: syntax, types, names, and the form of its entry",
    "memory: indices, bounds, races, barriers, and whether each output element is written once",
    "numbers: the formula, reductions, initial values, and precision",
)
#: The opinion about a kernel that nobody voted on.
UNDECIDED = 0.5


class Vote(Form):
    works: bool
    reason: Text = ""


class PrefilterOptions(AskingCriticOptions):
    """``k`` verifiers look at each kernel; the best ``keep`` go on. ``words`` of a reason are
    kept."""

    kind: str = "prefilter"
    k: int = Field(3, ge=1)
    keep: int = Field(4, ge=1)
    words: int = Field(40, ge=1)


class Prefilter(Silent):
    options_type: ClassVar[type[PrefilterOptions]] = PrefilterOptions

    def __init__(self, options: PrefilterOptions) -> None:
        super().__init__(options)
        self.options = options

    async def screen(
        self, drafts: Sequence[KernelDraft], context: AgentContext
    ) -> list[KernelDraft]:
        """Nobody is asked where all would go on anyway."""
        asked = [i for i, draft in enumerate(drafts) if draft.candidate and not draft.status]
        if len(asked) <= self.options.keep:
            return list(drafts)
        polls = await asyncio.gather(*(self._poll(i, drafts[i], context) for i in asked))
        by_draft = dict(zip(asked, polls, strict=True))
        ranked = sorted(asked, key=lambda i: (-_share(by_draft[i][0]), i))
        decided = list(drafts)
        for place, i in enumerate(ranked):
            decided[i] = self._decided(drafts[i], *by_draft[i], kept=place < self.options.keep)
        return decided

    async def _poll(
        self, number: int, draft: KernelDraft, context: AgentContext
    ) -> tuple[list[Vote], tuple[str, ...]]:
        """The votes that could be read, and the calls that they took."""
        callers = [context.llm.within(f"screen.{number}.{i}") for i in range(self.options.k)]
        task = context.task

        async def vote(i: int) -> Vote | None:
            try:
                return await reading.ask(
                    callers[i],
                    self.options.role,
                    "critic_vote",
                    Vote,
                    task=task,
                    draft=draft,
                    reference=task.op.reference_source.strip(),
                    precision=PRECISIONS[task.op.precision],
                    constraints=task.constraints.lines,
                    guide=task.guide,
                    side=SIDES[i % len(SIDES)],
                    words=self.options.words,
                )
            except ModelError:
                return None  # it abstains: a run does not end for want of a vote

        votes = await asyncio.gather(*map(vote, range(self.options.k)))
        calls = tuple(call for caller in callers for call in caller.calls)
        return [vote for vote in votes if vote], calls

    def _decided(
        self, draft: KernelDraft, votes: Sequence[Vote], calls: tuple[str, ...], *, kept: bool
    ) -> KernelDraft:
        against = [vote.reason for vote in votes if not vote.works and vote.reason]
        note = f"{sum(v.works for v in votes)} of {len(votes)} verifiers expect it to work"
        if against:
            note += f"; against it: {brief(against[0], self.options.words)}"
        draft = replace(draft, notes=(*draft.notes, note), calls=(*draft.calls, *calls))
        return draft if kept else replace(draft, status=str(Status.SCREENED), detail=note)


def _share(votes: Sequence[Vote]) -> float:
    return sum(vote.works for vote in votes) / len(votes) if votes else UNDECIDED
