"""One defect to mend or one bottleneck to remove, and the one thing to do about it (CudaForge)."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from portkern.agent.attempt import Attempt, Diagnosis, Status
from portkern.agent.axes import Context
from portkern.agent.critic import reading, shown
from portkern.agent.critic.reading import Bound, Form, Text, brief
from portkern.agent.critic.silent import FAILED, AskingCriticOptions, Silent


class Defect(Form):
    problem: Text
    why: Text = ""
    fix: Text


class Bottleneck(Form):
    problem: Text
    method: Text
    plan: Text = ""
    bound: Bound = ""


class Bottlenecks(Form):
    """The worst first."""

    bottlenecks: list[Bottleneck] = Field(min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _alone(cls, data: object) -> object:
        """Where one was asked for, models leave out the list around it."""
        alone = isinstance(data, dict) and "bottlenecks" not in data and "problem" in data
        return {"bottlenecks": [data]} if alone else data


class BottleneckOptions(AskingCriticOptions):
    """``max`` bottlenecks are asked for, of which the first is the diagnosis; ``modes`` in which
    it speaks at all; ``*_words`` is what is kept of each text."""

    kind: str = "bottleneck"
    max: int = Field(1, ge=1)
    modes: tuple[Literal["repair", "optimise"], ...] = ("repair", "optimise")
    problem_words: int = Field(30, ge=1)
    why_words: int = Field(35, ge=1)
    fix_words: int = Field(35, ge=1)


class OneBottleneck(Silent):
    options_type: ClassVar[type[BottleneckOptions]] = BottleneckOptions

    def __init__(self, options: BottleneckOptions) -> None:
        super().__init__(options)
        self.options = options

    async def diagnose(self, seen: Attempt, context: Context) -> Diagnosis | None:
        if seen.status in FAILED and "repair" in self.options.modes:
            return await self._repair(seen, context)
        if seen.status is Status.PASSED and "optimise" in self.options.modes:
            return await self._optimise(seen, context)
        return None

    async def _repair(self, seen: Attempt, context: Context) -> Diagnosis:
        o = self.options
        answer = await reading.ask(
            context.llm,
            o.role,
            "critic_repair",
            Defect,
            **shown.facts(seen, context),
            problem_words=o.problem_words,
            why_words=o.why_words,
            fix_words=o.fix_words,
        )
        return Diagnosis(
            critic=o.kind,
            problem=brief(answer.problem, o.problem_words),
            why=brief(answer.why, o.why_words),
            fix=brief(answer.fix, o.fix_words),
        )

    async def _optimise(self, seen: Attempt, context: Context) -> Diagnosis:
        o = self.options
        answer = await reading.ask(
            context.llm,
            o.role,
            "critic_bottleneck",
            Bottlenecks,
            **shown.facts(seen, context),
            wanted=o.max,
            problem_words=o.problem_words,
            why_words=o.why_words,
            fix_words=o.fix_words,
        )
        worst, *others = answer.bottlenecks[: o.max]
        fix = f"{brief(worst.method, o.why_words)} {brief(worst.plan, o.fix_words)}".strip()
        return Diagnosis(
            critic=o.kind,
            problem=brief(worst.problem, o.problem_words),
            fix=fix,
            bound=worst.bound,
            lessons=tuple(
                f"Also: {brief(other.problem, o.problem_words)} {brief(other.method, o.why_words)}"
                for other in others
            ),
        )
