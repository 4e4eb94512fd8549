"""Ideas in words first, then kernels of each: CRFM's way to differ from what was tried."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from portkern.agent import replies
from portkern.agent.attempt import Attempt, Status
from portkern.agent.axes import AgentContext, KernelDraft, Reply
from portkern.agent.proposer.writing import KernelWriter, Modelled, WriterOptions
from portkern.agent.replies import Unread
from portkern.agent.slot import Slot

#: So many ideas, the newest, are told to have been tried.
MOST_TRIED = 100
_ITEM = re.compile(r"^[ \t]*(?:[-*+]|\d{1,2}[.)])[ \t]+(\S.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Idea:
    text: str
    why: str = ""


class IdeasOptions(WriterOptions):
    """``tried``: the planner is told which ideas were tried, and what came of them."""

    tried: bool = True


class IdeasThenCode(Modelled):
    """One call of the planner for all ideas of a slot, then one of a coder for each kernel. People
    may strike ideas out between the two."""

    options_type = IdeasOptions
    options: IdeasOptions
    others = ("planner",)
    plans = True

    async def propose(self, slot: Slot, context: AgentContext) -> list[KernelDraft]:
        ideas = await self._ideas(self.writer(slot, context, context.llm))
        planned = tuple(context.llm.calls)
        if isinstance(ideas, Unread):
            return [KernelDraft(None, detail=ideas.why, calls=planned)]
        words = await context.approve([idea.text for idea in ideas])
        told = list(zip(ideas, words, strict=True))
        struck = [
            KernelDraft(None, detail=word.struck, idea=idea.text, status=Status.SCREENED)
            for idea, word in told
            if not word.idea
        ]
        chosen = [Idea(word.idea, idea.why) for idea, word in told if word.idea]
        written = await asyncio.gather(
            *[
                self._kernel(self.writer(slot, context, context.llm.within(f"{i}.{k}")), idea)
                for i, idea in enumerate(chosen)
                for k in range(slot.n)
            ]
        )
        drafts = [*written, *struck]
        # What the ideas cost is the first one's, so that it is counted once.
        return [replace(drafts[0], calls=(*planned, *drafts[0].calls)), *drafts[1:]]

    async def _ideas(self, writer: KernelWriter) -> list[Idea] | Unread:
        wanted = max(writer.slot.ideas, 1)

        def ideas(reply: Reply) -> list[Idea] | Unread:
            ideas = read_ideas(reply.text)[:wanted]
            why = "it was cut off at max_tokens" if reply.cut else "it holds no list of ideas"
            return ideas or Unread(f"no ideas came of the planner's reply: {why}")

        facts = writer.facts("planner", shown=writer.parents[:1])
        facts |= {"wanted": wanted, "tried": self._tried(writer)}
        return await writer.ask("planner", "ideas", ideas, facts, form="json")

    def _tried(self, writer: KernelWriter) -> list[Attempt]:
        return _tried(writer.context.log) if self.options.tried else []

    async def _kernel(self, writer: KernelWriter, idea: Idea) -> KernelDraft:
        draft = await writer.write("implement", shown=writer.parents[:1], idea=idea)
        return replace(
            draft,
            idea=idea.text,
            rationale=idea.why or draft.rationale,
            calls=tuple(writer.llm.calls),
        )


def _tried(log: Iterable[Attempt]) -> list[Attempt]:
    """The best attempt of each idea, so that no idea is proposed again."""
    best: dict[str, Attempt] = {}
    for attempt in log:
        if attempt.idea and attempt.score >= getattr(best.get(attempt.idea), "score", 0.0):
            best[attempt.idea] = attempt
    return list(best.values())[-MOST_TRIED:]


def read_ideas(text: str) -> list[Idea]:
    """The last JSON list of ``{idea, why}`` or of texts, else such objects by themselves, else the
    lines of a list; each once."""
    text = replies.spoken(text)
    ideas: list[Idea] = []
    single: list[Idea] = []
    for value in replies.values(text):
        if isinstance(value, dict) and _idea(value):
            single += _each([value])
            continue
        nested = value.values() if isinstance(value, dict) else [value]
        for item in nested:
            ideas = (_each(item) if isinstance(item, list) else []) or ideas
    if not (ideas or single):
        listed = _ITEM.findall(replies.blocks(text)[1])
        ideas = _each(item.replace("**", "") for item in listed)
    ideas = ideas or single
    return list({idea.text.lower(): idea for idea in reversed(ideas)}.values())[::-1]


def _each(items: Iterable[object]) -> list[Idea]:
    return [idea for item in items if (idea := _idea(item))]


def _idea(item: object) -> Idea | None:
    if isinstance(item, dict):
        text, why = item.get("idea"), str(item.get("why") or "")
    else:
        text, why = item, ""
    if not isinstance(text, str) or not text.strip():
        return None
    return Idea(" ".join(text.split()), " ".join(why.split()))
