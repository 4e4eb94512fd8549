"""The base of all strategies: what is out, what came of it, and where chance comes from."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from portkern.agent.attempt import Attempt, Status
from portkern.agent.log import Log
from portkern.agent.slot import Arm, Slot

Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]
#: YAML has lists where a frozen value has tuples.
Names = Annotated[tuple[str, ...], Field(strict=False)]


class ToldSlots(BaseModel):
    slot: Slot
    names: list[str]


class Search(ABC):
    """A strategy that says what is next, one slot at a time.

    It learns when it is next asked and not when it is told, because only then is the log at hand.
    Of the log it sees what it was told and no more: resumed beside a log that is already complete,
    it decides as it did at first.
    """

    #: Whether its arms are the methods of a graph (``proposer.actions=graph``).
    needs_graph: ClassVar[bool] = False
    #: Whether its slots ask for ideas before code.
    plans: ClassVar[bool] = False

    class Options(BaseModel):
        model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    class State(BaseModel):
        """The state of a search: all of it that changes. ``out`` are slots that were asked for and
        not told, ``news`` those that were told since the last question, ``learnt`` the attempts of
        all others."""

        model_config = ConfigDict(extra="forbid")

        asked: int = 0
        out: list[Slot] = Field(default_factory=list)
        news: list[ToldSlots] = Field(default_factory=list)
        learnt: list[str] = Field(default_factory=list)

    options: Options
    state: State

    def __init__(
        self, options: Options, *, arms: Sequence[Arm], seed: int, given: bool = False
    ) -> None:
        self.options, self.arms, self.seed, self.given = options, tuple(arms), seed, given
        self._known = Log()
        self.state = self.start()

    @property
    def masks(self) -> bool:
        """Whether it goes by the metrics of counters (``feedback.counters``)."""
        return False

    @property
    def operators(self) -> tuple[str, ...]:
        """The operators that the proposer has to tell apart."""
        return ()

    @property
    def most(self) -> int | None:
        """Kernels that it asks for at most; None where that is more than a few."""
        return None

    def start(self) -> State:
        """The first state. Raises ConfigError when options and arms do not go together."""
        return self.State()

    @abstractmethod
    def next(self, known: Log) -> Slot | None:
        """The next slot; None while it waits for what is out, and when it is done."""

    def learn(self, slot: Slot, attempts: Sequence[Attempt], known: Log) -> None:  # noqa: B027
        """``known`` has the attempts; there may be none. Not every strategy has to know."""

    def ask(self, log: Log, room: int) -> list[Slot]:
        known = self._known
        known.add([log[name] for name in self.state.learnt[len(known) :]])
        while self.state.news:
            entry = self.state.news.pop(0)
            attempts = [log[name] for name in entry.names]
            known.add(attempts)
            self.state.learnt += entry.names
            self.learn(entry.slot, attempts, known)
        slots: list[Slot] = []
        while len(slots) < room and (slot := self.next(known)):
            self.state.asked += 1
            self.state.out.append(slot)
            slots.append(slot)
        return slots

    def tell(self, slot: Slot, attempts: Sequence[Attempt]) -> None:
        """Raises ValueError for a slot whose turn it is not."""
        expected = self.state.out[0] if self.state.out else None
        # The loop numbers slots, and cuts them when little is left of a budget.
        if not expected or replace(slot, number=-1, n=expected.n, ideas=expected.ideas) != expected:
            raise ValueError(f"Got {slot}, expected {expected or 'none: nothing is out'}")
        del self.state.out[0]
        self.state.news.append(ToldSlots(slot=slot, names=[attempt.id for attempt in attempts]))

    @property
    def asked_of_authors(self) -> int:
        """Slots that were asked for, without the one that the given kernel comes of."""
        return self.state.asked - (self.given and self.state.asked > 0)

    def state_dict(self) -> dict[str, object]:
        return self.state.model_dump(mode="json")

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        self.state = self.State.model_validate(state)
        self._known = Log()

    def chance(self, number: int) -> Random:
        """The random numbers for the choice of one slot. They depend on the slot's number and on
        nothing that was drawn before, so that the count of slots is all the state there is of
        them."""
        return Random(f"{self.seed} {number}")


class SlotRounds(Search):
    """Asks for a round of slots and begins the next when all of them are told. A given kernel is
    what the first round builds on, and no round of its own."""

    class State(Search.State):
        """``queue``: slots of this round that are still to be asked for; ``fresh``: the attempts
        that came of it."""

        round: int = 0
        queue: list[Slot] = Field(default_factory=list)
        fresh: list[str] = Field(default_factory=list)

    state: State

    @property
    @abstractmethod
    def rounds(self) -> int | None:
        """The number of rounds; None means until the budget ends."""

    @abstractmethod
    def begin(self, known: Log) -> list[Slot]:
        """The slots of the next round. ``fresh`` are the attempts of the one before."""

    def next(self, known: Log) -> Slot | None:
        state = self.state
        if self.given and not state.asked:
            return Slot()
        if not state.queue and not state.out and state.round != self.rounds:
            state.queue, state.fresh = self.begin(known), []
            state.round += 1
        return state.queue.pop(0) if state.queue else None

    def learn(self, slot: Slot, attempts: Sequence[Attempt], known: Log) -> None:
        self.state.fresh += [attempt.id for attempt in attempts]


def written(attempts: Iterable[Attempt]) -> list[Attempt]:
    """The attempts that can be built on: they have code, and it is not another attempt's."""
    return [
        attempt for attempt in attempts if attempt.source and attempt.status is not Status.DUPLICATE
    ]


def ranked(attempts: Iterable[Attempt]) -> list[Attempt]:
    """The correct ones of them, the fastest first; of equals the older."""
    return sorted(
        (attempt for attempt in written(attempts) if attempt.correct),
        key=lambda attempt: -attempt.score,
    )


def failing(attempts: Iterable[Attempt]) -> list[Attempt]:
    """The others that were evaluated, the latest first."""
    return [
        attempt
        for attempt in written(attempts)
        if not attempt.correct and attempt.status is not Status.SCREENED
    ][::-1]


def metric(attempt: Attempt, name: str) -> float | None:
    """A metric of an attempt; None where it was not measured, or its value is not a number."""
    value = attempt.metrics.get(name)
    return value if value is not None and math.isfinite(value) else None


def names(attempts: Iterable[Attempt], without: Sequence[str] = ()) -> tuple[str, ...]:
    """The names, each once, in their order."""
    return tuple(dict.fromkeys(attempt.id for attempt in attempts if attempt.id not in without))
