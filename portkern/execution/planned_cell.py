"""A cell and the options of its trial, as data: what a cell names stands in its plan."""

from __future__ import annotations

from portkern.cells.selection import SelectedCell
from portkern.evaluator.build import StageLimits
from portkern.evaluator.statistics import TimingPlan
from portkern.evaluator.trial import TrialOptions
from portkern.guard import Library
from portkern.records.jsonl import JsonPart
from portkern.spec.safe_name import SafeName


class PlannedOptions(JsonPart):
    limits: StageLimits
    timing: TimingPlan
    baselines: tuple[str, ...]
    distributions: tuple[str, ...]
    timed: bool = True

    @classmethod
    def of(cls, options: TrialOptions) -> PlannedOptions:
        return cls(
            limits=options.limits,
            timing=options.plan,
            baselines=options.baselines,
            distributions=options.distributions,
            timed=options.timed,
        )

    @property
    def trial(self) -> TrialOptions:
        return TrialOptions(
            self.limits, self.timing, self.baselines, self.distributions, timed=self.timed
        )


class PlannedCell(JsonPart):
    """``kernel`` is one of the plan's; None where there is none, and ``absent`` may say why."""

    op: SafeName
    workload_set: str
    workload: str
    dtype: str
    backend: str
    target: str
    kernel: str | None = None
    absent: str = ""
    library: Library = "allow"

    @classmethod
    def of(cls, cell: SelectedCell, kernel: str | None) -> PlannedCell:
        return cls(
            op=SafeName(cell.op.name, "operator"),
            workload_set=cell.workload_set,
            workload=cell.workload.name,
            dtype=cell.dtype,
            backend=cell.backend.name,
            target=cell.target.name,
            kernel=kernel,
            absent=cell.absent,
            library=cell.library,
        )
