"""Candidates that know nothing of each other."""

from __future__ import annotations

from portkern.agent.log import Log
from portkern.agent.slot import Slot
from portkern.agent.strategy.search import Count, Search


class Single(Search):
    @property
    def most(self) -> int:
        return 1

    def next(self, known: Log) -> Slot | None:
        return None if self.state.asked else Slot()


class BestOfN(Search):
    class Options(Search.Options):
        n: Count = 10

    options: Options

    @property
    def most(self) -> int:
        return self.options.n

    def next(self, known: Log) -> Slot | None:
        # Slots of one kernel each rather than one of n, so that they may be written side by side.
        return Slot() if self.state.asked < self.options.n else None
