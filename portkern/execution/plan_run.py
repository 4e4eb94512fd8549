"""Runs a plan on this machine: its cells become records in a file, which goes on where it was
interrupted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from portkern.cells.run import Matrix, MatrixProgress
from portkern.errors import ConfigError
from portkern.evaluator.artifact_cache import ArtifactCache
from portkern.execution.plan import ExecutionPlan
from portkern.records.jsonl import Torn
from portkern.records.record import Record, RecordFile
from portkern.sandbox import session
from portkern.spec.safe_name import SafeName
from portkern.toolchain.run_tool import cache_root


@dataclass(frozen=True)
class PlanRun:
    """``path``: the file of records, which holds those of this plan alone."""

    plan: ExecutionPlan
    path: Path

    def check(self) -> None:
        """Raises ConfigError for a plan of another portkern or a file of other records."""
        refused = self.plan.refusal()
        if refused:
            raise ConfigError(refused)
        for record in RecordFile(self.path).read()[0]:
            if record.run != self.plan.label:
                raise ConfigError(
                    f"{self.path} has records of {record.run!r}, expected {self.plan.label!r}; "
                    "choose another out=FILE"
                )

    def execute(
        self, *, fresh: bool = False, show: Callable[[MatrixProgress], None] = lambda _: None
    ) -> tuple[list[Record], Torn | None]:
        """The records of all cells, in the plan's order. Raises ConfigError and StorageError."""
        cells = self.plan.load_cells(cache_root() / "plans" / SafeName(self.plan.id))
        builds = ArtifactCache(cache_root() / "builds")
        matrix = Matrix(
            cells,
            self.plan.label,
            RecordFile(self.path),
            builds,
            self.plan.trial_options,
            fresh,
            show,
        )
        with session.servers_of_own():
            return matrix.execute(), matrix.torn
