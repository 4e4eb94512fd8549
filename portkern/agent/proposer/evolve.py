"""Operators of evolution: a new kernel, a changed one, or one of two."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from portkern.agent.axes import KernelDraft, Reply
from portkern.agent.proposer import reading
from portkern.agent.proposer.reading import ReplyCode
from portkern.agent.proposer.writing import KernelWriter, Modelled, WriterOptions
from portkern.agent.replies import Unread
from portkern.agent.slot import Slot

_PROMPTS = {"init": "direct", "mutate": "mutate", "crossover": "crossover", "diff": "diff"}


class EvolveOptions(WriterOptions):
    """``level`` of a crossover: ``code``, or ``strategy`` (cuPilot: what the parents do is combined
    in words first). ``substantial``: a mutation is more than one change. ``rationale``: parents
    stand with what their authors said of them."""

    level: Literal["code", "strategy"] = "code"
    substantial: bool = False
    rationale: bool = False


class Evolve(Modelled):
    """The slot's operator decides; without one a slot of two parents is a crossover, one of one a
    mutation. Edits that do not fit end without code, as they do for the authors."""

    operators = ("init", "mutate", "diff", "crossover")
    options_type = EvolveOptions
    options: EvolveOptions

    async def draft(self, writer: KernelWriter) -> KernelDraft:
        operator = operator_of(writer.slot, len(writer.parents))
        if operator == "init":
            return replace(await writer.write("direct"), operator=operator)
        parents = writer.parents if operator == "crossover" else writer.parents[:1]
        beside = [attempt for attempt in writer.shown if attempt not in parents]
        source = parents[0].source

        def edited(reply: Reply) -> ReplyCode | Unread:
            return reading.edited(source, reply.text, cut=reply.cut)

        draft = await writer.write(
            _PROMPTS[operator],
            shown=[*parents, *beside],
            inspirations=beside,
            level=self.options.level,
            substantial=self.options.substantial,
            rationale=self.options.rationale,
            read=edited if operator == "diff" else None,
            form="edits" if operator == "diff" else "file",
        )
        return replace(draft, operator=operator)


def operator_of(slot: Slot, parents: int) -> str:
    """The operator that is possible with so many parents, as close to the one asked for as that
    allows."""
    asked = slot.operator or {0: "init", 1: "mutate"}.get(parents, "crossover")
    if asked not in _PROMPTS:
        asked = "mutate"
    if asked == "crossover" and parents < 2:
        asked = "mutate"
    return asked if parents or asked == "init" else "init"
