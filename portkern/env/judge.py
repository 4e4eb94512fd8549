"""Evaluates an environment's attempts: by the machine's server, or in this process."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from portkern.cells.selection import SelectedCell
from portkern.errors import MachineUnfit, PortkernError, StorageError, WorkerError
from portkern.evaluator.build import StageLimits
from portkern.evaluator.statistics import TimingPlan
from portkern.evaluator.trial import TrialOptions
from portkern.execution.plan import ExecutionPlan
from portkern.learn.rewards import Unavailable
from portkern.printable import printable
from portkern.records.record import Record
from portkern.serve.client import Client, ServerFailed, ServerGone
from portkern.serve.evaluation import Evaluation
from portkern.serve.job_queue import QueueFull
from portkern.serve.machine import Machine

_OF_THE_MACHINE = (MachineUnfit, QueueFull, ServerFailed, ServerGone, StorageError, WorkerError)
#: A source that takes longer in a stage is not worth learning from.
_STAGE_S = 60.0
#: Rounds and seconds of timing, which attempts are compared by.
_ROUNDS, _BUDGET_S = 5, 0.1


class Judge:
    """Keeps what it is asked as the records of a run. ``timed``: right kernels are timed too, each
    with the machine for itself."""

    def __init__(self, folder: Path, *, timed: bool, served: bool = True) -> None:
        client = Client.here() if served else None
        own = Evaluation(folder, Machine(len(os.sched_getaffinity(0)))) if client is None else None
        self._evaluate: Callable[[ExecutionPlan], list[Record]] = (
            client.evaluate if client else own.evaluate if own else self._nobody
        )
        self._run = folder.name
        self._options = TrialOptions(
            StageLimits(_STAGE_S, _STAGE_S, _STAGE_S),
            TimingPlan(rounds=_ROUNDS, budget_s=_BUDGET_S, patient=False),
            timed=timed,
        )

    def records(self, cells: Sequence[SelectedCell]) -> list[Record]:
        """Raises Unavailable for whatever is the machine's fault, or the evaluator's own: an error
        that nobody foresaw is not a verdict, neither paid nor punished, and its traceback is in the
        cause, or printed by the server."""
        try:
            return self._evaluate(ExecutionPlan.of(cells, self._options, self._run))
        except _OF_THE_MACHINE as error:
            raise Unavailable(f"No reward: {error}") from error
        except PortkernError:
            raise
        except Exception as error:
            what = f"the evaluator failed: {type(error).__name__}: {error}"
            raise Unavailable(f"No reward: {printable(what)}") from error

    @staticmethod
    def _nobody(plan: ExecutionPlan) -> list[Record]:
        raise AssertionError(plan.id)
