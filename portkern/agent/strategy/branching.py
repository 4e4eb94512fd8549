"""CRFM: ideas in words, several kernels of each, and the best of all rounds seed the next."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from portkern.agent.log import Log
from portkern.agent.slot import Slot
from portkern.agent.strategy.search import Count, SlotRounds, failing, names, ranked


class Branching(SlotRounds):
    plans = True

    class Options(SlotRounds.Options):
        rounds: Count | None = 5
        ideas: Count = 4
        impls: Count = 2
        seeds: Count = 2
        bank: Annotated[int, Field(ge=0)] = 8

    options: Options

    @property
    def rounds(self) -> int | None:
        return self.options.rounds

    def begin(self, known: Log) -> list[Slot]:
        """The first slots; while nothing is correct, what failed is shown instead of the bank."""
        best = ranked(known)
        if not best:
            return [self._slot(shown=names(failing(known)[: self.options.bank]))]
        seeds = names(best[: self.options.seeds])
        bank = best[: self.options.bank]
        return [self._slot((seed,), names(bank, without=[seed])) for seed in seeds]

    def _slot(self, parents: tuple[str, ...] = (), shown: tuple[str, ...] = ()) -> Slot:
        return Slot(parents=parents, shown=shown, ideas=self.options.ideas, n=self.options.impls)
