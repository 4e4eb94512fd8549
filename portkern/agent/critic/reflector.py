"""Looks back on an attempt: what went wrong or what limits it, and what is to be remembered.

It has a prompt each for kernels that could not be called, that are wrong, and that work (GEAK),
and asks whether the parent's diagnosis and fix were any good (KernelAgent).
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from portkern.agent.attempt import Attempt, Diagnosis, Status
from portkern.agent.axes import AgentContext
from portkern.agent.critic import reading, shown
from portkern.agent.critic.reading import Bound, Form, Text, Texts, brief
from portkern.agent.critic.silent import FAILED, AskingCriticOptions, Silent

_WRONG = frozenset({Status.WRONG, Status.SUSPICIOUS})


class Reflection(Form):
    problem: Text
    why: Text = ""
    fix: Text = ""
    bound: Bound = ""
    lessons: Texts = ()
    avoid: Texts = ()
    attempt_next: Texts = Field((), alias="try")
    fix_helped: bool | None = None


class ReflectorOptions(AskingCriticOptions):
    """``lessons`` that are kept at most, of ``words`` each; ``reflexion``: whether the parent's
    diagnosis is looked back on; ``first``: whether it speaks where there is no such diagnosis."""

    kind: str = "reflector"
    lessons: int = Field(3, ge=0)
    words: int = Field(60, ge=1)
    reflexion: bool = True
    first: bool = True


class Reflector(Silent):
    options_type: ClassVar[type[ReflectorOptions]] = ReflectorOptions

    def __init__(self, options: ReflectorOptions) -> None:
        super().__init__(options)
        self.options = options

    async def diagnose(self, seen: Attempt, context: AgentContext) -> Diagnosis | None:
        prompt = _prompt(seen.status)
        if not prompt:
            return None
        before = shown.parent(seen, context) if self.options.reflexion else None
        before = before if before and before.diagnosis and before.diagnosis.fix else None
        if before and before.diagnosis:  # of several findings the one that was acted on
            advised = before.diagnosis.about(seen.arm)
            before = before.model_copy(update={"diagnosis": advised})
        elif not self.options.first:
            return None
        answer = await reading.ask(
            context.llm,
            self.options.role,
            prompt,
            Reflection,
            **shown.facts(seen, context),
            before=before,
            wanted=self.options.lessons,
            words=self.options.words,
        )
        words = self.options.words
        return Diagnosis(
            critic=self.options.kind,
            problem=brief(answer.problem, words),
            why=brief(answer.why, words),
            fix=brief(answer.fix, words),
            bound=answer.bound,
            lessons=self._lessons(answer, before),
        )

    def _lessons(self, answer: Reflection, before: Attempt | None) -> tuple[str, ...]:
        """The lessons to be remembered; whether the last fix helped comes first, because that
        was measured."""
        lessons: list[str] = []
        if before and before.diagnosis and answer.fix_helped is not None:
            lessons.append(
                f"{'Helped' if answer.fix_helped else 'Did not help'}: {before.diagnosis.fix}"
            )
        lessons += answer.lessons
        lessons += [f"Avoid: {advice}" for advice in answer.avoid]
        lessons += [f"Try: {advice}" for advice in answer.attempt_next]
        return tuple(
            brief(lesson, self.options.words) for lesson in lessons[: self.options.lessons]
        )


def _prompt(status: Status) -> str:
    if status is Status.PASSED:
        return "critic_analysis"
    if status in _WRONG:
        return "critic_wrong"
    return "critic_failure" if status in FAILED else ""
