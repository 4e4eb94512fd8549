"""Populations on islands: parents have children, and the fit stay.

EvoEngineer, FunSearch, AI CUDA Engineer, OpenEvolve and ShinkaEvolve are settings of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from typing import Annotated, Final, Literal

from pydantic import BaseModel, Field, field_validator

from portkern.agent.attempt import Attempt
from portkern.agent.log import Log
from portkern.agent.slot import Slot
from portkern.agent.strategy.population import Mode, PopulationPolicy, power_law
from portkern.agent.strategy.search import Count, Names, Search, names
from portkern.errors import ConfigError, no_such

#: How many parents each takes.
OPERATORS: Final = {"init": 0, "mutate": 1, "diff": 1, "crossover": 2}
#: A grid with the fitness as an axis keeps the slow for being slow (OpenEvolve's PR #152).
FITNESS: Final = ("score", "speed", "speedup", "fitness", "reward", "median_us")
Weight = Annotated[float, Field(ge=0)]
WEIGHTS: Final = {"init": 0.0, "mutate": 1.0, "diff": 0.0, "crossover": 2.0}


class Island(BaseModel):
    """``members``: the fastest first. ``failing``: what fills the population up where too few are
    correct, for their thoughts alone; the latest last. ``used``: how often each operator had its
    turn."""

    members: list[str] = []
    failing: list[str] = []
    used: dict[str, int] = {}


class Evolutionary(Search):
    class Options(Search.Options):
        islands: Count = 1
        population: Count = 5
        mode: Mode = "elite"
        features: Names = ("complexity", "diversity")
        bins: Count = 10
        init: Count = 5
        viable: Annotated[int, Field(ge=0)] = 0
        batch: Count = 3
        barrier: bool = True
        generations: Count | None = 10
        trials: Count | None = None
        operators: dict[str, Weight] = Field(WEIGHTS)
        selection: Literal["rank", "soft_rank", "tournament"] = "rank"
        power: Annotated[float, Field(ge=0)] = 1.0
        tournament: Count = 2
        inspirations: Annotated[int, Field(ge=0)] = 0
        thoughts: Annotated[int, Field(ge=0)] = 0
        migrate_every: Count | None = None
        migrate_rate: Annotated[float, Field(gt=0, le=1)] = 0.1

        @field_validator("features")
        @classmethod
        def _not_the_fitness(cls, features: tuple[str, ...]) -> tuple[str, ...]:
            if not features or set(features) & set(FITNESS):
                raise ValueError("complexity, diversity or metrics, and never the fitness itself")
            return features

    class State(Search.State):
        """``queue``: slots of this generation that are still to be asked for; ``further``: slots
        from nothing beyond the first generation; ``told``: slots."""

        islands: list[Island] = Field(default_factory=list)
        further: int = 0
        queue: list[Slot] = Field(default_factory=list)
        told: int = 0

    options: Options
    state: State

    @property
    def operators(self) -> tuple[str, ...]:
        return tuple(self._weights)

    def start(self) -> State:
        options = self.options
        for name in options.operators:
            if name not in OPERATORS:
                raise no_such("operator", name, OPERATORS)
        self._weights = {name: weight for name, weight in options.operators.items() if weight}
        if not self._weights:
            raise ConfigError(
                f"Got strategy.operators={options.operators}, expected a weight above 0 for one of "
                + ", ".join(OPERATORS)
            )
        self._policy = PopulationPolicy(
            options.mode, options.population, options.features, options.bins
        )
        pairs = [name for name in self._weights if OPERATORS[name] > 1]
        if pairs and (options.mode == "single" or options.population == 1):
            raise ConfigError(
                f"Operator {pairs[0]!r} takes two parents, and there is a population of one; set "
                f"strategy.operators.{pairs[0]}=0, or a larger strategy.population with another "
                "strategy.mode than single"
            )
        most = 1 if options.mode == "single" else options.population
        if options.viable > most:
            raise ConfigError(
                f"Got strategy.viable={options.viable}, but a population holds {most}; set less, "
                "or a larger strategy.population with another strategy.mode than single"
            )
        if options.migrate_every and options.islands == 1:
            raise ConfigError(
                f"Got strategy.migrate_every={options.migrate_every} on one island; set "
                "strategy.islands=4, or strategy.migrate_every=null"
            )
        return self.State(islands=[Island() for _ in range(options.islands)])

    @property
    def _first(self) -> int:
        """The number of slots of the first generation, which is made from nothing or is the
        given kernel."""
        return 1 if self.given else self.options.islands * self.options.init

    @property
    def _span(self) -> int:
        """The number of slots of each later generation."""
        return self.options.islands * self.options.batch

    def next(self, known: Log) -> Slot | None:
        state, options = self.state, self.options
        if self.asked_of_authors == options.trials:
            return None
        if options.generations and self._bred == options.generations * self._span:
            return None
        if not state.queue and not (options.barrier and state.out):
            state.queue = self._generation(known)
        return state.queue.pop(0) if state.queue else None

    @property
    def _bred(self) -> int:
        """Slots that were asked for after those from nothing; below 0 among these."""
        return self.state.asked - self._first - self.state.further

    def _generation(self, known: Log) -> list[Slot]:
        state, options = self.state, self.options
        begins = state.asked < self._first
        ready = all(len(island.members) >= options.viable for island in state.islands)
        if self._bred > 0:
            for island in state.islands:
                left = max(options.population - len(island.members), 0)
                island.failing = island.failing[-left:] if left else []
        count = self._first if begins else self._span
        places = range(state.asked, state.asked + (count if options.barrier else 1))
        if not (begins or ready):
            state.further += len(places)
        return [self._slot(number, known, new=begins or not ready) for number in places]

    def learn(self, slot: Slot, attempts: Sequence[Attempt], known: Log) -> None:
        begins = self.given and not self.state.told
        for island in self.state.islands if begins else [self.state.islands[slot.island]]:
            self._settle(island, names(attempts), known)
            if self.options.thoughts:
                island.failing += [one.id for one in attempts if not one.correct]
        self.state.told += 1
        bred = self.state.told - self._first - self.state.further
        every = self._span * (self.options.migrate_every or 0)
        if every and bred > 0 and bred % every == 0:
            self._migrate(known)

    def _settle(self, island: Island, new: Sequence[str], known: Log) -> None:
        everyone = known.some(dict.fromkeys([*island.members, *new]))
        island.members = list(names(self._policy.survivors(everyone)))

    def _migrate(self, known: Log) -> None:
        """The fastest of each island are copied to the next one, all at once."""
        rate, islands = self.options.migrate_rate, self.state.islands
        leaving = [island.members[: math.ceil(len(island.members) * rate)] for island in islands]
        for place, island in enumerate(islands):
            self._settle(island, leaving[place - 1], known)

    def _slot(self, number: int, known: Log, *, new: bool) -> Slot:
        """Parents, inspirations and thoughts are of the island where the child will live. ``new``:
        it is of a generation from nothing."""
        place, drawn = number % self.options.islands, self.chance(number)
        island = self.state.islands[place]
        operator = "init" if new else self._operator(island)
        parents = self._parents(island.members, OPERATORS[operator], drawn)
        others = [name for name in island.members if name not in parents]
        shown = drawn.sample(others, min(self.options.inspirations, len(others)))
        return Slot(
            parents=parents,
            operator=operator,
            island=place,
            shown=tuple(shown),
            thoughts=self._thoughts(island, known, drawn),
        )

    def _thoughts(self, island: Island, known: Log, drawn: Random) -> tuple[str, ...]:
        """Draws from the whole population some attempts whose authors gave reasons; the given
        kernel may be among them, though its author gave none."""
        thinking = [
            one.id
            for one in known.some([*island.members, *island.failing])
            if one.rationale or (self.given and one.slot == 0)
        ]
        return tuple(drawn.sample(thinking, min(self.options.thoughts, len(thinking))))

    def _operator(self, island: Island) -> str:
        """They take turns in proportion to their weights, so that of a generation of three two are
        crossovers and one is a mutation; another stands in for one that lacks parents."""
        weights, used = self._weights, island.used
        turns = sum(used.values()) + 1
        total = sum(weights.values())
        due = max(weights, key=lambda name: weights[name] / total * turns - used.get(name, 0))
        used[due] = used.get(due, 0) + 1
        there = len(island.members)
        return next(n for n in (due, *weights, "mutate", "init") if OPERATORS[n] <= there)

    def _parents(self, members: Sequence[str], count: int, drawn: Random) -> tuple[str, ...]:
        """Different ones, the fastest first; by ``soft_rank`` as they were drawn, one perhaps
        twice."""
        if self.options.selection == "soft_rank" and count:
            weights = [1 / (len(members) + rank) for rank in range(len(members))]
            return tuple(drawn.choices(members, weights, k=count))
        left = list(members)
        for _ in range(count):
            if self.options.selection == "rank":
                [pick] = drawn.choices(left, power_law(len(left), self.options.power))
            else:
                entered = drawn.sample(left, min(self.options.tournament, len(left)))
                pick = min(entered, key=members.index)
            left.remove(pick)
        return tuple(name for name in members if name not in left)
