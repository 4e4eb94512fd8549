"""Turns on one line of descent, or on several side by side that know nothing of each other."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, Field, field_validator

from portkern.agent.attempt import Attempt
from portkern.agent.log import Log
from portkern.agent.slot import Slot
from portkern.agent.strategy.search import Count, Names, Search, failing, names, ranked


class Descent(BaseModel):
    """The descendants of one start: ``first`` and ``head`` came of the first and the last turn that
    brought code, ``best`` is the fastest that was correct, ``failing`` counts the latest turns in
    which none was."""

    first: str = ""
    head: str = ""
    best: str = ""
    score: float = 0.0
    failing: int = 0

    def add(self, attempts: Sequence[Attempt]) -> float | None:
        """The gain of this turn over the best before it, where there are both."""
        fastest = next(iter(ranked(attempts)), None)
        if fastest is None:
            self.failing += 1
            # Without code, or with the code of before, there is nothing new to build on.
            self.head = next((attempt.id for attempt in failing(attempts)), self.head)
            self.first = self.first or self.head
            return None
        gain = fastest.score / self.score if self.best else None
        self.head, self.failing = fastest.id, 0
        self.first = self.first or self.head
        if fastest.score > self.score:
            self.best, self.score = fastest.id, fastest.score
        return gain


class RefineChain(BaseModel):
    """``pool``: its fastest correct ones, the fastest first."""

    turns: int = 0
    pool: list[str] = []
    out: bool = False
    done: bool = False
    line: Descent = Field(default_factory=Descent)


class _Chains(Search):
    class Options(Search.Options):
        turns: Count | None = 10
        parent: Literal["first", "last", "best"] = "last"
        offspring: Count = 1
        phases: Names = ()
        stop_gain: Annotated[float, Field(gt=0)] | None = None
        debug_trap: Count | None = None
        seeded: bool = False
        pool: Count | None = None

        @field_validator("phases")
        @classmethod
        def _two(cls, phases: tuple[str, ...]) -> tuple[str, ...]:
            if len(phases) not in (0, 2):
                raise ValueError("[], or the names of two such as [functional,optimise]")
            return phases

    class State(Search.State):
        chains: list[RefineChain]

    options: Options
    state: State

    def start(self) -> State:
        return self.State(chains=[RefineChain() for _ in range(self.width)])

    @property
    @abstractmethod
    def width(self) -> int:
        """The number of chains."""

    @property
    @abstractmethod
    def until_correct(self) -> bool:
        """Whether the first correct attempt ends all chains."""

    def next(self, known: Log) -> Slot | None:
        if self.given and not self.state.asked:
            return Slot()
        idle = [c for c in enumerate(self.state.chains) if not (c[1].out or c[1].done)]
        if not idle:
            return None
        number, chain = min(idle, key=lambda c: c[1].turns)
        chain.out = True
        chain.turns += 1
        line, phases = chain.line, self.options.phases
        parent = {"first": line.first, "best": line.best}.get(self.options.parent) or line.head
        return Slot(
            parents=(parent,) if parent else tuple(chain.pool),
            n=self.options.offspring,
            island=number,
            phase=phases[bool(line.best)] if phases else "",
            final=chain.turns == self.options.turns,
        )

    def learn(self, slot: Slot, attempts: Sequence[Attempt], known: Log) -> None:
        """A given kernel is where all chains begin, and a turn of none."""
        first = self.given and len(known) == len(attempts)
        for chain in self.state.chains if first else [self.state.chains[slot.island]]:
            self._advance(chain, attempts, known)
        if self.until_correct and any(attempt.correct for attempt in attempts):
            for each in self.state.chains:
                each.done = True

    def _advance(self, chain: RefineChain, attempts: Sequence[Attempt], known: Log) -> None:
        options = self.options
        chain.out = False
        gain = chain.line.add(attempts)
        mute = not any(attempt.source for attempt in attempts)
        unsown = options.seeded and chain.turns == 1 and mute
        if options.pool is not None:
            self._learn_pool(chain, attempts, known)
        elif chain.line.failing == options.debug_trap:
            chain.line = Descent()
        critic_done = any(attempt.diagnosis and attempt.diagnosis.stop for attempt in attempts)
        too_little = gain is not None and gain < (options.stop_gain or 0)
        chain.done |= critic_done or too_little or unsown or chain.turns == options.turns

    def _learn_pool(self, chain: RefineChain, attempts: Sequence[Attempt], known: Log) -> None:
        """Keeps the fastest attempts in the pool, on which the next one is built; a failing one
        is mended first, as often as the trap allows."""
        trap, candidates = self.options.debug_trap, known.some([*chain.pool, *names(attempts)])
        chain.pool = list(names(ranked(candidates)[: self.options.pool]))
        trapped = trap is not None and chain.line.failing > trap
        if chain.pool and (trapped or not chain.line.failing):
            chain.line.head, chain.line.failing = "", 0


class Refine(_Chains):
    class Options(_Chains.Options):
        until: Literal["", "correct"] = ""

    options: Options

    @property
    def width(self) -> int:
        return 1

    @property
    def until_correct(self) -> bool:
        return self.options.until == "correct"


class ParallelRefine(_Chains):
    class Options(_Chains.Options):
        k: Count = 4
        early_exit: bool = True

    options: Options

    @property
    def width(self) -> int:
        return self.options.k

    @property
    def until_correct(self) -> bool:
        return self.options.early_exit
