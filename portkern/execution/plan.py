"""A plan: what to run, as one document, which needs nothing of the machine that wrote it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import model_validator

from portkern.cells.selection import RunStage, SelectedCell
from portkern.errors import ConfigError, PortkernError
from portkern.evaluator.trial import TrialOptions
from portkern.execution.installation import Portkern
from portkern.execution.planned_cell import PlannedCell, PlannedOptions
from portkern.execution.planned_op import PlannedOp
from portkern.guard import TorchOps
from portkern.records import atomic_write
from portkern.records.jsonl import JsonLine
from portkern.spec import registry
from portkern.spec.candidate import Candidate
from portkern.spec.foreign_text import content
from portkern.spec.op import Workload
from portkern.spec.safe_name import SafeName, refuse_collisions
from portkern.spec.target import Target

ID = re.compile(r"[0-9a-f]{16}")


class ExecutionPlan(JsonLine):
    """``seeds`` are ``secret``: the evaluator draws those of all inputs where it runs, from the
    system's randomness, for each call. They are in no plan and no record, so that no author of a
    kernel can know an input before. ``suite`` is what its ops were called, as tracking knows the
    run. ``id`` is the digest of all the rest."""

    SCHEMA: ClassVar[int] = 1

    schema_: Literal[1] = 1
    id: str = ""
    run: str
    suite: str = ""
    portkern: Portkern
    options: PlannedOptions
    seeds: Literal["secret"] = "secret"
    stage: RunStage
    torch_ops: TorchOps
    ops: dict[SafeName, PlannedOp]
    targets: dict[str, Target]
    kernels: dict[str, Candidate]
    cells: list[PlannedCell]

    @classmethod
    def of(
        cls, cells: Sequence[SelectedCell], options: TrialOptions, run: str, suite: str = ""
    ) -> ExecutionPlan:
        """Raises ConfigError for no cells, and for what cannot be put into a document."""
        if not cells:
            raise ConfigError(
                "No cells are selected, expected one at least; change ops= or workloads="
            )
        if options.others:
            raise ConfigError(f"Got baselines {sorted(options.others)}, expected eager or compile")
        kernels: dict[Candidate, str] = {}
        for cell in cells:
            if cell.candidate is not None:
                kernels.setdefault(cell.candidate, f"{cell.candidate.digest}-{len(kernels)}")
        plan = cls(
            run=run,
            suite=suite,
            portkern=Portkern.here(),
            options=PlannedOptions.of(options),
            stage=cells[0].stage,
            torch_ops=cells[0].torch_ops,
            ops=dict(_ops(cells)),
            targets={cell.target.name: cell.target for cell in cells},
            kernels={name: candidate for candidate, name in kernels.items()},
            cells=[
                PlannedCell.of(cell, kernels[cell.candidate] if cell.candidate else None)
                for cell in cells
            ],
        )
        return plan.model_copy(update={"id": plan._digest()})

    @model_validator(mode="after")
    def _complete(self) -> Self:
        refuse_collisions(self.ops, "operator")
        for kernel in self.kernels.values():
            SafeName(kernel.op, "operator of a kernel")
            SafeName(kernel.entry, "entry of a kernel")
        for cell in self.cells:
            held = cell.op in self.ops and cell.target in self.targets
            if not held or (cell.kernel is not None and cell.kernel not in self.kernels):
                raise ValueError(f"the op, the target or the kernel of {cell} is not in it")
            self.ops[cell.op].planned(cell.workload_set, cell.workload)
        return self

    @property
    def label(self) -> str:
        """The name of the run that its records carry until they are at home."""
        return f"{self.run}#{self.id}"

    @property
    def trial_options(self) -> TrialOptions:
        return self.options.trial

    def load_cells(self, folder: Path) -> list[SelectedCell]:
        """The cells as they are here, in the plan's order; operators' files are written to
        ``folder``. Raises ConfigError for operators or backends that are others here, and
        StorageError."""
        ops = {name: planned.load(folder / SafeName(name)) for name, planned in self.ops.items()}
        loaded = []
        for cell in self.cells:
            op, kernel = ops[cell.op], self.kernels[cell.kernel] if cell.kernel else None
            workload = self.ops[cell.op].workload(
                cell.workload_set, cell.workload, folder / SafeName(cell.op)
            )
            op.check(workload)
            loaded.append(
                SelectedCell(
                    op,
                    cell.workload_set,
                    workload,
                    cell.dtype,
                    registry.load(cell.backend),
                    self.targets[cell.target],
                    kernel,
                    self.stage,
                    self.torch_ops,
                    cell.absent,
                    cell.library,
                )
            )
        return loaded

    def refusal(self) -> str:
        """Why it cannot be run here; empty where it can."""
        here = Portkern.here()
        if here == self.portkern:
            return ""
        return (
            f"The plan was written by {self.portkern}, this is {here}; install the same portkern "
            "on both machines, or write the plan again"
        )

    def write(self, path: Path) -> None:
        """Raises StorageError."""
        atomic_write.write(path, self.model_dump_json(by_alias=True, indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> ExecutionPlan:
        """Reads a plan. Raises ConfigError for what is not a plan, or not all of one."""
        try:
            text = content(path).decode()
        except FileNotFoundError as error:
            raise ConfigError(
                f"No plan {path}; 'portkern matrix … plan={path}' writes one"
            ) from error
        except OSError as error:
            raise ConfigError(f"Cannot read {path}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise ConfigError(f"{path} is not a plan: {error.reason}") from error
        return cls.parse(text, str(path))

    @classmethod
    def parse(cls, text: str, name: str) -> ExecutionPlan:
        """Raises ConfigError."""
        try:
            plan = cls.from_json(text)
        except PortkernError as error:
            raise ConfigError(
                f"{name} is not a plan, or not all of one: {error}; write or copy it again"
            ) from error
        if plan.id != plan._digest():
            raise ConfigError(
                f"{name} is not as it was written: its digest is {plan._digest()}, expected "
                f"{plan.id[:16]!r}; write or copy it again"
            )
        return plan

    def _digest(self) -> str:
        content = self.model_copy(update={"id": ""}).to_json()
        return hashlib.sha256(content.encode()).hexdigest()[:16]


def _ops(cells: Sequence[SelectedCell]) -> Iterator[tuple[SafeName, PlannedOp]]:
    by_name = {cell.op.name: cell.op for cell in cells}
    for name, op in by_name.items():
        used: dict[tuple[str, str], Workload] = {
            (cell.workload_set, cell.workload.name): cell.workload
            for cell in cells
            if cell.op.name == name
        }
        planned = PlannedOp.of(op, [(which, workload) for (which, _), workload in used.items()])
        yield SafeName(name, "operator"), planned
