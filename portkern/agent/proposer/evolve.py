"""Operators of evolution: a new kernel, a changed one, or one of two."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from portkern.agent.axes import Caller, Context, Draft
from portkern.agent.proposer import reading
from portkern.agent.proposer.writing import Modelled, Options, Writer, callers
from portkern.agent.slot import Slot

_PROMPTS = {"init": "direct", "mutate": "mutate", "crossover": "crossover", "diff": "diff"}


class EvolveOptions(Options):
    """``level`` of a crossover: ``code``, or ``strategy`` (cuPilot: what the parents do is combined
    in words first)."""

    level: str = "code"


class Evolve(Modelled):
    """The slot's operator decides; without one a slot of two parents is a crossover, one of one a
    mutation. Edits that do not fit end without code, as they do for the authors."""

    operators = ("init", "mutate", "diff", "crossover")
    options_type = EvolveOptions
    options: EvolveOptions

    async def propose(self, slot: Slot, context: Context) -> list[Draft]:
        writer = self.writer(context.task)
        several = [self._one(writer, slot, context, llm) for llm in callers(slot, context)]
        return list(await asyncio.gather(*several))

    async def _one(self, writer: Writer, slot: Slot, context: Context, llm: Caller) -> Draft:
        parents = [one for one in context.log.some(slot.parents) if one.source]
        operator = operator_of(slot, len(parents))
        read = None
        if operator == "diff":
            source = parents[0].source
            read = lambda text, cut: reading.edited(source, text)  # noqa: E731
        shown = [one for one in context.log.some(slot.shown) if one.source]
        draft = await writer.write(
            slot, context, _PROMPTS[operator], llm=llm, read=read, inspirations=shown,
            level=self.options.level,
        )  # fmt: skip
        return replace(draft, operator=operator, arm=slot.arm)


def operator_of(slot: Slot, parents: int) -> str:
    """What can be done with so many parents, as close to what was asked for as that allows."""
    asked = slot.operator or {0: "init", 1: "mutate"}.get(parents, "crossover")
    if asked not in _PROMPTS:
        asked = "mutate"
    if asked == "crossover" and parents < 2:
        asked = "mutate"
    return asked if parents or asked == "init" else "init"
