"""Looks at the whole run where it stands still, and says where else to look (AVO, AKO)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from portkern.agent.attempt import Attempt, Diagnosis
from portkern.agent.axes import AgentContext
from portkern.agent.critic import reading, shown
from portkern.agent.critic.reading import Form, Text, Texts, brief
from portkern.agent.critic.silent import AskingCriticOptions, Silent
from portkern.agent.memory.text import action, result


class Review(Form):
    problem: Text
    directions: Texts = ()


class SupervisorOptions(AskingCriticOptions):
    """It speaks after ``stalled`` steps in a row without a faster kernel, and again after as many;
    ``directions`` that it gives at most, of ``words`` each; ``tried``: of how many attempts it is
    told, the newest."""

    kind: str = "supervisor"
    stalled: int = Field(3, ge=1)
    directions: int = Field(3, ge=1)
    words: int = Field(60, ge=1)
    tried: int = Field(100, ge=1)


class Supervisor(Silent):
    options_type: ClassVar[type[SupervisorOptions]] = SupervisorOptions

    def __init__(self, options: SupervisorOptions) -> None:
        super().__init__(options)
        self.options = options

    async def diagnose(self, seen: Attempt, context: AgentContext) -> Diagnosis | None:
        """The review, at the first attempt of a step. Of a step with several the others are not
        known then, so that it is on the steps before."""
        so_far = [*context.log, *([seen] if seen.siblings == 1 else [])]
        still = stalled(so_far)
        if seen.number or not still or still % self.options.stalled:
            return None
        best = max(context.log.correct, key=lambda one: one.score, default=seen)
        lines = [
            f"- {one.id}: {action(one) or 'no idea was given'}; {result(one, context.task)}"
            for one in so_far[-self.options.tried :]
        ]
        answer = await reading.ask(
            context.llm,
            self.options.role,
            "critic_stalled",
            Review,
            **shown.facts(best, context),
            record="\n".join(lines),
            wanted=self.options.directions,
            words=self.options.words,
        )
        several = answer.directions[: self.options.directions]
        directions = tuple(brief(each, self.options.words) for each in several)
        problem = brief(answer.problem, self.options.words)
        return Diagnosis(critic=self.options.kind, problem=problem, lessons=directions)


def stalled(attempts: Sequence[Attempt]) -> int:
    """The steps since the last one that brought a faster kernel, or the first right one."""
    best, since = 0.0, 0
    scores: dict[int, float] = {}
    for attempt in attempts:
        scores[attempt.slot] = max(scores.get(attempt.slot, 0.0), attempt.score)
    for score in scores.values():
        best, since = (score, 0) if score > best else (best, since + 1)
    return since
