"""Rounds of repair: in each, every file that has something to mend is asked about once.

What is asked follows from what was answered and proven before, and from nothing else. So a run
that was interrupted goes through it again, with the replies and proofs that are on disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from portkern.agent import prompts
from portkern.agent.axes import Reply
from portkern.agent.budget import Meter
from portkern.agent.llm.calls import FILE as CALLS
from portkern.agent.llm.calls import CallCache, Calls, ModelCall
from portkern.agent.llm.models import Models
from portkern.agent.llm.prices import Prices
from portkern.agent.llm.role import DEFAULT
from portkern.agent.replies import Unread
from portkern.cuda_source import syntax
from portkern.errors import BudgetSpent, ModelDown, ModelError, PortkernError
from portkern.port import patch
from portkern.port.repair import prompt, standing
from portkern.port.repair.edit import edited
from portkern.port.repair.excerpt import Excerpt, excerpt
from portkern.port.repair.plan import RepairPlan
from portkern.port.repair.prompt import Tried
from portkern.port.repair.record import FILE, KernelChange, Repair, Status
from portkern.port.repair.refusal import refusal
from portkern.port.repair.repaired import Repaired
from portkern.port.repair.standing import Standing
from portkern.port.repair.workbench import RepairTrial, Workbench, is_better
from portkern.port.result import KernelRow
from portkern.records import atomic_write
from portkern.toolchain.run_tool import cache_root

#: Attempts that the next prompt tells of.
_TOLD = 2


@dataclass
class _Patient:
    """A file that is mended; ``since`` attempts in a row made nothing better."""

    path: PurePosixPath
    since: int = 0
    tried: list[Tried] = field(default_factory=list)


@dataclass(frozen=True)
class _Asked:
    """A question and what came of it."""

    number: int
    patient: _Patient
    excerpt: Excerpt
    rows: Sequence[KernelRow]
    reply: Reply | PortkernError


def mend(
    plan: RepairPlan,
    bench: Workbench,
    folder: Path,
    tell: Callable[[str], None] = lambda _: None,
) -> Repaired:
    """The tree and what is known of it, mended as far as the plan goes. Raises ConfigError for a
    key or a price that is missing."""
    return asyncio.run(_Loop(plan, bench, folder, tell).run())


class _Loop:
    def __init__(
        self, plan: RepairPlan, bench: Workbench, folder: Path, tell: Callable[[str], None]
    ) -> None:
        self._plan, self._bench, self._folder, self._tell = plan, bench, folder, tell
        self._meter = Meter(plan.budget)
        self._models = Models(
            plan.roles,
            store=Calls(folder / CALLS),
            meter=self._meter,
            seed=plan.seed,
            prices=Prices.of(plan.prices),
            replay=Calls.recorded(plan.replay) if plan.replay else None,
            cache=CallCache(cache_root() / "calls") if plan.cache else None,
        )
        self._repairs: list[Repair] = []
        self._asked = 0
        self._stopped, self._down = "", False

    async def run(self) -> Repaired:
        patients = [_Patient(path) for path in self._bench.files if self._rows(path)]
        try:
            while patients and not self._stopped:
                for asked in await self._round(patients):
                    self._take(asked)
                patients = [patient for patient in patients if self._goes_on(patient)]
        finally:
            await self._models.close(self._stopped or "the repair has ended")
        return Repaired(
            tuple(self._bench.files.values()),
            self._bench.ports,
            tuple(self._repairs),
            self._stopped,
            self._down,
        )

    def _rows(self, path: PurePosixPath) -> list[KernelRow]:
        """Kernels of a file that are to be mended."""
        rows = self._bench.rows.items()
        return [row for name, row in rows if name[0] == str(path) and standing.is_mendable(row)]

    def _goes_on(self, patient: _Patient) -> bool:
        return patient.since < self._plan.patience and bool(self._rows(patient.path))

    async def _round(self, patients: Sequence[_Patient]) -> list[_Asked]:
        """As many as the budget has attempts for, asked at the same time."""
        limit = self._plan.budget.attempts
        room = len(patients) if limit is None else max(limit - self._asked, 0)
        if room < len(patients):
            self._stop(f"{limit} attempts were made, as many as budget.attempts allows")
        first = self._asked + 1
        asked = [self._ask(first + index, patient) for index, patient in enumerate(patients[:room])]
        self._asked += len(asked)
        return list(await asyncio.gather(*asked))

    async def _ask(self, number: int, patient: _Patient) -> _Asked:
        file, rows = self._bench.files[patient.path], self._rows(patient.path)
        names = [row.first.kernel for row in rows]
        shown = excerpt(syntax.parse(file.translation.text), names)
        asked = prompt.messages(file, shown, rows, patient.tried[-_TOLD:], self._bench.request)
        caller = self._models.caller(f"repair:{patient.path}")
        try:
            reply: Reply | PortkernError = await caller.ask(
                DEFAULT, asked, prompt=prompts.named(prompt.NAME)
            )
        except (ModelError, ModelDown, BudgetSpent) as error:
            reply = error
        return _Asked(number, patient, shown, rows, reply)

    def _stop(self, why: str, *, down: bool = False) -> None:
        """The first reason counts, but for a model that is down."""
        if down and not self._down:
            self._stopped, self._down = why, True
        self._stopped = self._stopped or why

    # ---- what a reply comes to

    def _take(self, asked: _Asked) -> None:
        reply, patient = asked.reply, asked.patient
        if isinstance(reply, BudgetSpent | ModelDown):  # without an answer it is not an attempt
            self._stop(str(reply), down=isinstance(reply, ModelDown))
            return
        patient.since += 1
        if isinstance(reply, PortkernError):
            self._stop(self._models.dead, down=bool(self._models.dead))
            self._note(asked, "failed", str(reply))
            return
        made = edited(asked.excerpt, reply.text, cut=reply.cut)
        if isinstance(made, Unread):
            self._vain(asked, "unread", f"No edit could be read: {made.why}", made.why)
            return
        text = self._bench.files[patient.path].translation.text
        diff = _diff(patient.path, text, made.text)
        if why := refusal(text, made.text):
            self._vain(asked, "refused", f"The edit was refused: {why}", why, diff)
            return
        self._try(asked, made.text, diff)

    def _try(self, asked: _Asked, text: str, diff: str) -> None:
        patient, before = asked.patient, self._bench.rows
        trial = self._bench.try_text(patient.path, text, asked.number)
        if why := is_better(before, trial.rows):
            self._bench.undo(patient.path)
            self._vain(asked, "undone", f"The edit was undone: {why}", why, diff, trial)
            return
        self._note(asked, "kept", "", diff, trial)
        self._bench.keep(trial)
        patient.since, patient.tried = 0, []

    def _vain(
        self,
        asked: _Asked,
        status: Status,
        told: str,
        why: str,
        diff: str = "",
        trial: RepairTrial | None = None,
    ) -> None:
        asked.patient.tried.append(Tried(told, diff))
        self._note(asked, status, why, diff, trial)

    def _note(
        self,
        asked: _Asked,
        status: Status,
        why: str,
        diff: str = "",
        trial: RepairTrial | None = None,
    ) -> None:
        call = self._call(asked)
        line = Repair(
            attempt=asked.number,
            file=str(asked.patient.path),
            status=status,
            why=why,
            kernels=tuple(_changes(asked.rows, self._bench, trial)),
            diff=diff,
            model=(call.answered or call.model) if call else "",
            call=call.id if call else "",
            prompt=prompts.named(prompt.NAME),
            tokens_in=call.tokens_in if call else None,
            tokens_out=call.tokens_out if call else None,
            usd=call.usd if call else None,
        )
        self._repairs.append(line)
        text = "".join(f"{repair.to_json()}\n" for repair in self._repairs)
        atomic_write.write(self._folder / FILE, text)
        self._tell(str(line))

    def _call(self, asked: _Asked) -> ModelCall | None:
        names = self._models.caller(f"repair:{asked.patient.path}").calls
        return self._models.store[names[-1]] if names else None


def _changes(
    rows: Sequence[KernelRow], bench: Workbench, trial: RepairTrial | None
) -> Sequence[KernelChange]:
    """The changes of the kernels that were asked about, and of all others that stand otherwise
    now."""
    now = trial.rows if trial else bench.rows
    asked = {(row.first.path, row.first.kernel, row.first.line) for row in rows}
    changes = []
    for name, row in bench.rows.items():
        then, since = Standing.of(row), now.get(name, row)
        key = (row.first.path, row.first.kernel, row.first.line)
        if key in asked or then != Standing.of(since):
            changes.append(
                KernelChange(
                    path=row.first.path,
                    line=row.first.line,
                    kernel=row.first.kernel,
                    before=standing.words(row),
                    after=standing.words(since),
                    better=Standing.of(since).better(then),
                    findings=tuple(prompt.findings(row)) if key in asked else (),
                )
            )
    return changes


def _diff(path: PurePosixPath, before: str, after: str) -> str:
    return patch.of_file(str(path), before.encode(), after.encode()).decode("utf-8", "replace")
