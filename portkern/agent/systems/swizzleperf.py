"""SwizzlePerf: one bottleneck, the hit rate of the last shared cache, and how blocks are mapped to
the caches of a GPU that has several.

An analysis of the given kernel's accesses is made once. Each try starts from that kernel, and is
told of the cache hierarchy and of every earlier try as a difference, with what it did to hit rate
and time.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from portkern.agent.attempt import Attempt, Diagnosis, PromptBlock
from portkern.agent.axes import AgentContext
from portkern.agent.critic import reading, shown
from portkern.agent.critic.reading import Form, Text, brief
from portkern.agent.critic.silent import AskingCriticOptions, Silent
from portkern.agent.log import Log
from portkern.agent.memory.history import PARENT, Detail, Mention, Told, VisibleLog
from portkern.agent.memory.options import MemoryOptions
from portkern.agent.memory.text import Passage
from portkern.agent.slot import Slot
from portkern.agent.task import Task
from portkern.spec.target import Target

HIT_RATE = "l2_hit_pct"


class Analysis(Form):
    analysis: Text


class LocalityOptions(AskingCriticOptions):
    """``words`` of the analysis are kept; a given kernel whose hit rate is ``enough`` percent has
    no such bottleneck, and the search is over."""

    kind: str = "swizzleperf"
    words: int = Field(400, ge=1)
    enough: float = Field(95.0, gt=0, le=100)


class Locality(Silent):
    """Analyses once, for the given kernel, which blocks share data; changes are nothing to it."""

    options_type: ClassVar[type[LocalityOptions]] = LocalityOptions

    def __init__(self, options: LocalityOptions) -> None:
        super().__init__(options)
        self.options = options

    async def diagnose(self, seen: Attempt, context: AgentContext) -> Diagnosis | None:
        options = self.options
        if seen.parents or not seen.source:
            return None
        rate = seen.metrics.get(HIT_RATE)
        if rate is not None and rate >= options.enough:
            problem = f"{rate:.1f} % of accesses hit the last shared cache: there is no bottleneck"
            return Diagnosis(critic=options.kind, problem=problem, stop=True)
        answer = await reading.ask(
            context.llm,
            options.role,
            "critic_locality",
            Analysis,
            **shown.facts(seen, context),
            words=options.words,
        )
        return Diagnosis(critic=options.kind, problem=brief(answer.analysis, options.words))


def tries(past: VisibleLog) -> Told:
    """Tells of the given kernel with the analysis, and of each earlier try by what it changed and
    what that did to the bottleneck. Nothing else that was measured is told."""
    for start in past.parents[:1]:
        yield Mention(start, PARENT, Detail.CODE)
        for attempt in past.log.children(start.id):
            if attempt.source:
                yield PromptBlock(
                    kind="swizzleperf",
                    title=f"An earlier try ({attempt.id})",
                    text=f"{_difference(start, attempt)}\n{report(start, attempt)}",
                )


def _difference(start: Attempt, attempt: Attempt) -> str:
    old, new = start.source.splitlines(), attempt.source.splitlines()
    lines = difflib.unified_diff(old, new, "given", attempt.id, lineterm="")
    return "\n".join(lines) or "(no change)"


def report(start: Attempt, attempt: Attempt) -> str:
    """Says what a change did to the hit rate and to the time, as far as both are known."""
    if not attempt.correct:
        return f"It came to nothing: {attempt.status.replace('_', ' ')}: {attempt.detail}"
    told = []
    before, after = start.metrics.get(HIT_RATE), attempt.metrics.get(HIT_RATE)
    if before is not None and after is not None:
        told.append(f"Hits in the last shared cache: {before:.1f} % before, {after:.1f} % now.")
    if start.speedups and attempt.speedups:
        told.append(f"It is {attempt.score / start.score:.3g} times as fast as the given kernel.")
    return " ".join(told) or "It is right; neither hit rate nor time is known."


class Topology:
    """The cache hierarchy of the target, and which blocks share a cache."""

    def __init__(self, options: MemoryOptions, task: Task, folder: Path) -> None:
        lines = list(_hierarchy(task.target))
        text = "\n".join(f"- {line}" for line in lines)
        self._blocks = [PromptBlock(kind="swizzleperf", title="Caches", text=text)] if lines else []

    def passages(self, slot: Slot, role: str, log: Log, task: Task) -> list[Passage]:
        return [Passage(block) for block in self._blocks]

    def learn(self, attempt: Attempt) -> None:
        """The target is as it is."""


def _hierarchy(target: Target) -> Iterator[str]:
    dies = target.features.extras.get("xcds")
    units, unit = target.multiprocessors, {"amd": "CU", "nvidia": "SM"}.get(target.vendor, "core")
    size = f" of {target.l2_bytes / 2**10:g} KB" if target.l2_bytes else ""
    if isinstance(dies, int) and dies > 1:
        each = f" and {units // dies} {unit}s" if units else ""
        yield f"{dies} dies (XCDs), each with an L2 cache of its own{size}{each}."
        yield f"Blocks are dealt to the dies in turns: block i runs on die i mod {dies}."
        yield "Blocks that read the same data should share a die; all dies should have equal work."
    elif size:
        yield f"One L2 cache{size}, which {f'all {units} {unit}s' if units else 'all cores'} share."
        yield "Blocks that run at the same time, as those of near indices do, should share data."
    if target.llc_bytes:
        yield f"A last-level cache of {target.llc_bytes / 2**20:g} MB, which all share."
