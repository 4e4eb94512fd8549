"""Planning apart from writing: what is to change is decided before anything is changed."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from portkern.agent import replies
from portkern.agent.attempt import Attempt
from portkern.agent.axes import KernelDraft, Reply
from portkern.agent.proposer import reading
from portkern.agent.proposer.reading import ReplyCode
from portkern.agent.proposer.writing import KernelWriter, Modelled, WriterOptions
from portkern.agent.replies import Unread

BEGIN, END = "<<<IMPROVE BEGINS>>>", "<<<IMPROVE ENDS>>>"
#: A plan in prose has at most so many characters.
MOST_PROSE = 2000
_WORDS = ("plan", "action", "idea")


@dataclass(frozen=True)
class KernelPlan:
    """``lines``: the first and the last of what is to change, from 1; the whole file without."""

    text: str
    why: str = ""
    lines: tuple[int, int] | None = None


class Planned(Modelled):
    planning: ClassVar[str]

    async def plan(self, writer: KernelWriter) -> KernelPlan | Unread:
        parent = writer.parent
        facts = writer.facts("planner", shown=writer.parents[:1])
        numbered = _numbered(parent.source) if parent else ""
        facts |= {"numbered": numbered, "arms": list(writer.arms.values())}

        def plan(reply: Reply) -> KernelPlan | Unread:
            plan = read_plan(reply.text, len(numbered.splitlines()))
            why = "it was cut off at max_tokens" if reply.cut else "it is empty"
            return plan or Unread(f"no plan came of the planner's reply: {why}")

        return await writer.ask("planner", self.planning, plan, facts, form="json")

    async def realised(self, writer: KernelWriter, prompt: str, plan: KernelPlan) -> KernelDraft:
        """The draft that ``prompt`` makes of a plan, with the parent's lines marked that are to
        change."""
        parent = writer.parent

        def unmarked(reply: Reply) -> ReplyCode | Unread:
            answer = reading.kernel(reply.text, writer.context.task, cut=reply.cut)
            if isinstance(answer, Unread):
                return answer
            return replace(answer, source=_unmarked(answer.source))

        draft = await writer.write(
            prompt,
            read=unmarked,
            shown=writer.parents[:1],
            plan=plan,
            marks=(BEGIN, END),
            anchored=_anchored(parent.source, plan) if parent else "",
        )
        return replace(
            draft,
            idea=plan.text,
            rationale=plan.why or draft.rationale,
            notes=_outside(parent.source, draft, plan) if parent else (),
        )


class PlanOptions(WriterOptions):
    """``debugger``: whether what failed goes to one; else it is planned for like anything else."""

    debugger: bool = True


class PlanCodeDebug(Planned):
    """STARK's three: a planner marks what is to be improved, a coder realises it inside the marks,
    and a debugger mends what failed instead."""

    options_type = PlanOptions
    options: PlanOptions
    others = ("planner", "debugger")
    planning = "plan"

    @property
    def roles(self) -> tuple[str, ...]:
        asked = super().roles
        return asked if self.options.debugger else tuple(one for one in asked if one != "debugger")

    async def draft(self, writer: KernelWriter) -> KernelDraft:
        parent = writer.parent
        if parent and not parent.correct and self.options.debugger:
            return await self._mended(writer, parent)
        plan = await self.plan(writer)
        if isinstance(plan, Unread):
            return KernelDraft(None, detail=plan.why, operator="plan", arm=writer.slot.arm)
        return replace(await self.realised(writer, "realise", plan), operator="plan")

    async def _mended(self, writer: KernelWriter, parent: Attempt) -> KernelDraft:
        draft = await writer.write("debug", role="debugger", shown=[parent])
        return replace(draft, operator="debug", idea=f"mend {parent.id}")


class MacroMicro(Planned):
    """QiMeng-Kernel's hierarchy, untrained: a planner chooses one action and a region, a coder
    makes that one edit. With the slot's arm given only the region is left to choose."""

    others = ("planner",)
    planning = "macro"

    async def draft(self, writer: KernelWriter) -> KernelDraft:
        if writer.parent is None:  # there is nothing to edit yet
            return replace(await writer.write("direct"), operator="init")
        plan = await self.plan(writer)
        if isinstance(plan, Unread):
            return KernelDraft(None, detail=plan.why, operator="edit", arm=writer.slot.arm)
        draft = await self.realised(writer, "micro", plan)
        arm = writer.slot.arm or named(plan.text, writer.arms)
        return replace(draft, operator="edit", arm=arm)


def named(text: str, arms: Iterable[str]) -> str:
    """The arm that the text speaks of first; empty when it speaks of none."""
    places = {}
    for name in arms:
        words = re.escape(name).replace("_", "[_ ]")
        match = re.search(rf"(?<!\w){words}(?!\w)", text, re.IGNORECASE)
        if match:
            places[name] = match.start()
    return min(places, key=lambda name: (places[name], -len(name)), default="")


def read_plan(text: str, lines: int = 0) -> KernelPlan | None:
    """The last ``{plan, why, lines: [first, last]}``, of a file with so many ``lines``; a reply of
    prose is a plan for the whole file."""
    text = replies.spoken(text)
    answer: Mapping[str, object] | None = None
    for each in replies.objects(text):
        answer = each if _words(each) else answer
    if answer is not None:
        why = " ".join(str(answer.get("why") or "").split())
        return KernelPlan(_words(answer), why, _region(answer.get("lines"), lines))
    prose = " ".join(text.split())[:MOST_PROSE]
    return KernelPlan(prose) if prose and not prose.startswith(("{", "[")) else None


def _words(answer: Mapping[str, object]) -> str:
    said = next((text for name in _WORDS if isinstance(text := answer.get(name), str)), "")
    return " ".join(said.split())


def _region(given: object, lines: int) -> tuple[int, int] | None:
    """The first and last line of a region; None for what is not a region of a file with so many
    lines."""
    try:
        first, last = (int(number) for number in given) if isinstance(given, list) else (0, 0)
    except (TypeError, ValueError, OverflowError):
        return None
    return (first, min(last, lines)) if 1 <= first <= min(last, lines) else None


def _numbered(source: str) -> str:
    return "\n".join(f"{n:4} {line}" for n, line in enumerate(source.splitlines(), 1))


def _anchored(source: str, plan: KernelPlan) -> str:
    if plan.lines is None:
        return source
    lines = source.splitlines()
    first, last = plan.lines[0] - 1, plan.lines[1]
    return "\n".join([*lines[:first], BEGIN, *lines[first:last], END, *lines[last:]])


def _unmarked(source: str) -> str:
    """The source without marks, which some coders leave in."""
    lines = source.splitlines(keepends=True)
    return "".join(line for line in lines if line.strip(" \t\n/#*") not in (BEGIN, END))


def _outside(before: str, draft: KernelDraft, plan: KernelPlan) -> tuple[str, ...]:
    """A note on lines that changed where none should have."""
    if plan.lines is None or draft.candidate is None:
        return ()
    old, new = before.splitlines(), draft.candidate.source.splitlines()
    changes = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    low, high = plan.lines[0] - 1, plan.lines[1]
    for tag, begin, end, *_ in changes:
        if tag != "equal" and (begin < low or end > high):
            line = begin + 1 if begin < low else max(begin, high) + 1
            return (f"changed outside of the planned lines, from line {line}",)
    return ()
