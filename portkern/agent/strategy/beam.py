"""The best few are expanded side by side, and the best few of what comes of it are next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Annotated, Literal

from pydantic import Field

from portkern.agent.attempt import Attempt
from portkern.agent.log import Log
from portkern.agent.slot import Arm, Slot
from portkern.agent.strategy.search import Count, SlotRounds, failing, names, ranked
from portkern.errors import ConfigError


class Beam(SlotRounds):
    class Options(SlotRounds.Options):
        width: Count = 2
        expand: Count = 2
        rounds: Count | None = 5
        turns: Count = 1
        repeat: Count = 1
        arms: Annotated[int, Field(ge=0)] = 0
        prescribed: Annotated[int, Field(ge=0)] = 0
        keep: Literal["pool", "children"] = "pool"
        diverging: Annotated[float, Field(gt=1)] | None = None

    class State(SlotRounds.State):
        """``left``: the turns still to be taken after each slot that is out or in the queue;
        ``done``: a critic said that nothing more is to be gained."""

        members: list[str] = Field(default_factory=list)
        left: list[int] = Field(default_factory=list)
        done: bool = False

    options: Options
    state: State

    def start(self) -> State:
        wanted, there = self.options.arms, len(self.arms)
        if wanted > there:
            raise ConfigError(
                f"Got strategy.arms={wanted}, but there are {there} actions to choose from; set "
                f"proposer.actions=menu/… or strategy.arms={there}"
            )
        return self.State()

    @property
    def rounds(self) -> int | None:
        return self.options.rounds

    def next(self, known: Log) -> Slot | None:
        return None if self.state.done else super().next(known)

    def begin(self, known: Log) -> list[Slot]:
        options = self.options
        members = self._survivors(known)
        self.state.members = list(names(members))
        drawn = self.chance(self.state.asked)
        each = [self._expand(member, known, drawn) for member in members] or [
            [Slot(n=options.expand)]
        ]
        times = options.repeat if members else options.repeat * options.width
        slots = [slot for _ in range(times) for expansion in each for slot in expansion]
        self.state.left = [options.turns - 1] * len(slots)
        return slots

    def learn(self, slot: Slot, attempts: Sequence[Attempt], known: Log) -> None:
        """A trajectory goes on with the fastest of its last turn, or the latest that failed."""
        super().learn(slot, attempts, known)
        stop = any(attempt.diagnosis and attempt.diagnosis.stop for attempt in attempts)
        self.state.done = self.state.done or stop
        left = self.state.left.pop(0) if self.state.left else 0  # a given kernel takes no turns
        if left:
            heads = (ranked(attempts) or failing(attempts))[:1]
            parents = names(heads) or slot.parents
            self.state.queue.append(Slot(parents=parents, n=self.options.expand))
            self.state.left.append(left - 1)

    def _survivors(self, known: Log) -> list[Attempt]:
        """Failing ones only while there is no other, to be mended."""
        members, children = known.some(self.state.members), known.some(self.state.fresh)
        if self.options.keep == "pool" or not any(child.correct for child in children):
            children = [*members, *children]
        kept = (ranked(children) or failing(children))[: self.options.width]
        limit = self.options.diverging
        return [kept[0] if limit and one.score * limit < kept[0].score else one for one in kept]

    def _expand(self, member: Attempt, known: Log, drawn: Random) -> list[Slot]:
        """Slots with different fixes of the member's diagnosis, or with different arms: first
        those that this member has seen least."""
        fixes = member.diagnosis.fixes[: self.options.prescribed] if member.diagnosis else ()
        if fixes:
            return [Slot(parents=(member.id,), n=self.options.expand, arm=fix) for fix in fixes]
        tried = Counter(child.arm for child in known.children(member.id))
        arms = drawn.sample(self.arms, len(self.arms))
        arms = sorted(arms, key=lambda arm: tried[arm.name])[: self.options.arms] or [Arm("")]
        return [Slot(parents=(member.id,), n=self.options.expand, arm=arm.name) for arm in arms]
