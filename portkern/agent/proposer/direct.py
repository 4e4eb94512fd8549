"""One call, one kernel."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from pydantic import Field

from portkern.agent.attempt import Attempt
from portkern.agent.axes import Caller, Context, Draft
from portkern.agent.proposer import menu
from portkern.agent.proposer.writing import Modelled, Options, Writer, callers
from portkern.agent.slot import Slot


class Direct(Modelled):
    """The model sees what the memory shows and writes the whole file."""

    prompt: ClassVar[str] = "direct"

    async def propose(self, slot: Slot, context: Context) -> list[Draft]:
        writer = self.writer(context.task)
        slot = self._advised(slot, context)
        several = [self.one(writer, slot, context, llm) for llm in callers(slot, context)]
        return list(await asyncio.gather(*several))

    async def one(self, writer: Writer, slot: Slot, context: Context, llm: Caller) -> Draft:
        draft = await writer.write(slot, context, self.prompt, llm=llm)
        return replace(draft, arm=slot.arm, idea=slot.arm)

    def _advised(self, slot: Slot, context: Context) -> Slot:
        """With ``actions=judge`` the arm is what the parent's judge would do."""
        if self.options.actions != "judge" or slot.arm or not slot.parents:
            return slot
        diagnosis = context.log[slot.parents[0]].diagnosis
        return replace(slot, arm=diagnosis.fix) if diagnosis else slot


class Universal(Direct):
    """KernelEvolve's one operator: whether it drafts, mends or optimises follows from what it
    is shown."""

    prompt = "universal"


class TranslateOptions(Options):
    """``donor``: ``catalogue``, or a backend's name whose catalogue kernel is the donor; ``shots``:
    how many donors are shown."""

    donor: str = "catalogue"
    shots: int = Field(1, ge=1)


class Translate(Direct):
    """The best verified kernels of the op on other backends are shown; what the two platforms
    call alike is data."""

    options_type = TranslateOptions
    options: TranslateOptions
    prompt = "translate"

    async def one(self, writer: Writer, slot: Slot, context: Context, llm: Caller) -> Draft:
        options = self.options
        donors = menu.donors(context.task, options.donor)[: options.shots]
        draft = await writer.write(
            slot, context, self.prompt, llm=llm, donors=donors,
            mapping=menu.mapping([one.backend for one in donors], context.task.backend.name),
        )  # fmt: skip
        return replace(draft, donor=" ".join(f"{one.backend}/{one.language}" for one in donors))


class ContrastiveOptions(Options):
    """``exemplars`` scored kernels are shown, from as many buckets of speed as there are."""

    exemplars: int = Field(2, ge=2)  # contrast takes two
    buckets: int = Field(4, ge=2)


class Contrastive(Direct):
    """CUDA-L1's prompt without its training: why is one kernel faster than the other?"""

    options_type = ContrastiveOptions
    options: ContrastiveOptions
    prompt = "contrastive"

    async def one(self, writer: Writer, slot: Slot, context: Context, llm: Caller) -> Draft:
        options = self.options
        chosen = self.exemplars(options, context)
        draft = await writer.write(slot, context, self.prompt, llm=llm, exemplars=chosen)
        note = f"exemplars: {' '.join(one.id for one in chosen) or 'none'}"
        return replace(draft, notes=(*draft.notes, note))

    def exemplars(self, options: ContrastiveOptions, context: Context) -> list[Attempt]:
        """Of distinct buckets, drawn with weights that grow with speed; the one there is twice
        where there is only one, as the authors do."""
        scored = sorted(context.log.correct, key=lambda one: one.score)
        if not scored:
            return []
        buckets = _bucketed(scored, options.buckets)
        drawn: list[Attempt] = []
        while buckets and len(drawn) < options.exemplars:
            names = list(buckets)
            bucket = context.random.choices(names, [name + 1.0 for name in names])[0]
            drawn.append(context.random.choice(buckets.pop(bucket)))
        drawn += [drawn[-1]] * (options.exemplars - len(drawn))
        return sorted(drawn, key=lambda one: one.score)


def _bucketed(scored: Sequence[Attempt], count: int) -> dict[int, list[Attempt]]:
    """Equal steps between the slowest and the fastest; those that are empty are left out."""
    low, high = scored[0].score, scored[-1].score
    width = (high - low) / count or 1.0
    found: dict[int, list[Attempt]] = {}
    for one in scored:
        found.setdefault(min(int((one.score - low) / width), count - 1), []).append(one)
    return found
