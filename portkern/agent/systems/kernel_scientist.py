"""GPU Kernel Scientist: who selects, who designs experiments, who writes, and a table of all runs.

Each round a model chooses from the table a kernel to build on and another to compare it with, a
second one designs experiments, of which those are written that promise most, each in its own way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from pydantic import Field

from portkern.agent import replies
from portkern.agent.attempt import Attempt, PromptBlock
from portkern.agent.axes import AgentContext, KernelDraft, Reply
from portkern.agent.memory.history import Told, VisibleLog
from portkern.agent.memory.text import named
from portkern.agent.proposer.writing import KernelWriter, Modelled, WriterOptions
from portkern.agent.replies import Unread
from portkern.agent.slot import Slot
from portkern.agent.strategy.search import ranked, written

SELECTOR, DESIGNER = "selector", "designer"


class ScientistOptions(WriterOptions):
    """The designer names so many ``avenues`` and plans so many ``experiments``, of which as many
    are written as the slot has kernels."""

    avenues: int = Field(default=10, ge=1)
    experiments: int = Field(default=5, ge=1)


@dataclass(frozen=True)
class Experiment:
    """``least`` and ``most`` are the gain that is expected, in percent; ``innovation`` points."""

    description: str
    rubric: str = ""
    least: float = 0.0
    most: float = 0.0
    innovation: float = 0.0


class Scientist(Modelled):
    options_type = ScientistOptions
    options: ScientistOptions
    others = (SELECTOR, DESIGNER)

    async def draft(self, writer: KernelWriter) -> KernelDraft:
        return replace(await writer.write("direct"), operator="init")

    async def propose(self, slot: Slot, context: AgentContext) -> list[KernelDraft]:
        known = written(context.log)
        if not known:  # there is nothing to choose from yet
            return await super().propose(slot, context)
        pair = await self._select(self.writer(slot, context, context.llm), known)
        chosen = replace(slot, parents=tuple(dict.fromkeys(one.id for one in pair)))
        plans = await self._design(self.writer(chosen, context, context.llm), pair[0])
        planned = tuple(context.llm.calls)
        if isinstance(plans, Unread):
            return [KernelDraft(None, detail=plans.why, parents=chosen.parents, calls=planned)]
        writers = [
            self.writer(chosen, context, context.llm.within(str(number)))
            for number in range(min(slot.n, len(plans)))
        ]
        drafts = await asyncio.gather(
            *[
                self._write(writer, pair, plan)
                for writer, plan in zip(writers, promising(plans, slot.n), strict=False)
            ]
        )
        # What the choice and the design cost is the first one's, so that it is counted once.
        return [replace(drafts[0], calls=(*planned, *drafts[0].calls)), *drafts[1:]]

    async def _select(
        self, writer: KernelWriter, known: Sequence[Attempt]
    ) -> tuple[Attempt, Attempt]:
        """The kernel to build on and the one to compare it with; the two fastest where the model
        names none that are there."""
        usual = (*ranked(known), *known)
        by_name = {attempt.id: attempt for attempt in known}

        def pair(reply: Reply) -> tuple[Attempt, Attempt] | Unread:
            for each in list(replies.objects(replies.spoken(reply.text)))[::-1]:
                base, other = by_name.get(str(each.get("base"))), str(each.get("reference"))
                if base is not None:
                    return base, by_name.get(other, base)
            return Unread("it names no kernel of the table as its base")

        if len(known) == 1:
            return known[0], known[0]
        chosen = await writer.ask(SELECTOR, "select", pair, writer.facts(SELECTOR), form="json")
        return (usual[0], usual[1]) if isinstance(chosen, Unread) else chosen

    async def _design(self, writer: KernelWriter, base: Attempt) -> list[Experiment] | Unread:
        def design(reply: Reply) -> list[Experiment] | Unread:
            plans = list(read_experiments(reply.text))
            return plans or Unread("it holds no experiment with a description")

        facts = writer.facts(DESIGNER, shown=[base]) | {
            "base": base,
            "avenues": self.options.avenues,
            "experiments": self.options.experiments,
        }
        return await writer.ask(DESIGNER, "experiments", design, facts, form="json")

    async def _write(
        self, writer: KernelWriter, pair: tuple[Attempt, Attempt], plan: Experiment
    ) -> KernelDraft:
        base, other = pair
        draft = await writer.write(
            "experiment",
            shown=pair,
            base=base,
            other=other if other is not base else None,
            experiment=plan,
        )
        parents = writer.slot.parents
        calls = tuple(writer.llm.calls)
        return replace(draft, idea=plan.description, parents=parents, calls=calls)


def promising(plans: Sequence[Experiment], count: int) -> list[Experiment]:
    """The most innovative, then that which may gain most, then that which gains most at least; and
    so on with what is left."""
    left = list(plans)
    chosen: list[Experiment] = []
    for quality in ("innovation", "most", "least") * count:
        if not left or len(chosen) == count:
            break
        best = max(left, key=attrgetter(quality))
        left.remove(best)
        chosen.append(best)
    return chosen


def read_experiments(text: str) -> Iterator[Experiment]:
    """The experiments of the last object that has any."""
    for each in list(replies.objects(replies.spoken(text)))[::-1]:
        plans = each.get("experiments")
        if isinstance(plans, list):
            told = [plan for plan in plans if isinstance(plan, Mapping) and plan.get("description")]
            yield from map(_experiment, told)
            return


def _experiment(plan: Mapping[str, object]) -> Experiment:
    gains = plan.get("performance")
    gain = [_number(value) for value in gains] if isinstance(gains, list) else []
    gain = sorted(gain) or [0.0]
    return Experiment(
        " ".join(str(plan["description"]).split()),
        " ".join(str(plan.get("rubric") or "").split()),
        gain[0],
        gain[-1],
        _number(plan.get("innovation")),
    )


def _number(value: object) -> float:
    """0 for what is not a number."""
    try:
        number = float(str(value).strip(" %+"))
    except ValueError:
        return 0.0
    return number if abs(number) < float("inf") else 0.0


def table(past: VisibleLog) -> Told:
    """Tells the selector of all runs: what each was made from, and how fast it is at each size. The
    others are shown the kernels that were chosen."""
    if past.role != SELECTOR:
        return
    rows = ["run | made from | what was tried | what came of it"]
    for attempt in written(past.log):
        sizes = ", ".join(f"{name}: {gain:.2f}" for name, gain in attempt.speedups.items())
        came = f"{attempt.score:.2f} times as fast ({sizes})" if sizes else _ended(attempt)
        made = " ".join(attempt.parents) or "-"
        rows.append(f"{attempt.id} | {made} | {named(attempt.idea) or '-'} | {came}")
    yield PromptBlock(kind="kernel_scientist", title="All runs", text="\n".join(rows))


def _ended(attempt: Attempt) -> str:
    return "right, not timed" if attempt.correct else attempt.status.replace("_", " ")
