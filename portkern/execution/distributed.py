"""The cells of a matrix on the nodes of a cluster; one file of records, which the driver alone
writes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from portkern.cells.run import RETRIED, MatrixProgress
from portkern.cells.selection import SelectedCell
from portkern.cells.to_record import unbuilt, unroutable
from portkern.errors import RecordError
from portkern.evaluator.trial import TrialOptions
from portkern.execution.dispatch import Dispatch, ExecutionNode, Fleet, said
from portkern.execution.slices import Slice, slices
from portkern.records.jsonl import Torn
from portkern.records.record import Record, RecordFile, Verdict


@dataclass
class DistributedMatrix:
    """A :class:`portkern.cells.run.Matrix` on several machines. Records have the driver's
    keys: what is reused depends on the question, not on which node has answered it."""

    cells: Sequence[SelectedCell]
    run: str
    file: RecordFile
    options: TrialOptions
    fleet: Fleet
    fresh: bool = False
    report: Callable[[MatrixProgress], None] = lambda _: None
    note: Callable[[str], None] = lambda _: None
    node_wait_s: float = 30.0
    straggler_s: float = 300.0
    torn: Torn | None = None
    _records: dict[str, Record] = field(default_factory=dict)

    def execute(self) -> list[Record]:
        """The records of all cells, in the cells' order. Raises StorageError when they cannot be
        kept; those that were are the next run's to reuse."""
        keys = [key_of(cell) for cell in self.cells]
        if not self.fresh:
            known, self.torn = self.file.read()
            self._records |= {r.key: r for r in known if r.key in set(keys) and _final(r)}
        self.report(MatrixProgress(len(keys), len(self._records), None))
        todo = [
            cell for cell, key in zip(self.cells, keys, strict=True) if key not in self._records
        ]
        ruled_out = [cell for cell in todo if _anywhere(cell)]
        self._emit(zip(ruled_out, (unbuilt(self.run, cell) for cell in ruled_out), strict=True))
        self._dispatch([cell for cell in todo if not _anywhere(cell)])
        return [self._records[key] for key in keys]

    def _dispatch(self, cells: Sequence[SelectedCell]) -> None:
        if not cells:
            return
        dispatch = Dispatch(
            self.fleet,
            self._answered,
            self._given_up,
            self.note,
            node_wait_s=self.node_wait_s,
            straggler_s=self.straggler_s,
        )
        advertised = {name for node in dispatch.first_nodes() for name in node.targets}
        dispatch.run(slices(cells, self.options, self.run, advertised))

    def _answered(self, part: Slice, node: ExecutionNode, answer: object) -> str:
        try:
            records = part.records(answer)
        except (RecordError, ValueError) as error:
            return f"its answer is not an answer: {said(error)}"
        self._emit(zip(part.cells, records, strict=True))
        return ""

    def _given_up(self, part: Slice, why: str) -> None:
        self.note(f"{part.name}: {why}")
        self._emit((cell, unroutable(self.run, cell, why)) for cell in part.cells)

    def _emit(self, answers: Iterable[tuple[SelectedCell, Record]]) -> None:
        new = [
            record.model_copy(update={"run": self.run, "key": key_of(cell)})
            for cell, record in answers
        ]
        if not new:
            return
        self.file.append(new)
        self._records |= {record.key: record for record in new}
        self.report(MatrixProgress(len(self.cells), len(self._records), new[-1]))


def key_of(cell: SelectedCell) -> str:
    """The key of a cell that runs elsewhere; it differs from the key of a run on this machine,
    whose results say something of it."""
    return hashlib.sha256(f"distributed {cell.key}".encode()).hexdigest()[:24]


def _anywhere(cell: SelectedCell) -> bool:
    """Whether its verdict is the same on all machines."""
    return cell.ruled_out is not None and cell.ruled_out[0] is Verdict.UNSUPPORTED


def _final(record: Record) -> bool:
    """Whether a record stands; what could not be done may be done by another node, or by one that
    joins later."""
    return record.verdict not in (*RETRIED, Verdict.UNAVAILABLE)
