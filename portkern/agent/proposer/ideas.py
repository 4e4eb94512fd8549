"""Ideas in words first, then kernels of each: CRFM's way to differ from what was tried."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from portkern.agent import prompts
from portkern.agent.axes import Context, Draft
from portkern.agent.proposer import reading
from portkern.agent.proposer.writing import Modelled, Writer, facts
from portkern.agent.slot import Slot
from portkern.errors import ModelError


@dataclass(frozen=True)
class Idea:
    text: str
    why: str = ""


class IdeasThenCode(Modelled):
    """One call of the planner for all ideas of a slot, then one of a coder for each kernel. People
    may strike ideas out between the two."""

    others = ("planner",)
    plans = True

    async def propose(self, slot: Slot, context: Context) -> list[Draft]:
        writer = self.writer(context.task)
        wanted = max(slot.ideas, 1)
        try:
            ideas, calls = await self._ideas(writer, slot, context, wanted)
        except ModelError as error:
            return [Draft(None, detail=str(error))]
        if not ideas:
            return [Draft(None, detail="the planner's reply holds no list of ideas", calls=calls)]
        kept = await context.approve([one.text for one in ideas])
        chosen = [one for one in ideas if one.text in kept]
        if not chosen:
            return [Draft(None, detail="no idea was approved", calls=calls)]
        several = [
            self._kernel(writer, slot, context, idea, f"{i}.{k}")
            for i, idea in enumerate(chosen)
            for k in range(slot.n)
        ]
        drafts = list(await asyncio.gather(*several))
        # What the ideas cost is the first one's, so that it is counted once.
        return [replace(drafts[0], calls=(*calls, *drafts[0].calls)), *drafts[1:]]

    async def _ideas(
        self, writer: Writer, slot: Slot, context: Context, wanted: int
    ) -> tuple[list[Idea], tuple[str, ...]]:
        known = facts(slot, context, "planner", writer.arms)
        tried = [
            (one.idea, str(one.status), one.score) for one in context.log if one.idea
        ]  # so that they are not proposed again
        messages = prompts.render("ideas", **known, wanted=wanted, tried=tried)
        calls = []
        for _ in range(self.options.asks):
            reply = await context.llm.ask("planner", messages, prompt=prompts.named("ideas"))
            calls.append(reply.call)
            ideas = read_ideas(reply.text)[:wanted]
            if ideas:
                return ideas, tuple(calls)
        return [], tuple(calls)

    async def _kernel(
        self, writer: Writer, slot: Slot, context: Context, idea: Idea, name: str
    ) -> Draft:
        llm = context.llm.within(name)
        draft = await writer.write(slot, context, "implement", llm=llm, idea=idea)
        return replace(draft, idea=idea.text, rationale=idea.why or draft.rationale, arm=slot.arm)


def read_ideas(text: str) -> list[Idea]:
    """A JSON list of ``{idea, why}`` or of texts, else the lines of a list; each once."""
    told = reading.document(text)
    if isinstance(told, dict):
        told = next((value for value in told.values() if isinstance(value, list)), [])
    found: dict[str, Idea] = {}
    for item in told if isinstance(told, list) else _listed(text):
        idea = Idea(item) if isinstance(item, str) else None
        if isinstance(item, dict) and isinstance(item.get("idea"), str):
            idea = Idea(item["idea"], str(item.get("why") or ""))
        if idea and idea.text.strip():
            found.setdefault(idea.text.strip().lower(), replace(idea, text=idea.text.strip()))
    return list(found.values())


def _listed(text: str) -> list[str]:
    stripped = [line.strip() for line in text.splitlines()]
    marks = ("- ", "* ", *(f"{n}. " for n in range(1, 100)), *(f"{n}) " for n in range(1, 100)))
    return [
        line.removeprefix(mark).strip(" *")
        for line in stripped
        for mark in marks
        if line.startswith(mark)
    ]
