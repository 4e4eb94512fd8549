"""The critic that lets everything through and says nothing; what the others leave out is its."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from portkern.agent.attempt import Attempt, Diagnosis, Status
from portkern.agent.axes import AgentContext, KernelDraft

#: The endings of a kernel that was evaluated and failed.
FAILED = frozenset(
    {
        Status.REJECTED,
        Status.BUILD_FAILED,
        Status.CRASHED,
        Status.TIMED_OUT,
        Status.WRONG,
        Status.SUSPICIOUS,
    }
)


class CriticOptions(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: str


class AskingCriticOptions(CriticOptions):
    """``role`` is the model that is asked, a key of ``models``."""

    role: str = "critic"


class Silent:
    options_type: ClassVar[type[CriticOptions]] = CriticOptions

    def __init__(self, options: CriticOptions) -> None:
        self.roles: tuple[str, ...] = (
            (options.role,) if isinstance(options, AskingCriticOptions) else ()
        )

    async def screen(
        self, drafts: Sequence[KernelDraft], context: AgentContext
    ) -> list[KernelDraft]:
        return list(drafts)

    async def diagnose(self, seen: Attempt, context: AgentContext) -> Diagnosis | None:
        return None
