"""Planning apart from writing: what is to change is decided before anything is changed."""

from __future__ import annotations

import asyncio
import difflib
from dataclasses import dataclass, replace
from typing import ClassVar

from portkern.agent import prompts
from portkern.agent.axes import Caller, Context, Draft
from portkern.agent.proposer import reading
from portkern.agent.proposer.writing import Modelled, Writer, callers, facts, told
from portkern.agent.slot import Slot
from portkern.errors import ModelError

BEGIN, END = "<<<IMPROVE BEGINS>>>", "<<<IMPROVE ENDS>>>"


@dataclass(frozen=True)
class Plan:
    """``lines``: the first and the last of what is to change, from 1; the whole file without."""

    text: str
    why: str = ""
    lines: tuple[int, int] | None = None


class _Planned(Modelled):
    planning: ClassVar[str]

    async def propose(self, slot: Slot, context: Context) -> list[Draft]:
        writer = self.writer(context.task)
        several = [self.one(writer, slot, context, llm) for llm in callers(slot, context)]
        return list(await asyncio.gather(*several))

    async def one(self, writer: Writer, slot: Slot, context: Context, llm: Caller) -> Draft:
        raise NotImplementedError

    async def plan(
        self, writer: Writer, slot: Slot, context: Context, llm: Caller
    ) -> tuple[Plan | None, tuple[str, ...]]:
        known = facts(slot, context, "planner", writer.arms)
        numbered = _numbered(known["parent"].source) if known["parent"] else ""
        arms = list(writer.arms.values())
        messages = prompts.render(self.planning, **known, numbered=numbered, arms=arms)
        reply = await llm.ask("planner", messages, prompt=prompts.named(self.planning))
        return read_plan(reply.text), (reply.call,)


class PlanCodeDebug(_Planned):
    """STARK's three: a planner marks what is to be improved, a coder realises it inside the marks,
    and a debugger mends what failed instead."""

    others = ("planner", "debugger")
    planning = "plan"

    async def one(self, writer: Writer, slot: Slot, context: Context, llm: Caller) -> Draft:
        parent = next(iter(context.log.some(slot.parents)), None)
        if parent and parent.source and (slot.operator == "debug" or not parent.correct):
            draft = await writer.write(
                slot, context, "debug", llm=llm, role="debugger", told=told(parent)
            )
            return replace(draft, operator="debug", idea=f"mend {parent.id}")
        try:
            plan, calls = await self.plan(writer, slot, context, llm)
        except ModelError as error:
            return Draft(None, detail=str(error), operator="plan")
        if plan is None:
            return Draft(None, detail="the planner's reply holds no plan", calls=calls)
        anchored = _anchored(parent.source, plan) if parent and parent.source else ""
        draft = await writer.write(
            slot, context, "realise", llm=llm, plan=plan, anchored=anchored, marks=(BEGIN, END)
        )
        notes = _outside(parent.source, draft, plan) if parent and parent.source else ()
        return replace(
            draft, operator="plan", idea=plan.text, rationale=plan.why or draft.rationale,
            calls=(*calls, *draft.calls), notes=notes, arm=slot.arm,
        )  # fmt: skip


class MacroMicro(_Planned):
    """QiMeng-Kernel's hierarchy, untrained: a planner chooses one action and a region, a coder
    makes that one edit. With the slot's arm given only the region is left to choose."""

    others = ("planner",)
    planning = "macro"

    async def one(self, writer: Writer, slot: Slot, context: Context, llm: Caller) -> Draft:
        parent = next(iter(context.log.some(slot.parents)), None)
        if parent is None or not parent.source:  # there is nothing to edit yet
            return await writer.write(slot, context, "direct", llm=llm)
        try:
            plan, calls = await self.plan(writer, slot, context, llm)
        except ModelError as error:
            return Draft(None, detail=str(error), operator="edit")
        if plan is None:
            return Draft(None, detail="the planner's reply holds no action", calls=calls)
        draft = await writer.write(
            slot, context, "micro", llm=llm, plan=plan,
            anchored=_anchored(parent.source, plan), marks=(BEGIN, END),
        )  # fmt: skip
        action = slot.arm or next((name for name in writer.arms if name in plan.text), "")
        return replace(
            draft, operator="edit", idea=plan.text, rationale=plan.why or draft.rationale,
            arm=action, calls=(*calls, *draft.calls), notes=_outside(parent.source, draft, plan),
        )  # fmt: skip


def read_plan(text: str) -> Plan | None:
    """``{plan, why, lines: [first, last]}``; a reply of prose is a plan for the whole file."""
    found = reading.document(text)
    if isinstance(found, dict):
        words = found.get("plan") or found.get("action") or found.get("idea")
        lines = found.get("lines")
        if not isinstance(words, str) or not words.strip():
            return None
        match lines:
            case [int(first), int(last)] if 1 <= first <= last:
                return Plan(words.strip(), str(found.get("why") or ""), (first, last))
        return Plan(words.strip(), str(found.get("why") or ""))
    return Plan(" ".join(text.split())) if text.strip() else None


def _numbered(source: str) -> str:
    return "\n".join(f"{n:4} {line}" for n, line in enumerate(source.splitlines(), 1))


def _anchored(source: str, plan: Plan) -> str:
    if plan.lines is None:
        return source
    lines = source.splitlines()
    first, last = plan.lines[0] - 1, min(plan.lines[1], len(lines))
    return "\n".join([*lines[:first], BEGIN, *lines[first:last], END, *lines[last:]])


def _outside(before: str, draft: Draft, plan: Plan) -> tuple[str, ...]:
    """A note on lines that changed where none should have."""
    if plan.lines is None or draft.candidate is None:
        return ()
    old, new = before.splitlines(), draft.candidate.source.splitlines()
    changes = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    low, high = plan.lines[0] - 1, plan.lines[1]
    strayed = [i for tag, i, j, *_ in changes if tag != "equal" and (j <= low or i >= high)]
    return (f"changed outside of the planned lines, from line {strayed[0] + 1}",) if strayed else ()
