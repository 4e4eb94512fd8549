"""One defect to mend or one bottleneck to remove, and the one thing to do about it (CudaForge)."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from portkern.agent.attempt import Attempt, Diagnosis, FurtherBottleneck, Status
from portkern.agent.axes import AgentContext
from portkern.agent.critic import ceiling, reading, shown
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
        """Puts a single bottleneck into a list, which models leave out where one was asked for."""
        alone = isinstance(data, dict) and "bottlenecks" not in data and "problem" in data
        return {"bottlenecks": [data]} if alone else data


class BottleneckOptions(AskingCriticOptions):
    """``max`` bottlenecks are asked for, of which the first is the diagnosis; ``modes`` in which
    it speaks at all; ``*_words`` is what is kept of each text, ``defect_words`` and
    ``repair_words`` of a failing kernel's problem and fix. A kernel that reaches ``stop_at``
    percent of what the hardware allows is done, and no model is asked. ``last``: whether it
    speaks of a kernel that nothing is built on."""

    kind: str = "bottleneck"
    max: int = Field(1, ge=1)
    modes: tuple[Literal["repair", "optimise"], ...] = ("repair", "optimise")
    problem_words: int = Field(30, ge=1)
    why_words: int = Field(35, ge=1)
    fix_words: int = Field(35, ge=1)
    defect_words: int = Field(30, ge=1)
    repair_words: int = Field(35, ge=1)
    stop_at: float | None = Field(None, gt=0)
    last: bool = True


class OneBottleneck(Silent):
    options_type: ClassVar[type[BottleneckOptions]] = BottleneckOptions

    def __init__(self, options: BottleneckOptions) -> None:
        super().__init__(options)
        self.options = options

    async def diagnose(self, seen: Attempt, context: AgentContext) -> Diagnosis | None:
        if context.final and not self.options.last:
            return None
        if seen.status in FAILED and "repair" in self.options.modes:
            return await self._repair(seen, context)
        if seen.status is Status.PASSED and "optimise" in self.options.modes:
            return await self._optimise(seen, context)
        return None

    async def _repair(self, seen: Attempt, context: AgentContext) -> Diagnosis:
        o = self.options
        answer = await reading.ask(
            context.llm,
            o.role,
            "critic_repair",
            Defect,
            **shown.facts(seen, context),
            problem_words=o.defect_words,
            why_words=o.why_words,
            fix_words=o.repair_words,
        )
        return Diagnosis(
            critic=o.kind,
            problem=brief(answer.problem, o.defect_words),
            why=brief(answer.why, o.why_words),
            fix=brief(answer.fix, o.repair_words),
        )

    async def _optimise(self, seen: Attempt, context: AgentContext) -> Diagnosis:
        o = self.options
        reached = ceiling.reached(seen.metrics)
        if o.stop_at is not None and reached is not None and reached >= o.stop_at:
            return Diagnosis(critic=o.kind, problem=ceiling.told(seen.metrics), stop=True)
        facts = shown.facts(seen, context)
        if o.stop_at is not None:
            facts["metrics"] = f"{facts['metrics']}\n{ceiling.told(seen.metrics)}".strip()
        answer = await reading.ask(
            context.llm,
            o.role,
            "critic_bottleneck",
            Bottlenecks,
            **facts,
            wanted=o.max,
            problem_words=o.problem_words,
            why_words=o.why_words,
            fix_words=o.fix_words,
        )
        worst, *others = answer.bottlenecks[: o.max]
        return Diagnosis(
            critic=o.kind,
            problem=brief(worst.problem, o.problem_words),
            fix=self._fix(worst),
            bound=worst.bound,
            others=tuple(
                FurtherBottleneck(
                    problem=brief(other.problem, o.problem_words),
                    fix=self._fix(other),
                    bound=other.bound,
                )
                for other in others
            ),
        )

    def _fix(self, found: Bottleneck) -> str:
        method = brief(found.method, self.options.why_words)
        return f"{method} {brief(found.plan, self.options.fix_words)}".strip()
