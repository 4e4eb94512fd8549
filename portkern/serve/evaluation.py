"""A client's plan becomes records of the server's run."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from portkern.cells.run import Matrix
from portkern.cells.selection import SelectedCell
from portkern.errors import ConfigError
from portkern.evaluator.artifact_cache import ArtifactCache
from portkern.evaluator.build import StageLimits
from portkern.evaluator.device_health import Devices
from portkern.evaluator.statistics import TimingPlan
from portkern.evaluator.trial import TrialOptions
from portkern.execution.plan import ExecutionPlan
from portkern.records import source_store
from portkern.records.record import Record, RecordFile
from portkern.records.source_store import SourceStore
from portkern.serve.machine import Machine
from portkern.spec import target
from portkern.spec.backend import Venue
from portkern.spec.safe_name import SafeName
from portkern.toolchain.run_tool import cache_root

#: The most cells of one job; a client may ask for less.
MOST_CELLS = 512
MOST_STAGE_S, MOST_ROUNDS, MOST_BUDGET_S = 600.0, 100, 30.0


class SharedRecords(RecordFile):
    """A run's file that several jobs write to."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._lock = threading.Lock()

    def append(self, records: Iterable[Record]) -> None:
        with self._lock:
            super().append(records)


class Evaluation:
    """Evaluates plans into the run's folder. Thread-safe."""

    def __init__(self, folder: Path, machine: Machine) -> None:
        self.folder, self._machine = folder, machine
        self._file = SharedRecords(folder / "records.jsonl")
        self._sources = SourceStore(folder / source_store.FOLDER)
        self._cache = ArtifactCache(cache_root() / "builds")
        self._devices = Devices()
        self._keeping = threading.Lock()

    def evaluate(self, plan: ExecutionPlan) -> list[Record]:
        """Evaluates all cells of a job anew. They are on disk before this returns. Raises
        ConfigError for what is not evaluated here, and StorageError."""
        check(plan)
        place = cache_root() / "plans"
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f"{SafeName(plan.id)}-", dir=place) as own:
            return self._evaluated(plan, plan.load_cells(Path(own)))

    def _evaluated(self, plan: ExecutionPlan, cells: Sequence[SelectedCell]) -> list[Record]:
        with self._keeping:
            self._sources.keep(cell.candidate for cell in cells if cell.candidate is not None)
        options = bounded(plan.trial_options)
        matrix = Matrix(
            cells,
            self.folder.name,
            self._file,
            self._cache,
            options,
            fresh=True,
            _devices=self._devices,
        )
        if not alone(cells, options):
            with self._machine.shared():
                return matrix.execute()
        with self._machine.shared():
            matrix.build_ahead()
        with self._machine.alone():
            return matrix.execute()


def check(plan: ExecutionPlan) -> None:
    """Raises ConfigError for a plan that is of another portkern, too large, or has facts of its own
    about targets."""
    refused = plan.refusal()
    if refused:
        raise ConfigError(refused.replace("The plan was written", "The request was made"))
    if not 0 < len(plan.cells) <= MOST_CELLS:
        raise ConfigError(f"Got {len(plan.cells)} cells, expected 1 to {MOST_CELLS}; ask for fewer")
    for name, said in plan.targets.items():
        known = target.load(name)
        if known.model_copy(update={"hints": said.hints}) != said:  # hints are for authors alone
            raise ConfigError(
                f"The target {name} has other facts here; use this machine's portkern"
            )


def bounded(options: TrialOptions) -> TrialOptions:
    """The options that a client asks for, within what the server grants."""
    limits, plan = options.limits, options.plan
    stages = StageLimits(
        *(_within(s, MOST_STAGE_S) for s in (limits.build_s, limits.load_s, limits.run_s))
    )
    usual = TimingPlan()
    timing = replace(
        usual,
        rounds=max(1, min(plan.rounds, MOST_ROUNDS)),
        budget_s=_within(plan.budget_s, MOST_BUDGET_S),
        burst_s=_within(plan.burst_s, usual.burst_s),
        most=max(1, min(plan.most, usual.most)),
        patient=False,
    )
    return replace(options, limits=stages, plan=timing)


def _within(asked: float, most: float) -> float:
    """The most for what is more, less than nothing, or no number."""
    return asked if 0 <= asked <= most else most


def alone(cells: Sequence[SelectedCell], options: TrialOptions) -> bool:
    """Whether any of them is timed."""
    return options.timed and any(
        cell.ruled_out is None
        and isinstance(cell.venues.best, Venue)
        and cell.venues.best.kind == "hardware"
        for cell in cells
    )
