"""Several critics, one after the other: KernelAgent's are a bottleneck and a reflector."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from portkern.agent.attempt import Attempt, Diagnosis
from portkern.agent.axes import AgentContext, Critic, KernelDraft
from portkern.agent.critic.silent import CriticOptions as Base
from portkern.agent.critic.silent import Silent
from portkern.errors import BudgetSpent, ModelError


class ChainOptions(Base):
    """``chain``: kinds of critics, or their options with a ``kind``."""

    kind: str = "chain"
    chain: list[str | dict[str, object]] = Field(min_length=1)


class CriticChain(Silent):
    options_type: ClassVar[type[ChainOptions]] = ChainOptions

    def __init__(self, options: ChainOptions, critics: Sequence[Critic]) -> None:
        super().__init__(options)
        self.critics = critics
        self.roles = tuple(dict.fromkeys(role for critic in critics for role in critic.roles))

    async def screen(
        self, drafts: Sequence[KernelDraft], context: AgentContext
    ) -> list[KernelDraft]:
        kept = list(drafts)
        for critic in self.critics:
            kept = await critic.screen(kept, context)
        return kept

    async def diagnose(self, seen: Attempt, context: AgentContext) -> Diagnosis | None:
        """The first one's diagnosis, with the lessons of all. Raises what kept a critic from
        speaking when nobody else spoke."""
        diagnoses: list[Diagnosis] = []
        kept_from: ModelError | BudgetSpent | None = None
        for critic in self.critics:
            try:
                said = await critic.diagnose(seen, context)
            except (ModelError, BudgetSpent) as error:
                kept_from = kept_from or error
                continue
            diagnoses += [said] if said else []
        if not diagnoses and kept_from:
            raise kept_from
        if not diagnoses:
            return None
        lessons = dict.fromkeys(lesson for said in diagnoses for lesson in said.lessons)
        return diagnoses[0].model_copy(update={"lessons": tuple(lessons)})
