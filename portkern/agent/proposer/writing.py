"""The parts that proposers share when they ask models: the facts of a prompt, and one kernel of
a reply."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from portkern.agent import briefing, prompts, replies
from portkern.agent.attempt import Attempt, PromptBlock, Status
from portkern.agent.axes import AgentContext, Caller, KernelDraft, PromptMessage, Reply
from portkern.agent.log import Log
from portkern.agent.proposer import menu, reading
from portkern.agent.proposer.reading import ReplyCode
from portkern.agent.replies import Unread
from portkern.agent.slot import Arm, Slot
from portkern.agent.task import Task
from portkern.errors import ModelError
from portkern.spec import kernel_forms

T = TypeVar("T")
Read = Callable[[Reply], T | Unread]
Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]

#: A block of code in a memory's text, and what that says of its missing end.
_FENCED = re.compile(
    r"^(`{3,})[\w+]*\n(.*?)\n?^\1$(?:\n… \d+ characters left out$)?", re.MULTILINE | re.DOTALL
)
_BELOW = "(Its code stands further down.)"


class WriterOptions(BaseModel):
    """``asks``: how often a model is asked for one kernel, idea or plan before that ends without;
    ``authors``: roles that write, by weight; ``temperature`` instead of the role's own, with a step
    for each island (chains that are to differ), and ``temperature_later`` instead of both for what
    has a parent; ``actions``: ``open``, ``menu/<name>``, ``graph``
    or ``critic`` (what the parent's diagnosis says); ``form``: of the files that are asked for,
    portkern's own or a class ModelNew, where the backend takes one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: str
    actions: str = "open"
    form: Literal["entry", "module"] = "entry"
    asks: int = Field(default=2, ge=1)
    authors: dict[str, Weight] = {"coder": 1.0}
    temperature: float | None = Field(default=None, ge=0)
    temperature_step: float = 0.0
    temperature_later: float | None = Field(default=None, ge=0)

    @field_validator("authors")
    @classmethod
    def _somebody_writes(cls, value: dict[str, float]) -> dict[str, float]:
        if not any(value.values()):
            raise ValueError("expected a role with a weight above 0")
        return value

    @field_validator("temperature_step")
    @classmethod
    def _added_to_something(cls, value: float, info: ValidationInfo) -> float:
        if value and info.data.get("temperature") is None:
            raise ValueError("set temperature too: the step is added to it")
        return value


class Modelled:
    """A proposer that asks models: the ``authors`` of its options, and those of ``others``. Most
    of them write each kernel of a slot by itself, in :meth:`one`."""

    options_type: ClassVar[type[WriterOptions]] = WriterOptions
    operators: ClassVar[tuple[str, ...]] = ()
    plans: ClassVar[bool] = False
    others: ClassVar[tuple[str, ...]] = ()

    def __init__(self, options: WriterOptions) -> None:
        self.options = options
        #: The methods of a graph, with ``actions=graph``: whoever has the graph sets them.
        self.given: Sequence[Arm] = ()

    @property
    def roles(self) -> tuple[str, ...]:
        writing = [role for role, weight in self.options.authors.items() if weight]
        return tuple(dict.fromkeys([*self.others, *writing]))

    @property
    def decisive(self) -> Mapping[str, object]:
        return {}

    def arms(self, task: Task) -> Sequence[Arm]:
        return self.given or menu.arms(self.options.actions, task)

    async def propose(self, slot: Slot, context: AgentContext) -> list[KernelDraft]:
        """Authors are drawn first: it does not matter then who answers first."""
        count = slot.size
        callers = [context.llm.within(str(k)) for k in range(count)] if count > 1 else [context.llm]
        writers = [self.writer(slot, context, llm) for llm in callers]
        drafts = await asyncio.gather(*map(self.draft, writers))
        return [
            replace(draft, calls=tuple(writer.llm.calls))
            for draft, writer in zip(drafts, writers, strict=True)
        ]

    async def draft(self, writer: KernelWriter) -> KernelDraft:
        raise NotImplementedError

    def writer(self, slot: Slot, context: AgentContext, llm: Caller) -> KernelWriter:
        """The writer of one kernel; with ``actions=critic`` its arm is what the parent's critic
        would do, and from a menu of one it is that one."""
        if self.options.actions == "critic" and not slot.arm:
            evaluated = [
                attempt.diagnosis
                for attempt in context.log.some(slot.parents[:1])
                if attempt.diagnosis
            ]
            slot = replace(slot, arm=evaluated[0].fix) if evaluated else slot
        arms = {arm.name: arm for arm in self.arms(context.task)}
        if len(arms) == 1 and not slot.arm:
            slot = replace(slot, arm=next(iter(arms)))
        roles, weights = self.options.authors.keys(), self.options.authors.values()
        author = context.random.choices(list(roles), list(weights))[0]
        return KernelWriter(self.options, arms, slot, context, llm, author)


@dataclass(frozen=True)
class KernelWriter:
    """Asks for one kernel of a slot. ``author`` is the role that writes it; ``llm`` makes no call
    that is not for this kernel."""

    options: WriterOptions
    arms: Mapping[str, Arm]
    slot: Slot
    context: AgentContext
    llm: Caller
    author: str

    @cached_property
    def parents(self) -> list[Attempt]:
        """The slot's parents that have code. A duplicate's result is that of the attempt that
        came first."""
        log = self.context.log
        return [
            _evaluated(attempt, log) for attempt in log.some(self.slot.parents) if attempt.source
        ]

    @property
    def parent(self) -> Attempt | None:
        return self.parents[0] if self.parents else None

    @property
    def shown(self) -> list[Attempt]:
        """Others that the slot wants to be looked at."""
        log = self.context.log
        return [_evaluated(attempt, log) for attempt in log.some(self.slot.shown) if attempt.source]

    @property
    def form(self) -> str:
        task = self.context.task
        takes = bool(task.backend.modules) and task.language in kernel_forms.MODULES
        return self.options.form if takes else "entry"

    @property
    def temperature(self) -> float | None:
        options = self.options
        if options.temperature_later is not None and self.slot.parents:
            return options.temperature_later
        if options.temperature is None:
            return None
        return max(options.temperature + options.temperature_step * self.slot.island, 0.0)

    async def write(
        self,
        prompt: str,
        *,
        role: str = "",
        read: Read[ReplyCode] | None = None,
        form: str = "file",
        shown: Sequence[Attempt] = (),
        **more: object,
    ) -> KernelDraft:
        """One kernel by ``prompt``, whose facts are the slot's and ``more``; see :meth:`facts` for
        ``shown`` and :meth:`ask` for ``form``. The draft's calls are for the proposer to count."""
        role, task = role or self.author, self.context.task
        answered: list[str] = []

        def code(reply: Reply) -> ReplyCode | Unread:
            answered.append(reply.model)
            return read(reply) if read else reading.kernel(reply.text, task, cut=reply.cut)

        facts = self.facts(role, shown=shown) | more
        answer = await self.ask(role, prompt, code, facts, form=form, temperature=self.temperature)
        if isinstance(answer, Unread):
            return KernelDraft(None, detail=answer.why, arm=self.slot.arm)
        candidate = task.candidate(answer.source, author=answered[-1] or role)
        return KernelDraft(candidate, rationale=answer.rest, arm=self.slot.arm)

    async def ask(
        self,
        role: str,
        prompt: str,
        read: Read[T],
        facts: Mapping[str, object],
        *,
        form: str,
        temperature: float | None = None,
    ) -> T | Unread:
        """The first reply that ``read`` takes. Others are answered with the reason, and that a
        ``file``, ``edits`` or ``json`` are wanted, until ``asks`` are over. Also unread when no
        model answers."""
        messages = prompts.render(prompt, **facts)
        answer: T | Unread = Unread("nothing was asked")
        for _ in range(self.options.asks):
            try:
                reply = await self.llm.ask(
                    role, messages, prompt=prompts.named(prompt), temperature=temperature
                )
            except ModelError as error:
                return Unread(str(error))
            answer = read(reply)
            if not isinstance(answer, Unread):
                break
            said = replies.spoken(reply.text).strip() or "(nothing)"  # no service takes nothing
            again = prompts.render("again", why=answer.why, form=form, tag=facts["tag"])
            messages = [*messages, PromptMessage("assistant", said), *again]
        return answer

    def facts(self, role: str, *, shown: Sequence[Attempt] = ()) -> dict[str, object]:
        """Facts that every template of a kernel may name. The template shows the code of
        ``shown`` itself, so the memory's text does without it."""
        slot, task = self.slot, self.context.task
        view = self.context.memory.view(slot, role, self.context.log, task)
        view = [block for block in view if not _is_hint(block, task)]
        known = feedback_blocks(self.parent, slot.arm)
        return briefing.facts(task) | {
            "task": task,
            "tag": "python" if self.form == "module" else reading.TAGS[task.language][0],
            "kernel_form": self.form,
            "declaration": task.backend.declaration(task.op.signature, task.language),
            "reference": task.op.reference_source.strip(),
            "constraints": task.constraints.lines,
            "blocks": [*self._start(shown, view), *(_without_code_of(shown, b) for b in view)],
            "phase": slot.phase,
            "arm": self.arms.get(slot.arm) or (Arm(slot.arm, slot.arm) if slot.arm else None),
            "parents": self.parents,
            "parent": self.parent,
            "told": [block for block in known if not _is_said(block, view)],
        }

    def _start(self, shown: Sequence[Attempt], view: Sequence[PromptBlock]) -> list[PromptBlock]:
        """The kernel that the run starts from, where it is the parent and nobody shows it."""
        task, parent = self.context.task, self.parent
        if task.start is None or parent is None or parent.digest != task.start.digest:
            return []
        source = parent.source.rstrip()
        if parent in shown or any(source in block.text for block in view):
            return []
        fence = f"```{reading.TAGS[task.language][0]}\n{source}\n```"
        beside = ", ".join(path for path in task.start.companions.texts)
        text = f"{fence}\nBuilt with: {beside}" if beside else fence
        return [PromptBlock(kind="start", title="The kernel to start from", text=text)]


def besides(facts: Mapping[str, object], blocks: Sequence[PromptBlock]) -> dict[str, object]:
    """The facts with these blocks before the memory's."""
    told = facts["blocks"]
    assert isinstance(told, list)
    return {**facts, "blocks": [*blocks, *told]}


def feedback_blocks(attempt: Attempt | None, arm: str = "") -> list[PromptBlock]:
    """The blocks that tell an author of an attempt besides its code; of its diagnosis they have
    what calls for ``arm``, where that is one of its fixes."""
    if attempt is None:
        return []
    blocks = [block for block in attempt.feedback if not block.of_critics]
    if attempt.diagnosis:
        told = attempt.diagnosis.about(arm)
        text = "\n".join([*filter(None, (told.problem, told.why, told.fix)), *told.lesser])
        blocks.append(PromptBlock(kind="diagnosis", title="Diagnosis", text=text))
    return blocks


def _evaluated(attempt: Attempt, log: Log) -> Attempt:
    if attempt.status is not Status.DUPLICATE:
        return attempt
    return log.by_digest(attempt.digest) or attempt


def _without_code_of(shown: Sequence[Attempt], block: PromptBlock) -> PromptBlock:
    """The block without the code of ``shown``, also where the memory has cut the code's end off."""
    sources = [attempt.source.rstrip() for attempt in shown]

    def replaced(match: re.Match[str]) -> str:
        code = match[2].rstrip()
        return _BELOW if code and any(source.startswith(code) for source in sources) else match[0]

    return block.model_copy(update={"text": _FENCED.sub(replaced, block.text)})


def _is_hint(block: PromptBlock, task: Task) -> bool:
    """Whether it says no more than the target's hints, which each prompt has already."""
    return block.text.strip() in {hint.text for hint in task.target.hints}


def _is_said(block: PromptBlock, view: Sequence[PromptBlock]) -> bool:
    """Whether all of its lines are in one of the memory's blocks."""
    lines = [line.strip() for line in block.text.splitlines()]
    return any(all(line in other.text for line in lines) for other in view)
