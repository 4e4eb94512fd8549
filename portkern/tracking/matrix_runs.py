"""MLflow as one sink of records: a run per matrix with the numbers of every cell, below it a run
per (op, backend, target) that was judged, and per machine one that has a point for each matrix.

The records on disk are the truth. Losing the tracking server loses a view of them, so everything
that goes wrong here comes back as :class:`SkippedLog`; the same command again goes on with the runs
that are there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from portkern.errors import ConfigError, RecordError
from portkern.records.record import Record
from portkern.regression.comparison import RunComparison
from portkern.regression.decisions import NightDecisions
from portkern.regression.runs import RunFacts
from portkern.regression.series import Series
from portkern.report.table import MatrixTable, TableCell
from portkern.tracking import matrix_metrics
from portkern.tracking.matrix_metrics import FEW, MORE
from portkern.tracking.once import once
from portkern.tracking.store import SkippedLog, Store, Tracked, public

#: Tags by which runs are found again.
TOKEN, GROUP, DIGEST, HISTORY, ORDINAL = (
    f"portkern.{name}" for name in ("matrix", "group", "records", "history", "ordinal")
)
#: The tag of a run of which all has arrived, whether its gate passed or not.
COMPLETE = "portkern.complete"


def track(
    records: Sequence[Record],
    *,
    experiment: str,
    run_name: str,
    folder: Path,
    uri: str | None = None,
    comparison: RunComparison | None = None,
) -> Tracked | SkippedLog:
    """Log a matrix and the report files that lie in ``folder``. Does not raise for a lost server.

    ``uri`` is MLFLOW_TRACKING_URI's unless given, else ``mlflow.db`` in the current folder, which
    is where ``mlflow ui`` looks. ``experiment`` yields to MLFLOW_EXPERIMENT_NAME.
    """
    if not records:
        return SkippedLog("there are no records")
    night = _Matrix(records, experiment, run_name, folder, comparison)
    return once(night.log, folder, experiment=experiment, digest=night.digest, uri=uri)


@dataclass(frozen=True)
class _Matrix:
    records: Sequence[Record]
    suite: str
    name: str
    folder: Path
    comparison: RunComparison | None

    @cached_property
    def table(self) -> MatrixTable:
        return MatrixTable.of(self.records, decisions=self.decisions)

    @cached_property
    def facts(self) -> RunFacts:
        """The facts that the folder has of the run."""
        try:
            return RunFacts.read(self.folder)
        except RecordError:
            return RunFacts()

    @cached_property
    def decisions(self) -> NightDecisions:
        """The decisions beside the run, none if they cannot be read: the verb that compared or
        reported has told of that."""
        try:
            return NightDecisions.read(self.folder.parent)
        except ConfigError:
            return NightDecisions()

    @cached_property
    def digest(self) -> str:
        return _digest(self.records, self.gate)

    @cached_property
    def gate(self) -> str:
        return _gate(self.table.failing, bool(self.comparison and self.comparison.regressed))

    @cached_property
    def regressed(self) -> set[Series]:
        cells = self.comparison.cells if self.comparison else ()
        return {change.series for change in cells if change.regressed}

    def log(self, where: Store, token: str) -> Tracked:
        """The parent is FINISHED only when all of it has arrived and its gate passed; when all of a
        run whose gate failed has arrived, it has the tag ``complete``."""
        where.end_lost()
        began, ended = matrix_metrics.span_ms(self.records)
        parent, ordinal, before = self._parent(where, token, began)
        self._files(where, parent)
        numbers = matrix_metrics.counts(self.table.whole) | matrix_metrics.changes(self.comparison)
        if len({group.column.tool for group in self.table.cells.values()}) > 1:
            numbers.pop("geomean_speedup", None)  # backends of different kinds have no common mean
        shown = matrix_metrics.without_new_zeros(numbers, before)
        params = self._params(where, parent)
        tags = self._tags()
        where.add(parent, shown | self._of_cells(FEW + MORE), ended, params=params, tags=tags)
        judged = [group for group in self.table.cells.values() if _was_judged(group)]
        self._children(where, parent, judged)
        self._point(where, numbers | self._of_cells(FEW, noisy=False), ended, ordinal)
        where.client.set_tag(parent, COMPLETE, "true")
        where.finish(parent, ended, good=self.gate == "pass")
        return Tracked(
            public(where.uri), where.experiment, parent, len(judged), where.experiment_id
        )

    def _params(self, where: Store, parent: str) -> dict[str, str]:
        """The parameters of the run that it does not have yet: MLflow keeps each as it was first
        given."""
        given = where.client.get_run(parent).data.params
        params = matrix_metrics.run_params(self.table, self.facts)
        return {name: value for name, value in params.items() if name not in given}

    def _files(self, where: Store, parent: str) -> None:
        """Logs files before there are metrics: to find where artifacts lie, MLflow reads the whole
        run."""
        where.client.log_table(parent, matrix_metrics.rows(self.table), "matrix.json")
        where.add_files(parent, self.folder)
        if not (self.folder / "records.jsonl").is_file():
            lines = "".join(record.to_json() + "\n" for record in self.records)
            where.client.log_text(parent, lines, "records.jsonl")

    def _of_cells(self, kinds: Collection[str], *, noisy: bool = True) -> dict[str, float]:
        numbers: dict[str, float] = {}
        for group in self.table.cells.values():
            numbers |= matrix_metrics.cell_metrics(group, kinds, noisy=noisy)
        return numbers

    def _parent(self, where: Store, token: str, began: int) -> tuple[str, int, Mapping[str, float]]:
        """A new one, or that of the same command before; its place among those of the suite; and
        the numbers that it had."""
        known = where.runs({TOKEN: token}, most=1)
        if known:
            parent, ordinal = str(known[0].info.run_id), int(known[0].data.tags[ORDINAL])
        else:
            last = where.runs({"suite": self.suite, "kind": "matrix"}, most=1)
            ordinal = 1 + max((int(run.data.tags.get(ORDINAL, 0)) for run in last), default=0)
            tags = {TOKEN: token, ORDINAL: str(ordinal), "kind": "matrix", "suite": self.suite}
            parent = where.start(self.name, tags, began_ms=began)
        where.incomplete(parent)
        self._datasets(where, parent)
        return parent, ordinal, known[0].data.metrics if known else {}

    def _tags(self) -> dict[str, str]:
        note = matrix_metrics.description(self.table.whole, self.comparison)
        tags = matrix_metrics.run_tags(self.table, self.facts)
        return {"gate": self.gate, "mlflow.note.content": note, **tags}

    def _children(self, where: Store, parent: str, groups: Sequence[TableCell]) -> None:
        """Logs the groups; what was logged already, and is as it was, stays."""
        runs = where.runs({"mlflow.parentRunId": parent}, most=50_000)
        known = {run.data.tags.get(GROUP): run for run in runs}
        for group in groups:
            name = f"{group.op} {group.column}"
            regressed = any(Series.of(record) in self.regressed for record in group.records)
            failing = [r for r in group.failing if not self.table.quarantine(r)]
            gate = _gate(failing, regressed)
            run, digest = known.get(name), _digest(group.records, gate)
            if run and run.data.tags.get(DIGEST) == digest:
                continue
            began, ended = matrix_metrics.span_ms(group.records)
            tags = {"mlflow.parentRunId": parent, GROUP: name, "kind": "group"}
            before = run.data.metrics if run else ()
            numbers = matrix_metrics.without_new_zeros(matrix_metrics.counts(group), before)
            numbers |= matrix_metrics.cell_metrics(group, FEW)
            child = str(run.info.run_id) if run else where.start(name, tags, began_ms=began)
            where.finish(child, ended)  # that it is complete, its digest says
            given = run.data.params if run else {}
            params = {k: v for k, v in matrix_metrics.group_params(group).items() if k not in given}
            named = {"gate": gate, DIGEST: digest, **matrix_metrics.group_tags(group)}
            where.add(child, numbers, ended, params=params, tags=named)

    def _point(self, where: Store, numbers: Mapping[str, float], at_ms: int, ordinal: int) -> None:
        """MLflow draws lines over time within a run alone: this one has a point for each matrix of
        the suite on these machines."""
        machine = matrix_metrics.run_tags(self.table).get("machine", "")
        known = where.runs({HISTORY: self.suite, "machine": machine}, most=1)
        tags = {HISTORY: self.suite, "machine": machine, "kind": "history"}
        name = f"history of {self.suite} on {machine}"
        run = str(known[0].info.run_id) if known else where.start(name, tags, began_ms=at_ms)
        before = known[0].data.metrics if known else ()
        shown = matrix_metrics.without_new_zeros(numbers, before)  # each is a chart
        where.add(run, shown, at_ms, step=ordinal)
        where.finish(run, at_ms)

    def _datasets(self, where: Store, run_id: str) -> None:
        """The workloads of each op, as inputs of the run."""
        from mlflow.entities import Dataset, DatasetInput, InputTag

        context = [InputTag("mlflow.data.context", "evaluation")]
        inputs = []
        for op, workloads in sorted(matrix_metrics.workloads(self.table.records).items()):
            text = json.dumps(workloads)
            digest = hashlib.sha256(text.encode()).hexdigest()[:12]
            profile = json.dumps({"workloads": len(workloads)})
            dataset = Dataset(op, digest, "portkern", text, None, profile)
            inputs.append(DatasetInput(dataset, context))
        where.client.log_inputs(run_id, inputs)


def _was_judged(group: TableCell) -> bool:
    """Whether the group has a run of its own: what no toolchain supports, or nothing here can
    run, is only a row of the parent's matrix.json."""
    return any(record.judged for record in group.records)


def _gate(failing: Sequence[Record], regressed: bool) -> str:
    return "regressed" if regressed else "fail" if failing else "pass"


def _digest(records: Sequence[Record], gate: str) -> str:
    lines = "\n".join([gate, *sorted(record.to_json() for record in records)])
    return hashlib.sha256(lines.encode()).hexdigest()
