"""Cells that the machine's server evaluates, where one runs."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Sequence

from portkern.cells.run import Progress, answered
from portkern.cells.selection import Cell
from portkern.cli.verbs import executions
from portkern.cli.verbs.executions import Runner
from portkern.errors import BackendUnavailable, ConfigError, no_such
from portkern.evaluator.trial import TrialOptions
from portkern.execution.plan import Plan
from portkern.records.record import Record, RecordFile
from portkern.serve.client import Client, ServerGone
from portkern.serve.evaluation import bounded
from portkern.serve.job_queue import QueueFull

CHOICES = ("auto", "never", "always")


def runner(choice: str) -> Runner:
    """``auto``: the server if one of this portkern runs, else this process. Raises ConfigError, and
    BackendUnavailable where there has to be one and is none."""
    if choice not in CHOICES:
        raise no_such("choice of serve=", choice, CHOICES)
    client = Client.here() if choice != "never" else None
    if client is not None:
        return _Asking(client, must=choice == "always")
    if choice == "always":
        raise BackendUnavailable("No server of this portkern runs; 'portkern serve' starts one")
    return executions.here


def _cut(chosen: TrialOptions) -> bool:
    """Whether the server would give fewer rounds or less time than was asked for."""
    granted = bounded(chosen)
    asked, given = chosen.plan, granted.plan
    less = (given.rounds, given.budget_s) != (asked.rounds, asked.budget_s)
    return less or granted.limits != chosen.limits


class _Asking:
    """Records of the server's become the run's own, too. Unless the server ``must`` do it, what it
    does not take, or loses, is evaluated here. It is asked for one operator after the other, so
    that what is done is kept if the rest is lost."""

    def __init__(self, client: Client, *, must: bool) -> None:
        self._client, self._must = client, must

    def __call__(
        self,
        cells: Sequence[Cell],
        run: str,
        file: RecordFile,
        chosen: TrialOptions,
        fresh: bool,
        show: Callable[[Progress], None],
    ) -> list[Record]:
        if not self._must and _cut(chosen):
            print("portkern: note: not evaluated by the server, which grants less", file=sys.stderr)
            return executions.here(cells, run, file, chosen, fresh, show)
        known = {} if fresh else {r.key: r for r in answered(cells, file.read()[0])}
        todo = [cell for cell in cells if cell.key not in known]
        for _, own in itertools.groupby(todo, lambda cell: cell.op.name):
            several = list(own)
            try:
                records = self._client.evaluate(Plan.of(several, chosen, run))
            except (ConfigError, QueueFull, ServerGone) as error:
                if self._must:
                    raise
                print(f"portkern: note: not evaluated by the server: {error}", file=sys.stderr)
                rest = [cell for cell in cells if cell.key not in known]
                here = executions.here(rest, run, file, chosen, fresh, show)
                known |= {record.key: record for record in here}
                break
            file.append(records)
            known |= dict(zip((cell.key for cell in several), records, strict=True))
            show(Progress(len(cells), len(known), records[-1]))
        else:
            if todo:
                at = self._client.at
                print(f"portkern: note: evaluated by the server, process {at.pid}", file=sys.stderr)
        return [known[cell.key] for cell in cells]
