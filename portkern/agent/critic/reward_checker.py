"""Looks at attempts that are too fast to be believed (CUDA-L1). What it says is a note: whether a
kernel passes is the harness's to decide, which times and checks it."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from portkern.agent.attempt import Attempt, Diagnosis, Status
from portkern.agent.axes import AgentContext
from portkern.agent.critic import reading, shown
from portkern.agent.critic.reading import Form, Text, brief
from portkern.agent.critic.silent import AskingCriticOptions, Silent


class Opinion(Form):
    plausible: bool
    reason: Text = ""


class RewardCheckerOptions(AskingCriticOptions):
    """Asked of attempts that are more than ``above`` times as fast as the framework."""

    kind: str = "reward_checker"
    above: float = Field(5.0, gt=0)
    words: int = Field(40, ge=1)


class RewardChecker(Silent):
    options_type: ClassVar[type[RewardCheckerOptions]] = RewardCheckerOptions

    def __init__(self, options: RewardCheckerOptions) -> None:
        super().__init__(options)
        self.options = options

    async def diagnose(self, seen: Attempt, context: AgentContext) -> Diagnosis | None:
        if seen.status is not Status.PASSED or seen.score <= self.options.above:
            return None
        answer = await reading.ask(
            context.llm,
            self.options.role,
            "critic_reward",
            Opinion,
            **shown.facts(seen, context),
            words=self.options.words,
        )
        if answer.plausible:
            return None
        doubt = f"{seen.score:.3g} times as fast as the framework may not be real"
        reason = brief(answer.reason, self.options.words)
        return Diagnosis(
            critic=self.options.kind,
            problem=f"{doubt}: {reason}" if reason else doubt,
            lessons=(f"Doubted: {reason}",) if reason else (),
        )
