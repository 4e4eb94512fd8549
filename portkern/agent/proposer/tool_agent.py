"""A model that works by itself: it reads, edits, tries, and hands in what it likes best.

Its tools are asked for in the text of replies, one JSON object each, so that any model can use
them; there is no shell. Every kernel that it tries is an attempt of the run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import Field

from portkern import registry
from portkern.agent import prompts
from portkern.agent.axes import Context, Draft, Message, Reply, Seen
from portkern.agent.proposer import menu, reading
from portkern.agent.proposer.writing import Modelled, Options, facts
from portkern.agent.slot import Slot
from portkern.agent.task import Task
from portkern.errors import ModelError

TOOLS = {
    "write": "make the kernel in the reply's code block the current file",
    "edit": "change the current file by the reply's SEARCH/REPLACE edits",
    "show": "see the current file with line numbers",
    "try": "build, check and time the current file",
    "donor": "see the kernel of another backend; 'backend' names it",
    "done": "hand in the best kernel that was tried",
}


class ToolOptions(Options):
    """``turns`` replies at most, of which ``tries`` may try a kernel."""

    turns: int = Field(20, ge=1)
    tries: int = Field(5, ge=1)


@dataclass
class _Desk:
    """What the model has before it."""

    source: str
    tried: list[Draft] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)


class ToolAgent(Modelled):
    options_type = ToolOptions
    options: ToolOptions

    async def propose(self, slot: Slot, context: Context) -> list[Draft]:
        arms = {arm.name: arm for arm in self.arms(context.task)}
        known = facts(slot, context, "coder", arms)
        parent = known["parent"]
        desk = _Desk(parent.source if parent else "")
        messages = prompts.render(
            "tool_agent", **known, tools=TOOLS, turns=self.options.turns, tries=self.options.tries,
            others=[name for name in registry.names() if name != context.task.backend.name],
        )  # fmt: skip
        detail = "it never tried a kernel"
        for _ in range(self.options.turns):
            try:
                reply = await context.llm.ask(
                    "coder", messages, prompt=prompts.named("tool_agent"),
                    temperature=self.options.temperature,
                )  # fmt: skip
            except ModelError as error:
                detail = str(error)
                break
            desk.calls.append(reply.call)
            answer = await self._turn(reply, desk, slot, context)
            if answer is None:
                break
            messages = [*messages, Message("assistant", reply.text), Message("user", answer)]
        if not desk.tried:
            return [Draft(None, detail=detail, calls=tuple(desk.calls))]
        # Calls after the last try belong to the last one.
        counted = {call for one in desk.tried for call in one.calls}
        left = tuple(call for call in desk.calls if call not in counted)
        last = desk.tried[-1]
        return [*desk.tried[:-1], replace(last, calls=(*last.calls, *left))]

    async def _turn(self, reply: Reply, desk: _Desk, slot: Slot, context: Context) -> str | None:
        """What the tool answers; None when the model is done."""
        asked = _asked(reply.text)
        tool = asked.get("tool")
        match tool:
            case "write":
                found = reading.kernel(reply.text, context.task, cut=reply.cut)
                desk.source = found.source or desk.source
                return f"Not written: {found.why}" if found.why else "Written."
            case "edit":
                found = reading.edited(desk.source, reply.text)
                desk.source = found.source or desk.source
                return f"Nothing was changed: {found.why}" if found.why else "Edited."
            case "show":
                lines = enumerate(desk.source.splitlines(), 1)
                return "\n".join(f"{n:4} {line}" for n, line in lines) or "There is no file yet."
            case "donor":
                return _donor(str(asked.get("backend", "")), context.task)
            case "try":
                return await self._try(desk, slot, context, str(asked.get("why") or ""))
            case "done":
                return None
        return f"No tool {tool!r}. Answer with one JSON object; tools: {', '.join(TOOLS)}."

    async def _try(self, desk: _Desk, slot: Slot, context: Context, why: str) -> str:
        if not desk.source.strip():
            return "There is no file yet; write one first."
        if len(desk.tried) >= min(self.options.tries, slot.size):
            return "No tries are left; answer with the tool 'done'."
        counted = {call for one in desk.tried for call in one.calls}
        draft = Draft(
            context.task.candidate(desk.source, author="tool_agent"), rationale=why,
            operator="try", arm=slot.arm,
            calls=tuple(call for call in desk.calls if call not in counted),
        )  # fmt: skip
        seen = await context.look(draft)
        desk.tried.append(draft)
        return _report(seen, left=self.options.tries - len(desk.tried))


def _asked(text: str) -> Mapping[str, Any]:
    found = reading.document(text)
    return found if isinstance(found, dict) else {}


def _report(seen: Seen, *, left: int) -> str:
    parts = [f"{block.title}\n{block.text}" for block in seen.feedback]
    return "\n\n".join([*parts, f"{left} tries are left."])


def _donor(name: str, task: Task) -> str:
    kernels = [one for one in menu.donors(task, "catalogue") if one.backend == name]
    if not kernels:
        return f"{json.dumps(name)} has no kernel of {task.op.name}."
    return "\n\n".join(f"{one.language}:\n{one.source}" for one in kernels)
