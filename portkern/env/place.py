"""Where an attempt has to be right: a backend's kernel on a target."""

from __future__ import annotations

from dataclasses import dataclass

from portkern.agent.task import Ends, Task
from portkern.cells.selection import LOOKED_FOR, RunStage, SelectedCell, VenueChoice, venues
from portkern.errors import ConfigError
from portkern.learn.rewards import Unavailable
from portkern.spec import registry, target
from portkern.spec.backend import Venue
from portkern.spec.op import Op, Workload


@dataclass(frozen=True)
class EvaluationPlace:
    """``hip@gfx942``. ``venue`` as ``portkern check`` takes it."""

    backend: str
    target: str
    venue: VenueChoice = "best"

    @classmethod
    def parse(cls, text: str) -> EvaluationPlace:
        """Raises ConfigError."""
        backend, mark, where = text.partition("@")
        if not mark or not backend or not where:
            raise ConfigError(f"Got the place {text!r}, expected BACKEND@TARGET such as hip@gfx942")
        place = cls(registry.load(backend).name, target.load(where).name)
        if not registry.load(backend).supports(target.load(where)):
            raise ConfigError(f"{backend} does not compile for {where}; name another target")
        return place

    def __str__(self) -> str:
        return f"{self.backend}@{self.target}"

    def task(self, op: Op, dtype: str, told: dict[str, tuple[Workload, ...]]) -> Task:
        """The task that an author is given here. Raises Unavailable where nothing runs its
        kernels."""
        backend, where = registry.load(self.backend), target.load(self.target)
        venue = self._stage.of(venues(backend, where), backend).best
        if not isinstance(venue, Venue):
            raise Unavailable(f"Nothing here runs {self}: {venue}")
        ends: Ends = "emulator" if venue.kind == "emulator" else "hardware"
        language = next(iter(backend.languages.values()))
        return Task(op, where, backend, language, dtype, told, ends=ends, checkers=venue.sanitize)

    def cells(
        self, task: Task, source: str, workloads: list[tuple[str, Workload]]
    ) -> list[SelectedCell]:
        candidate = task.candidate(source, "policy")
        return [
            SelectedCell(
                task.op,
                which,
                workload,
                task.dtype,
                task.backend,
                task.target,
                candidate,
                self._stage,
                task.torch_ops,
            )
            for which, workload in workloads
        ]

    @property
    def _stage(self) -> RunStage:
        return RunStage(self.venue, LOOKED_FOR)
