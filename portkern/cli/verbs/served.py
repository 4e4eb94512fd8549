"""Cells that the machine's server evaluates, where one runs."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from portkern.agent.bench import Ask
from portkern.cells.run import MatrixProgress, answered
from portkern.cells.selection import SelectedCell
from portkern.cli.verbs import executions
from portkern.cli.verbs.executions import Runner
from portkern.errors import BackendUnavailable, ConfigError, no_such
from portkern.evaluator.trial import TrialOptions
from portkern.execution.plan import ExecutionPlan
from portkern.printable import printable
from portkern.records.record import Record, RecordFile
from portkern.serve.client import Client, ServerFailed, ServerGone
from portkern.serve.evaluation import bounded
from portkern.serve.job_queue import QueueFull

CHOICES = ("auto", "never", "always")


def runner(choice: str) -> Runner:
    """``auto``: the server if one of this portkern runs, else this process. Raises ConfigError, and
    BackendUnavailable where there has to be one and is none."""
    server = _server(choice)
    return executions.here if server is None else _Asking(server)


def asking(choice: str) -> Ask | None:
    """The same for cells that a run of generate or compare asks for; None: in this process."""
    return _server(choice)


def _server(choice: str) -> _Server | None:
    if choice not in CHOICES:
        raise no_such("choice of serve=", choice, CHOICES)
    client = Client.here() if choice != "never" else None
    if client is not None:
        return _Server(client, must=choice == "always")
    if choice == "always":
        raise BackendUnavailable("No server of this portkern runs; 'portkern serve' starts one")
    return None


def _cut(chosen: TrialOptions) -> bool:
    """Whether the server would give fewer rounds or less time than was asked for."""
    granted = bounded(chosen)
    asked, given = chosen.plan, granted.plan
    less = (given.rounds, given.budget_s) != (asked.rounds, asked.budget_s)
    return less or granted.limits != chosen.limits


@dataclass
class _Server:
    """Answers with the records of cells; None for what it does not take, or loses, which is
    evaluated here unless the server ``must`` do it."""

    client: Client
    must: bool
    _told: set[str] = field(default_factory=set)

    def __call__(
        self, cells: Sequence[SelectedCell], chosen: TrialOptions, run: str
    ) -> Sequence[Record] | None:
        if not self.must and _cut(chosen):
            self._tell("not evaluated by the server, which grants less")
            return None
        try:
            records = self.client.evaluate(ExecutionPlan.of(cells, chosen, run))
        except (ConfigError, QueueFull, ServerFailed, ServerGone) as error:
            if self.must:
                raise
            self._tell(f"not evaluated by the server: {error}")
            return None
        self._tell(f"evaluated by the server, process {self.client.at.pid}")
        return records

    def _tell(self, what: str) -> None:
        """Says it once."""
        if what not in self._told:
            self._told.add(what)
            print(f"portkern: note: {printable(what)}", file=sys.stderr, flush=True)


class _Asking:
    """Records of the server's become the run's own, too. It is asked for one operator after the
    other, so that what is done is kept if the rest is lost."""

    def __init__(self, server: _Server) -> None:
        self._server = server

    def __call__(
        self,
        cells: Sequence[SelectedCell],
        run: str,
        file: RecordFile,
        chosen: TrialOptions,
        fresh: bool,
        show: Callable[[MatrixProgress], None],
    ) -> list[Record]:
        known = {} if fresh else {r.key: r for r in answered(cells, file.read()[0])}
        todo = [cell for cell in cells if cell.key not in known]
        for _, own in itertools.groupby(todo, lambda cell: cell.op.name):
            several = list(own)
            records = self._server(several, chosen, run)
            if records is None:
                rest = [cell for cell in cells if cell.key not in known]
                here = executions.here(rest, run, file, chosen, fresh, show)
                known |= {record.key: record for record in here}
                break
            file.append(records)
            known |= dict(zip((cell.key for cell in several), records, strict=True))
            show(MatrixProgress(len(cells), len(known), records[-1]))
        return [known[cell.key] for cell in cells]
