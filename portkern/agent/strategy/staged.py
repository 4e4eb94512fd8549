"""PEAK: named transformations one after the other, each kept only when it pays."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from portkern.agent.log import Log
from portkern.agent.slot import Slot
from portkern.agent.strategy.search import Count, Names, SlotRounds, ranked
from portkern.errors import ConfigError, no_such


class Staged(SlotRounds):
    """A stage is a round of independent tries on what the stages before it came to."""

    class Options(SlotRounds.Options):
        sequence: Names = ()
        tries: Count = 3
        rollback: bool = True
        min_gain: Annotated[float, Field(gt=0)] = 1.0

    class State(SlotRounds.State):
        current: str = ""

    options: Options
    state: State

    def start(self) -> State:
        menu = [arm.name for arm in self.arms]
        self._stages = list(self.options.sequence) or menu
        if not self._stages:
            raise ConfigError(
                "staged needs stages; set strategy.sequence=[tiling,…] or proposer.actions=menu/…"
            )
        for stage in self._stages if menu else []:
            if stage not in menu:
                raise no_such("action", stage, menu)
        return self.State()

    @property
    def rounds(self) -> int:
        return len(self._stages)

    def begin(self, known: Log) -> list[Slot]:
        self._settle(known)
        stage, current = self._stages[self.state.round], self.state.current
        slot = Slot(parents=(current,) if current else (), arm=stage, phase=stage)
        return [slot] * self.options.tries

    def _settle(self, known: Log) -> None:
        """Whether the stage that is over moves on, or goes back to where it began."""
        before = known[self.state.current].score if self.state.current else 0.0
        for best in ranked(known.some(self.state.fresh))[:1]:
            if best.score > before * self.options.min_gain or not self.options.rollback:
                self.state.current = best.id
