"""What all proposers that ask models share: the facts of a prompt, and one kernel of a reply."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from portkern.agent import prompts
from portkern.agent.attempt import Attempt, Block
from portkern.agent.axes import Caller, Context, Draft, Message
from portkern.agent.proposer import menu, reading
from portkern.agent.slot import Arm, Slot
from portkern.agent.task import Task
from portkern.errors import ModelError

#: Limits of a target that say how it combines others, which a kernel's author cannot act on.
_NOT_TOLD = ("vendor",)


class Options(BaseModel):
    """``asks``: how often a model is asked for one kernel before that ends without code;
    ``authors``: roles that write, by weight; ``temperature`` above the role's own, with a step for
    each island (chains that are to differ); ``actions``: ``open``, ``menu/<name>`` or ``judge``
    (what the parent's diagnosis says)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: str
    actions: str = "open"
    asks: int = Field(2, ge=1)
    authors: dict[str, float] = {"coder": 1.0}
    temperature: float | None = Field(None, ge=0)
    temperature_step: float = 0.0


class Modelled:
    """A proposer that asks models: the ``authors`` of its options, and those of ``others``."""

    options_type: ClassVar[type[Options]] = Options
    operators: ClassVar[tuple[str, ...]] = ()
    plans: ClassVar[bool] = False
    others: ClassVar[tuple[str, ...]] = ()

    def __init__(self, options: Options) -> None:
        self.options = options
        #: The methods of a graph, with ``actions=graph``: whoever has the graph sets them.
        self.given: Sequence[Arm] = ()

    @property
    def roles(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys([*self.others, *self.options.authors]))

    def arms(self, task: Task) -> Sequence[Arm]:
        return self.given or menu.arms(self.options.actions, task)

    def writer(self, task: Task) -> Writer:
        return Writer(self.options, {arm.name: arm for arm in self.arms(task)})


def callers(slot: Slot, context: Context) -> list[Caller]:
    """One for each kernel of the slot, whose calls are numbered apart."""
    return (
        [context.llm.within(str(k)) for k in range(slot.size)] if slot.size > 1 else [context.llm]
    )


class Writer:
    """Asks the author of a slot for one kernel."""

    def __init__(self, options: Options, arms: dict[str, Arm]) -> None:
        self.options, self.arms = options, arms

    def author(self, context: Context) -> str:
        roles = list(self.options.authors)
        return context.random.choices(roles, list(self.options.authors.values()))[0]

    def temperature(self, slot: Slot) -> float | None:
        if self.options.temperature is None:
            return None
        return self.options.temperature + self.options.temperature_step * slot.island

    async def write(
        self, slot: Slot, context: Context, prompt: str, *, llm: Caller | None = None,
        role: str = "", read: Callable[[str, bool], reading.Reading] | None = None, **more: Any,
    ) -> Draft:  # fmt: skip
        """One kernel by ``prompt``, whose facts are the task's and ``more``. A reply without code
        is answered with the reason, until ``asks`` are over."""
        llm = llm or context.llm
        role = role or self.author(context)
        read = read or (lambda text, cut: reading.kernel(text, context.task, cut=cut))
        messages = prompts.render(prompt, **facts(slot, context, role, self.arms), **more)
        why, calls = "", list[str]()
        for _ in range(self.options.asks):
            try:
                reply = await llm.ask(
                    role, messages, prompt=prompts.named(prompt), temperature=self.temperature(slot)
                )
            except ModelError as error:
                return Draft(None, detail=str(error), calls=tuple(calls))
            calls.append(reply.call)
            found = read(reply.text, reply.cut)
            if found.source:
                candidate = context.task.candidate(found.source, author=reply.model or role)
                return Draft(candidate, rationale=found.rest, calls=tuple(calls))
            why = found.why
            again = prompts.render("again", why=why, tag=reading.TAGS[context.task.language][0])
            messages = [*messages, Message("assistant", reply.text), *again]
        return Draft(None, detail=why, calls=tuple(calls))


def facts(slot: Slot, context: Context, role: str, arms: dict[str, Arm]) -> dict[str, Any]:
    """What every template of a kernel may name."""
    task = context.task
    limits = task.target.limits.model_dump(exclude_none=True)
    parents = context.log.some(slot.parents)
    return {
        "task": task,
        "tag": reading.TAGS[task.language][0],
        "declaration": task.backend.declaration(task.op.signature, task.language),
        "reference": task.op.reference_source.strip(),
        "precision": task.op.precision.replace("_", " "),
        "limits": {k.replace("_", " "): v for k, v in limits.items() if k not in _NOT_TOLD},
        "knobs": task.target.knobs,
        "constraints": task.constraints.told,
        "blocks": context.memory.view(slot, role, context.log, task),
        "phase": slot.phase,
        "arm": arms.get(slot.arm) or (Arm(slot.arm, slot.arm) if slot.arm else None),
        "parents": parents,
        "parent": parents[0] if parents else None,
    }


def told(attempt: Attempt) -> list[Block]:
    """What is known of an attempt besides its code."""
    blocks = list(attempt.feedback)
    if attempt.diagnosis:
        lines = [attempt.diagnosis.problem, attempt.diagnosis.why, attempt.diagnosis.fix]
        blocks.append(Block(kind="diagnosis", title="Diagnosis", text="\n".join(filter(None, lines))))  # fmt: skip  # noqa: E501
    return blocks
