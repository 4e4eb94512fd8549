"""AutoKernel: one change after the other on one kernel, each kept where it pays and else undone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from portkern.agent.attempt import Attempt
from portkern.agent.critic import ceiling
from portkern.agent.log import Log
from portkern.agent.slot import Slot
from portkern.agent.strategy.search import Count, Search, Share, ranked

Factor = Annotated[float, Field(ge=1)]


class KeepOrRevert(Search):
    """A change is kept from ``gain`` on, or where it costs no time and the file is shorter than
    ``simpler`` of what it was. The search is over after ``reverts`` changes in a row that were
    undone, at ``peak`` percent of what the hardware allows, and at ``enough`` times the speed that
    it began with."""

    class Options(Search.Options):
        gain: Factor = 1.01
        simpler: Share | None = 0.9
        reverts: Count | None = 5
        peak: Annotated[float, Field(gt=0, le=100)] | None = 90.0
        enough: Annotated[float, Field(gt=1)] | None = 2.0

    class State(Search.State):
        """``first`` and ``kept``: the attempt that it began with and the one that it stands at."""

        first: str = ""
        kept: str = ""
        reverted: int = 0
        done: bool = False

    options: Options
    state: State

    def next(self, known: Log) -> Slot | None:
        """One experiment at a time: the next one builds on what this one comes to."""
        if self.state.out or self.state.done:
            return None
        return Slot(parents=(self.state.kept,) if self.state.kept else ())

    def learn(self, slot: Slot, attempts: Sequence[Attempt], known: Log) -> None:
        state, options = self.state, self.options
        pays = [one for one in ranked(attempts) if self._pays(one, known)]
        if pays:
            state.kept, state.reverted = pays[0].id, 0
            state.first = state.first or state.kept
        else:
            state.reverted += 1
        state.done = state.reverted == options.reverts or (bool(pays) and self._enough(known))

    def _pays(self, attempt: Attempt, known: Log) -> bool:
        if not self.state.kept:
            return True
        before = known[self.state.kept]
        if attempt.score >= before.score * self.options.gain:
            return True
        shorter = len(attempt.source) <= len(before.source) * (self.options.simpler or 0.0)
        return shorter and attempt.score * self.options.gain > before.score

    def _enough(self, known: Log) -> bool:
        kept, options = known[self.state.kept], self.options
        reached = ceiling.reached(kept.metrics)
        at_peak = options.peak is not None and reached is not None and reached >= options.peak
        gained = kept.score / known[self.state.first].score
        return at_peak or (options.enough is not None and gained >= options.enough)
