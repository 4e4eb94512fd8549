"""A model that works by itself: it reads, edits, tries, and hands in what it likes best.

Its tools are asked for in the text of replies, one JSON object each, so that any model can use
them; there is no shell. Every kernel that it tries is an attempt of the run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pydantic import Field

from portkern.agent import prompts, replies
from portkern.agent.attempt import PromptBlock
from portkern.agent.axes import AgentContext, EvaluatedDraft, KernelDraft, PromptMessage, Reply
from portkern.agent.proposer import menu, reading
from portkern.agent.proposer.reading import ReplyCode
from portkern.agent.proposer.writing import KernelWriter, Modelled, WriterOptions, besides
from portkern.agent.replies import Unread
from portkern.agent.slot import Slot
from portkern.agent.task import Task
from portkern.errors import BudgetSpent, ConfigError, ModelError
from portkern.spec import registry

TOOLS = {
    "write": "make the kernel in the reply's code block the current file",
    "edit": "change the current file by the reply's SEARCH/REPLACE edits",
    "show": "see the current file with line numbers",
    "try": "build, check and time the current file",
    "donor": "see the kernel of another backend; 'backend' names it",
    "done": "hand in the best kernel that was tried",
}


class ToolOptions(WriterOptions):
    """``turns`` replies at most, of which ``tries`` may try a kernel, and no more than the slot has
    room for."""

    turns: int = Field(default=20, ge=1)
    tries: int = Field(default=5, ge=1)


@dataclass
class _Desk:
    """The work of an ``agent`` on one kernel: its source so far, the drafts that were tried, what
    was ``seen`` of them, and how many tries are ``left``."""

    agent: ToolAgent
    writer: KernelWriter
    source: str
    left: int
    model: str = ""
    tried: list[KernelDraft] = field(default_factory=list)
    seen: list[EvaluatedDraft] = field(default_factory=list)

    @property
    def uncounted(self) -> tuple[str, ...]:
        """Calls since the last try."""
        counted = {call for draft in self.tried for call in draft.calls}
        return tuple(call for call in self.writer.llm.calls if call not in counted)


class ToolAgent(Modelled):
    options_type = ToolOptions
    options: ToolOptions

    def rules(self) -> Sequence[PromptBlock]:
        """Blocks that the agent is told besides."""
        return ()

    def judged(self, seen: EvaluatedDraft) -> str:
        """A line on how far a kernel that was tried has come; empty where results say it all."""
        return ""

    def unfinished(self, seen: Sequence[EvaluatedDraft], left: int) -> str:
        """Why the agent may not end yet, with so many tries left; empty where it may."""
        return ""

    async def propose(self, slot: Slot, context: AgentContext) -> list[KernelDraft]:
        writer = self.writer(slot, context, context.llm)
        parent = writer.parent
        source = parent.source if parent else ""
        desk = _Desk(self, writer, source, min(self.options.tries, slot.size))
        try:
            detail = await self._work(desk)
        except BudgetSpent:
            if not desk.tried:
                raise
            detail = ""  # what was tried is paid for
        if not desk.tried:
            return [KernelDraft(None, detail=detail, arm=writer.slot.arm, calls=desk.uncounted)]
        last = desk.tried[-1]
        return [*desk.tried[:-1], replace(last, calls=(*last.calls, *desk.uncounted))]

    async def _work(self, desk: _Desk) -> str:
        """Works until the model is done, and returns why it ended."""
        writer = desk.writer
        known = writer.facts(writer.author, shown=writer.parents[:1])
        facts = besides(known, self.rules()) | {
            "tools": TOOLS,
            "turns": self.options.turns,
            "tries": desk.left,
            "others": [
                name for name in registry.names() if name != writer.context.task.backend.name
            ],
        }
        messages = prompts.render("tool_agent", **facts)
        for _ in range(self.options.turns):
            try:
                reply = await writer.llm.ask(
                    writer.author,
                    messages,
                    prompt=prompts.named("tool_agent"),
                    temperature=writer.temperature,
                )
            except ModelError as error:
                return str(error)
            desk.model = reply.model or writer.author
            answer = await _answer(reply, desk)
            if answer is None:
                return "it was done before it tried a kernel"
            said = replies.spoken(reply.text).strip() or "(nothing)"
            messages = [*messages, PromptMessage("assistant", said), PromptMessage("user", answer)]
        return f"it did not try a kernel in {self.options.turns} replies"


async def _answer(reply: Reply, desk: _Desk) -> str | None:
    """Answers for the tool that was asked for; None when the model is done."""
    asked = _asked(reply.text)
    tool, task = asked.get("tool"), desk.writer.context.task
    match tool:
        case "write":
            return _put(desk, reading.kernel(reply.text, task, cut=reply.cut), "Written.")
        case "edit":
            return _put(desk, reading.edited(desk.source, reply.text, cut=reply.cut), "Edited.")
        case "show":
            lines = enumerate(desk.source.splitlines(), 1)
            return "\n".join(f"{n:4} {line}" for n, line in lines) or "There is no file yet."
        case "donor":
            return _donor(str(asked.get("backend", "")), task)
        case "try":
            return await _try(desk, " ".join(str(asked.get("why") or "").split()))
        case "done":
            return desk.agent.unfinished(desk.seen, desk.left) or None
    what = "There is no tool in that reply" if tool is None else f"No tool {tool!r}"
    return f"{what}. Answer with one JSON object; tools: {', '.join(TOOLS)}."


def _asked(text: str) -> Mapping[str, object]:
    """The first object that names a tool: replies that go on have only imagined its answer."""
    objects = replies.objects(replies.spoken(text))
    return next((call for call in objects if "tool" in call), {})


def _put(desk: _Desk, answer: ReplyCode | Unread, done: str) -> str:
    if isinstance(answer, Unread):
        return f"The file is as it was: {answer.why}."
    desk.source = answer.source
    return done


async def _try(desk: _Desk, why: str) -> str:
    task, known = desk.writer.context.task, [draft.candidate for draft in desk.tried]
    if not desk.source.strip():
        return "There is no file yet; write one first."
    candidate = task.candidate(desk.source, author=desk.model)
    same = [other for other in known if other and other.digest == candidate.digest]
    if same:
        return f"This very file was tried already. {_told(desk.left)}"
    if not desk.left:
        return _told(desk.left)
    draft = KernelDraft(
        candidate, idea=why, operator="try", arm=desk.writer.slot.arm, calls=desk.uncounted
    )
    seen = await desk.writer.context.look(draft)
    desk.tried.append(draft)
    desk.seen.append(seen)
    desk.left -= 1
    return _report(seen, desk.agent.judged(seen), desk.left)


def _report(seen: EvaluatedDraft, judged: str, left: int) -> str:
    status = seen.status.replace("_", " ").capitalize()
    result = f"{status}: {seen.detail}" if seen.detail else f"{status}."
    parts = [f"{block.title}\n{block.text}" for block in seen.feedback if not block.of_critics]
    return "\n\n".join(filter(None, [result, *parts, judged, _told(left)]))


def _told(left: int) -> str:
    if not left:
        return "No tries are left; answer with the tool 'done'."
    return f"{left} {'try is' if left == 1 else 'tries are'} left."


def _donor(name: str, task: Task) -> str:
    try:
        kernels = menu.donors(task, name)
    except ConfigError:
        return f"{json.dumps(name)} has no kernel of {task.op.name}."
    return "\n\n".join(
        f"{kernel.backend}, {kernel.language}:\n{prompts.fenced(kernel.source)}"
        for kernel in kernels
    )
