"""ReGraphT: methods are the nodes of a graph, which is walked by Monte Carlo search."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from typing import Annotated

from pydantic import BaseModel, Field

from portkern.agent.attempt import Attempt
from portkern.agent.log import Log
from portkern.agent.slot import Slot
from portkern.agent.strategy.search import Count, Search, ranked
from portkern.errors import ConfigError, no_such

#: The node that stands for the task, before any method.
START = ""
Methods = Annotated[tuple[str, ...], Field(strict=False)]


class Edge(BaseModel):
    """``visits`` count those that are out, which so far have brought nothing: walks that are under
    way at once spread."""

    visits: int = 0
    value: float = 0.0


class MctsGraph(Search):
    """A walk follows methods for which it has a correct attempt already, and asks for the first
    one that it lacks. What comes of it counts for every edge of the walk: edges are of the graph
    and not of one attempt, so that what a method brings is learnt wherever it is applied."""

    needs_graph = True

    class Options(Search.Options):
        trials: Count | None = 100
        c: Annotated[float, Field(ge=0)] = 1.414
        depth: Count = 5
        edges: dict[str, Methods] = Field(default_factory=dict)

    class State(Search.State):
        """``walks``: the methods on the way to each slot that is out."""

        edges: dict[str, dict[str, Edge]] = Field(default_factory=dict)
        walks: list[list[str]] = Field(default_factory=list)

    options: Options
    state: State

    def start(self) -> State:
        methods = [arm.name for arm in self.arms]
        if not methods:
            raise ConfigError(
                "mcts_graph needs the methods of a graph; set proposer.actions=graph and the "
                "graph's file, or proposer.actions=menu/…"
            )
        anything = {here: [name for name in methods if name != here] for here in methods}
        edges: dict[str, Sequence[str]] = {START: methods, **(self.options.edges or anything)}
        for name in [*list(edges)[1:], *(name for after in edges.values() for name in after)]:
            if name not in methods:
                raise no_such("method", name, methods)
        if not edges[START]:
            raise ConfigError("Got strategy.edges.''=[], expected the methods that may come first")
        return self.State(edges={a: {b: Edge() for b in after} for a, after in edges.items()})

    def next(self, known: Log) -> Slot | None:
        if self.state.asked == self.options.trials:
            return None
        drawn = self.chance(self.state.asked)
        fastest = max((attempt.score for attempt in known), default=0.0) or 1.0
        walk: list[str] = []
        at: Attempt | None = None
        while True:
            walk.append(self._step(walk[-1] if walk else START, fastest, drawn))
            reached = self._reached(at, walk[-1], known)
            if not reached or len(walk) == self.options.depth or not self._after(walk[-1]):
                break
            at = reached
        for edge in self._edges(walk):
            edge.visits += 1
        self.state.walks.append(walk)
        return Slot(parents=(at.id,) if at else (), arm=walk[-1])

    def learn(self, slot: Slot, attempts: Sequence[Attempt], known: Log) -> None:
        reward = max((attempt.score for attempt in attempts), default=0.0)
        for edge in self._edges(self.state.walks.pop(0)):
            edge.value += reward

    def _step(self, here: str, fastest: float, drawn: Random) -> str:
        """Chooses the next method by the upper bound of what its edge brings, as a share of the
        fastest kernel: ``c`` means the same for an op that gains 5 % as for one that gains a
        hundredfold."""
        edges = self._after(here)
        unseen = [name for name, edge in edges.items() if not edge.visits]
        if unseen:
            return drawn.choice(unseen)
        log = math.log(sum(edge.visits for edge in edges.values()))

        def bound(name: str) -> float:
            edge = edges[name]
            mean = edge.value / edge.visits / fastest
            return mean + self.options.c * math.sqrt(log / edge.visits)

        return max(edges, key=bound)

    def _after(self, here: str) -> dict[str, Edge]:
        return self.state.edges.get(here, {})

    def _edges(self, walk: Sequence[str]) -> list[Edge]:
        return [self.state.edges[a][b] for a, b in zip([START, *walk], walk, strict=False)]

    @staticmethod
    def _reached(at: Attempt | None, method: str, known: Log) -> Attempt | None:
        parents = (at.id,) if at else ()
        best = ranked(
            attempt for attempt in known if attempt.parents == parents and attempt.arm == method
        )
        return best[0] if best else None
