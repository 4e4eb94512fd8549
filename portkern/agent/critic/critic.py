"""Turns raw feedback into words that help: a diagnosis (MaxCode), or the next prompt's
instructions (NVIDIA's inference-time scaling)."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from portkern.agent.attempt import Attempt, Diagnosis, Status
from portkern.agent.axes import AgentContext
from portkern.agent.critic import reading, shown
from portkern.agent.critic.reading import Form, Text, brief
from portkern.agent.critic.silent import FAILED, AskingCriticOptions, Silent


class Criticism(Form):
    problem: Text
    instructions: Text


class FeedbackCriticOptions(AskingCriticOptions):
    """``writes`` a ``diagnosis`` of the attempt, or ``instructions`` for the next one, of which
    ``words`` are kept."""

    kind: str = "critic"
    writes: Literal["diagnosis", "instructions"] = "diagnosis"
    words: int = Field(150, ge=1)


class FeedbackCritic(Silent):
    options_type: ClassVar[type[FeedbackCriticOptions]] = FeedbackCriticOptions

    def __init__(self, options: FeedbackCriticOptions) -> None:
        super().__init__(options)
        self.options = options

    async def diagnose(self, seen: Attempt, context: AgentContext) -> Diagnosis | None:
        if seen.status is not Status.PASSED and seen.status not in FAILED:
            return None
        o = self.options
        prompt = "critic_critic" if o.writes == "diagnosis" else "critic_rewrite"
        answer = await reading.ask(
            context.llm, o.role, prompt, Criticism, **shown.facts(seen, context), words=o.words
        )
        return Diagnosis(
            critic=o.kind,
            problem=brief(answer.problem, o.words),
            fix=brief(answer.instructions, o.words),
        )
