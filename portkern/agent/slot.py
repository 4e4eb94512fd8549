"""The request of a strategy: one expansion of what is known."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Arm:
    """An action that may be asked for by name. ``resource`` (``memory``, ``compute`` or ``cache``)
    is what it relieves; ``text`` tells a model what to do, ``knob`` the catalogue what to turn."""

    name: str
    text: str = ""
    resource: str = ""
    knob: str = ""


@dataclass(frozen=True)
class Slot:
    """``parents`` are ids of attempts to build on, the most important first; ``shown`` of others
    that are only looked at, ``thoughts`` of those of which no more is told than what their authors
    thought. ``ideas`` above 0 asks for so many ideas and ``n`` kernels of each.

    ``operator`` (``init``, ``mutate``, ``crossover``, …) and ``arm`` leave the choice to the
    proposer when they are empty. ``final``: nothing is built on what comes of it. ``number`` counts
    a run's slots; the loop sets it.
    """

    parents: tuple[str, ...] = ()
    n: int = 1
    ideas: int = 0
    arm: str = ""
    operator: str = ""
    phase: str = ""
    island: int = 0
    shown: tuple[str, ...] = ()
    thoughts: tuple[str, ...] = ()
    final: bool = False
    number: int = -1

    @property
    def size(self) -> int:
        """The number of attempts that come of it at most."""
        return self.n * max(self.ideas, 1)
