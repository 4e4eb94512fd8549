"""Records that come home: those of a plan, and which of them are new to a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from portkern.errors import ConfigError, RecordError
from portkern.execution.plan import ID, ExecutionPlan
from portkern.execution.question import Question
from portkern.records.jsonl import Torn
from portkern.records.record import Record, RecordFile
from portkern.spec.safe_name import SafeName

#: The plans that were written for a run, by their ids, a folder in the run's.
PLANS = "plans"


def kept(folder: Path, plan_id: str) -> Path:
    """The path where a run keeps a plan."""
    return folder / PLANS / SafeName(f"{plan_id}.json")


@dataclass(frozen=True)
class Returned:
    """The records of a file that a machine has brought back, of the plan ``run#plan_id``."""

    path: Path
    run: str
    plan_id: str
    records: Sequence[Record]
    torn: Torn | None = None

    @classmethod
    def read(cls, path: Path) -> Returned:
        """Raises ConfigError for a file without records of a plan, and RecordError for one that
        cannot be read or has those of several."""
        if not path.is_file():
            raise ConfigError(f"No file {path}; 'portkern execute PLAN' writes records")
        records, torn = RecordFile(path).read()
        if not records:
            raise ConfigError(f"No records in {path}; 'portkern execute PLAN' writes them")
        label = records[0].run
        run, mark, plan_id = label.rpartition("#")
        if not run or not mark or not ID.fullmatch(plan_id):
            raise ConfigError(
                f"The records in {path} are of the run {label!r} and of no plan; expected those "
                "that 'portkern execute PLAN' writes"
            )
        for number, record in enumerate(records, 1):
            if record.run != label:
                raise RecordError(
                    f"{path}: record {number} is of {record.run!r}, expected {label!r} as the first"
                )
        return cls(path, run, plan_id, records, torn)

    def check(self, plan: ExecutionPlan) -> None:
        """Raises ConfigError unless they are of ``plan``, and RecordError for the first that it did
        not ask for."""
        if plan.id != self.plan_id:
            raise ConfigError(
                f"The records in {self.path} are of the plan {self.plan_id}, got the plan {plan.id}"
            )
        asked = {Question.of_planned(plan, cell) for cell in plan.cells}
        for number, record in enumerate(self.records, 1):
            if Question.of_record(record) not in asked:
                raise RecordError(
                    f"{self.path}: record {number} ({record.row} {record.workload.name} "
                    f"{record.workload.dtype}, {record.backend}@{record.target}) is of no cell of "
                    f"the plan {plan.id}"
                )
            if record.environment.harness_version != plan.portkern.version:
                raise RecordError(
                    f"{self.path}: record {number} is of portkern "
                    f"{record.environment.harness_version}, the plan of {plan.portkern.version}"
                )

    def new(self, known: Sequence[Record], run: str) -> list[Record]:
        """The records that are not among ``known``, as records of ``run``."""
        ids = {record.id for record in known}
        fresh: dict[str, Record] = {r.id: r for r in self.records if r.id not in ids}
        return [record.model_copy(update={"run": run}) for record in fresh.values()]


def unanswered(plan: ExecutionPlan, records: Sequence[Record]) -> int:
    """How many cells of the plan have no record."""
    answered = {Question.of_record(record) for record in records}
    return sum(Question.of_planned(plan, cell) not in answered for cell in plan.cells)
