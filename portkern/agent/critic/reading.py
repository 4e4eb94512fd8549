"""Reads the answer of a critic's model: one JSON object in whatever words it comes with."""

from __future__ import annotations

import math
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from portkern.agent import prompts, replies
from portkern.agent.axes import Caller, PromptMessage, Reply
from portkern.agent.replies import Unread as Unread
from portkern.errors import ModelError

AGAIN = "critic_again"


class Form(BaseModel):
    """The fields that an answer must hold; what else it holds is not looked at."""

    model_config = ConfigDict(frozen=True, extra="ignore")


F = TypeVar("F", bound=Form)


def _text(value: object) -> object:
    """Models give a list where a text was asked for, or a number."""
    if isinstance(value, list):
        return "; ".join(map(str, value))
    return value if value is None else str(value).strip()


def _texts(value: object) -> object:
    return [value] if isinstance(value, str) else value or []


def _resource(value: object) -> object:
    """Unknown where a model calls it something else."""
    return next((resource for resource in RESOURCES if resource in str(value).lower()), "")


def within(least: float, most: float) -> BeforeValidator:
    """A number on a scale, which models exceed, or write as text."""

    def number(value: object) -> float:
        read = float(str(value))
        if math.isnan(read):
            raise ValueError("expected a number")
        return min(max(read, least), most)

    return BeforeValidator(number)


RESOURCES = ("memory", "compute", "latency", "overhead")
Text = Annotated[str, BeforeValidator(_text)]
Texts = Annotated[tuple[Text, ...], BeforeValidator(_texts)]
Bound = Annotated[
    Literal["", "memory", "compute", "latency", "overhead"], BeforeValidator(_resource)
]


def read(text: str, form: type[F]) -> F | Unread:
    """The last object of the reply that is of this form: before it models think aloud."""
    why = "there is no JSON object in it"
    answer: F | None = None
    for each in replies.objects(replies.spoken(text)):
        try:
            answer = form.model_validate(each)
        except ValidationError as error:
            first = error.errors()[0]
            why = f"{'.'.join(map(str, first['loc'])) or 'the object'}: {first['msg']}"
    return Unread(why) if answer is None else answer


async def ask(llm: Caller, role: str, prompt: str, form: type[F], **facts: object) -> F:
    """Asked once more, with the reason, when the answer cannot be read. Raises ModelError when
    that one cannot be read either."""
    messages = prompts.render(prompt, **facts)
    reply = await llm.ask(role, messages, prompt=prompts.named(prompt))
    answer = read(reply.text, form)
    if isinstance(answer, Unread):
        said = PromptMessage("assistant", reply.text.strip() or "(nothing)")
        more = prompts.render(AGAIN, why=_why(answer, reply))
        reply = await llm.ask(role, [*messages, said, *more], prompt=prompts.named(AGAIN))
        answer = read(reply.text, form)
    if isinstance(answer, Unread):
        raise ModelError(f"the answer of {role!r} could not be read twice: {_why(answer, reply)}")
    return answer


def brief(text: str, words: int) -> str:
    """The first so many words."""
    split = text.split()
    return " ".join(split) if len(split) <= words else " ".join(split[:words]) + " …"


def _why(unread: Unread, reply: Reply) -> str:
    return "it was cut off at max_tokens" if reply.cut else unread.why
