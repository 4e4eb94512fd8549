"""A sweep in its folder: every model asked for every task, several times, within one budget.

samples.jsonl  a row for each sample      ledger.jsonl  what may have been charged
asked.json     what decides the rows      samples/…     each sample's run: prompt, reply, records

A sample is a run of its own, and its row is written once it has ended. A sweep that was cut off
therefore goes on where it was: rows that are there stay, and so do replies.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from portkern.agent import pace
from portkern.agent.bench import Ask
from portkern.agent.budget import Spent
from portkern.agent.log import FILE as ATTEMPTS
from portkern.agent.loop import Turns
from portkern.agent.run import RECORDS, GenerationRun
from portkern.errors import ConfigError, MachineUnfit, PortkernError, StorageError
from portkern.evaluator import imported
from portkern.experiment.compare import ended, forecast
from portkern.experiment.compare.contestant import RoutedModels
from portkern.experiment.compare.forecast import Forecast
from portkern.experiment.compare.ledger import Ledger
from portkern.experiment.compare.sample import FILE as SAMPLES
from portkern.experiment.compare.sample import Sample
from portkern.experiment.compare.task import (
    AskedSample,
    ComparedModel,
    CompareTask,
    decided_by,
    key_of,
)
from portkern.experiment.ending import AttemptEnding
from portkern.records import atomic_write
from portkern.records.jsonl import LineFile
from portkern.records.record import Record
from portkern.spec.foreign_text import json_object
from portkern.spec.safe_name import inside

ASKED: Final = "asked.json"
#: The most samples that a model may be ahead of another under a budget: what there is when it ends
#: compares.
_MOST_AHEAD: Final = 8
_LOOK_AGAIN_S: Final = 0.05


@dataclass(frozen=True)
class SweepProgress:
    """``latest`` is None when nothing new has ended."""

    done: int
    total: int
    spent: Spent
    left_s: float
    latest: Sample | None = None


class Sweep:
    """``watch`` is told what is begun; kernels run where ``ask`` says, see Bench. Raises
    ConfigError where ``folder`` holds a sweep that asked for something else by the same names, and
    RecordError for files that are not portkern's."""

    def __init__(
        self,
        models: Sequence[ComparedModel],
        tasks: Sequence[CompareTask],
        n: int,
        folder: Path,
        ledger: Ledger,
        *,
        builders: int = 2,
        retime: bool = False,
        ask: Ask | None = None,
        report: Callable[[SweepProgress], None] = lambda _: None,
        watch: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.models, self.tasks, self.n, self.folder = models, tasks, n, folder
        self.ledger, self._builders, self._report, self._watch = ledger, builders, report, watch
        self._ask = ask
        self._file = LineFile(folder / SAMPLES, Sample.from_json)
        #: All rows of the folder, also of models and tasks that are not asked for now.
        self._rows = {key_of(row): row for row in self._file.read()[0] if row.evaluated}
        self._out: dict[str, str] = {}  # why a model writes no more
        self._unfit: dict[str, str] = {}  # why nothing can be evaluated, by place or task
        self._why: dict[tuple[object, ...], str] = {}  # why a sample was not evaluated
        self._agree()
        self.again = self._forget_untimed() if retime else 0
        todo = [one for one in self.asked() if one.key not in self._rows]
        self._todo = {
            model.name: deque(one for one in todo if one.model is model) for model in models
        }
        self.had = self.done = self.total - len(todo)
        self._left = {one.key: one.task.folder for one in todo}
        self._ended: list[str] = []  # by this command

    @property
    def total(self) -> int:
        return self.n * len(self.tasks) * len(self.models)

    def asked(self) -> Iterator[AskedSample]:
        """The samples that are asked for, in the order in which they are written: round by round,
        so that a sweep that ends early has as many samples of each."""
        for index, task, model in itertools.product(range(self.n), self.tasks, self.models):
            yield AskedSample(model, task, index)

    @cached_property
    def forecast(self) -> Forecast:
        """How long it will take, asked before it is begun."""
        todo = [one for one in self.asked() if one.key not in self._rows]
        return forecast.of(todo, self._builders, self._watch)

    async def run(self) -> None:
        """Runs until all is done, or nothing more can be. Raises StorageError."""
        # What nobody asked for yet is known before the clock starts.
        _, self._turns, self._began = self.forecast, Turns.of(self._builders), time.monotonic()
        self._tell()
        writers = [self._writing(model) for model in self.models for _ in range(model.concurrency)]
        await _all_or_none(writers)

    def rows(self) -> list[Sample]:
        """The rows of everything that is asked for, in order, with what was not evaluated."""
        return [self._rows.get(one.key) or self._unevaluated(one) for one in self.asked()]

    def close(self) -> list[Sample]:
        """Write :meth:`rows` as the file, before what else it holds."""
        asked = self.rows()
        keys = {key_of(row) for row in asked}
        others = [row for key, row in self._rows.items() if key not in keys]
        text = "".join(f"{row.to_json()}\n" for row in [*asked, *others])
        atomic_write.write(self.folder / SAMPLES, text)
        return asked

    @property
    def notes(self) -> list[str]:
        """Why something is missing, a line each."""
        missing = self.total - self.done
        ended = self.ledger.ended if missing else ""
        early = f"{ended}; {missing} of {self.total} samples were not asked for" if ended else ""
        return [
            *([early] if early else []),
            *(f"{name} writes no more: {why}" for name, why in self._out.items()),
            *(f"{what}: nothing can be evaluated: {why}" for what, why in self._unfit.items()),
        ]

    # ---- one model

    async def _writing(self, model: ComparedModel) -> None:
        todo = self._todo[model.name]
        while todo and not self.ledger.ended and model.name not in self._out:
            if self._is_ahead(model):
                await asyncio.sleep(_LOOK_AGAIN_S)
                continue
            asked = todo.popleft()
            if self._why_unfit(asked.task):
                continue
            try:
                await self._write(asked)
            except StorageError:
                raise
            except MachineUnfit as error:
                self._unfit[asked.task.place] = str(error)
            except PortkernError as error:  # of its reference, say: what a kernel does is a verdict
                self._unfit[asked.task.folder] = str(error)

    def _why_unfit(self, task: CompareTask) -> str:
        return self._unfit.get(task.place) or self._unfit.get(task.folder, "")

    def _is_ahead(self, model: ComparedModel) -> bool:
        if self.ledger.budget.usd is None and self.ledger.budget.tokens is None:
            return False
        most = max(len(todo) for name, todo in self._todo.items() if name not in self._out)
        return most - len(self._todo[model.name]) > _MOST_AHEAD

    # ---- one sample

    async def _write(self, asked: AskedSample) -> None:
        folder = self.folder / asked.path
        run = GenerationRun(
            asked.plan,
            folder,
            within=self.ledger,
            ask=self._ask,
            complete=RoutedModels(asked.plan, folder).complete,
        )
        run.watch = lambda what: self._watch(f"{asked.model.name}, {asked.task.folder}: {what}")
        stopped = await run.explore(turns=self._turns)
        if run.down or run.models.dead:
            self._out.setdefault(asked.model.name, stopped or run.models.dead)
        attempts = run.plan.budget.attempts or 0
        spent = bool(stopped and self.ledger.ended) and len(run.log) < attempts
        ending = None if run.down or spent else ended.ending_of(run)
        if ending is None:
            self._leave(asked, run, stopped, again=run.down or spent)
            return
        heldout = await self._heldout(run, ending)
        row = asked.row(**ended.found(run, ending, heldout))
        self._file.append([row])
        self._rows[asked.key] = row
        self.done += 1
        self._ended.append(self._left.pop(asked.key))
        pace.learn(run)
        pace.learn_replies(run)
        self._tell(row)
        async with self._turns.device:  # workers of hundreds of operators would fill the memory
            await asyncio.to_thread(imported.close, run.plan.task.op.reference)

    async def _heldout(self, run: GenerationRun, ending: AttemptEnding) -> list[Record] | None:
        if not ending.correct or not run.plan.final:
            return None
        async with self._turns.device:
            return await asyncio.to_thread(run.final, ending.attempt)

    def _leave(self, asked: AskedSample, run: GenerationRun, stopped: str, *, again: bool) -> None:
        """Leaves a run that is not a sample yet. The next command goes on with it ``again``, or
        begins anew but for the replies that there are."""
        details = (attempt.detail for attempt in run.log)
        self._why[asked.key] = stopped or next(filter(None, details), "it was not evaluated")
        if not again:
            self._begin_anew(asked.path)

    def _unevaluated(self, asked: AskedSample) -> Sample:
        why = (
            self._why.get(asked.key)
            or self._out.get(asked.model.name)
            or self._why_unfit(asked.task)
            or self.ledger.ended
            or "it was not asked for yet"
        )
        return asked.row(status=None, detail=why.partition("\n")[0])

    # ---- what is told and kept

    def _tell(self, latest: Sample | None = None) -> None:
        elapsed_s = time.monotonic() - self._began
        left_s = self.forecast.left_s(elapsed_s, self._ended, [*self._left.values()])
        self._report(SweepProgress(self.done, self.total, self.ledger.spent, left_s, latest))

    def _forget_untimed(self) -> int:
        """Forgets all but the replies of correct samples that ran on hardware and have no time,
        so that they are evaluated anew and no model is asked again; returns how many."""
        places = {one.key: one.path for one in self.asked()}
        untimed = [key for key, row in self._rows.items() if key in places and self.untimed(row)]
        for key in untimed:
            del self._rows[key]
            self._begin_anew(places[key])
        return len(untimed)

    @staticmethod
    def untimed(row: Sample) -> bool:
        """Whether it is correct on hardware, and how fast it is not known."""
        return row.correct and row.evidence == "measured" and row.speedup is None

    def _begin_anew(self, path: str) -> None:
        for name in (ATTEMPTS, RECORDS):
            inside(self.folder, Path(path, name)).unlink(missing_ok=True)

    def _agree(self) -> None:
        """Checks that this sweep agrees with what decided the folder's rows. Raises ConfigError."""
        path = self.folder / ASKED
        known = json_object(path) if path.exists() else {}
        first = self.tasks[0]
        ours = {
            **{f"model {model.name}": decided_by(model, first) for model in self.models},
            **{f"task {task.folder}": task.decided for task in self.tasks},
        }
        changed = sorted(name for name, digest in ours.items() if known.get(name, digest) != digest)
        if changed:
            more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
            raise ConfigError(
                f"{self.folder} holds a sweep that asked otherwise for {changed[0]}{more}; use "
                "run=NAME for a sweep of its own, or fresh=true to put that one aside"
            )
        text = json.dumps({**known, **ours}, indent=1, sort_keys=True)
        atomic_write.write(path, f"{text}\n")


async def _all_or_none(jobs: Iterable[Coroutine[object, object, None]]) -> None:
    """The first error ends all of them."""
    tasks = [asyncio.create_task(job) for job in jobs]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
