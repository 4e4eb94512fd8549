"""The question that a record answers, as it is known on every machine: the key of a record is
its machine's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from portkern.cells.selection import SelectedCell
from portkern.execution.plan import ExecutionPlan
from portkern.execution.planned_cell import PlannedCell
from portkern.records.record import Record
from portkern.spec import registry, target
from portkern.spec.op import Scalar


class Question(NamedTuple):
    op: str
    workload_set: str
    workload: str
    dims: tuple[tuple[str, Scalar], ...]
    scalars: tuple[tuple[str, Scalar], ...]
    dtype: str
    backend: str
    language: str
    target: str
    source: str
    variant: str

    @classmethod
    def of_record(cls, record: Record) -> Question:
        return cls(
            record.op,
            record.workload.set,
            record.workload.name,
            _sorted(record.workload.dims),
            _sorted(record.workload.scalars),
            record.workload.dtype,
            record.backend,
            record.language,
            record.target,
            record.source_hash,
            record.variant,
        )

    @classmethod
    def of_cell(cls, cell: SelectedCell) -> Question:
        return cls(
            cell.op.name,
            cell.workload_set,
            cell.workload.name,
            _sorted(cell.workload.dims),
            _sorted(cell.workload.scalars),
            cell.dtype,
            cell.backend.name,
            cell.language,
            cell.target.name,
            cell.candidate.digest if cell.candidate else "",
            cell.candidate.variant if cell.candidate else "",
        )

    @classmethod
    def of_planned(cls, plan: ExecutionPlan, cell: PlannedCell) -> Question:
        """Raises ConfigError for a plan that contradicts itself."""
        kernel = plan.kernels[cell.kernel] if cell.kernel is not None else None
        backend = registry.load(cell.backend)
        workload = plan.ops[cell.op].planned(cell.workload_set, cell.workload)
        return cls(
            cell.op,
            cell.workload_set,
            cell.workload,
            _sorted(workload.dims),
            _sorted(workload.scalars),
            cell.dtype,
            cell.backend,
            kernel.language if kernel else backend.language_on(target.load(cell.target)),
            cell.target,
            kernel.digest if kernel else "",
            kernel.variant if kernel else "",
        )


def _sorted(values: Mapping[str, Scalar]) -> tuple[tuple[str, Scalar], ...]:
    return tuple(sorted(values.items()))
