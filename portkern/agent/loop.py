"""The loop of a generation run.

Slots are expanded at the same time and committed in the order in which they were asked for. What
a strategy asks next, and what a prompt shows, depend on commits alone, so neither a slow model nor
a fast device changes the course of a run; and one that was interrupted is resumed by going through
it again, with the attempts, replies and records that it left.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from threading import Thread

from portkern.agent import attempt as scoring
from portkern.agent import rank
from portkern.agent.attempt import Attempt, Diagnosis, PromptBlock, Status
from portkern.agent.axes import (
    AgentContext,
    AgentMemory,
    Critic,
    EvaluatedDraft,
    FeedbackSource,
    KernelDraft,
    Proposer,
    Strategy,
    Word,
)
from portkern.agent.bench import Bench
from portkern.agent.budget import Meter
from portkern.agent.llm.models import Models
from portkern.agent.log import Log
from portkern.agent.slot import Slot
from portkern.agent.task import Task
from portkern.errors import BudgetSpent, ModelDown, ModelError, PortkernError
from portkern.spec.candidate import Candidate

#: A draft that was not made, or not evaluated, because the budget was spent: it is not an attempt.
UNPAID = "unpaid"
#: What the kernel that a run starts from came of.
GIVEN = "given"
#: Asks people about the ideas of a slot.
Approve = Callable[[Slot, Sequence[str]], Sequence[Word]]


def approve_all(_: Slot, ideas: Sequence[str]) -> Sequence[Word]:
    """Asks nobody."""
    return [Word(idea) for idea in ideas]


@dataclass(frozen=True)
class Axes:
    """``of_critics``: kinds of sources that authors are not told of."""

    strategy: Strategy
    proposer: Proposer
    memory: AgentMemory
    sources: Sequence[FeedbackSource]
    critic: Critic
    of_critics: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Turns:
    """Builds go side by side, kernels run one after the other. Runs that share an event loop may
    share these too."""

    building: asyncio.Semaphore
    device: asyncio.Lock

    @classmethod
    def of(cls, builders: int) -> Turns:
        return cls(asyncio.Semaphore(builders), asyncio.Lock())


@dataclass
class Loop:
    """``inflight`` slots are expanded at the same time, ``builders`` kernels built. ``baseline`` is
    what scores are speedups over, on the workloads of the task's last set."""

    task: Task
    axes: Axes
    models: Models
    bench: Bench
    log: Log
    meter: Meter
    seed: int = 0
    inflight: int = 4
    builders: int = 2
    baseline: str = "eager"
    approve: Approve = approve_all
    report: Callable[[Sequence[Attempt]], None] = lambda _: None
    watch: Callable[[str], None] = lambda _: None
    turns: Turns | None = None
    stopped: str = ""
    down: bool = False
    _looks: dict[str, asyncio.Task[EvaluatedDraft]] = field(default_factory=dict)
    _taken: set[str] = field(default_factory=set)
    _asked: int = 0  # slots
    _attempts: int = 0  # that were made or may still come of slots, without those in vain
    _in_vain: int = 0  # kernels that nothing here can judge

    async def run(self) -> None:
        """Runs until the strategy or a budget ends it, or a model that is ``down``; ``stopped``
        says which, and is empty when it was the strategy."""
        turns = self.turns or Turns.of(self.builders)
        self._building, self._device = turns.building, turns.device
        window: deque[tuple[Slot, asyncio.Task[list[Attempt]]]] = deque()
        try:
            while True:
                if not self.stopped:
                    window.extend(self._launch(self.inflight - len(window)))
                if not window:
                    return
                slot, expansion = window[0]
                attempts = await expansion
                window.popleft()
                self._commit(slot, attempts)
        except (BudgetSpent, ModelDown) as error:  # of what comes after nothing can be committed
            self.stopped, self.down = str(error), isinstance(error, ModelDown)
            await self.models.close(self.stopped)
        finally:
            left = [expansion for _, expansion in window]
            for pending in [*left, *self._looks.values()]:
                pending.cancel()
            await asyncio.gather(*left, *self._looks.values(), return_exceptions=True)

    def _stop(self, why: str) -> None:
        """The first reason counts; an empty one is none."""
        self.stopped = self.stopped or why

    def _launch(self, room: int) -> list[tuple[Slot, asyncio.Task[list[Attempt]]]]:
        launched = []
        if self.task.start is not None and not len(self.log):
            room = 0 if self._asked else 1  # all others build on it
        for asked in self.axes.strategy.ask(self.log, room) if room else ():
            slot = self._fit(replace(asked, number=self._asked))
            if slot is None:
                break
            self._asked += 1
            expanded = self._after_start(slot)
            expansion = self._expand(expanded, self._context(expanded))
            launched.append((slot, asyncio.create_task(expansion)))
        return launched

    def _after_start(self, slot: Slot) -> Slot:
        """The slot, which begins from the kernel to start from where there is one, unless a
        strategy for which that kernel is right means to begin anew (EvoEngineer, whose prompts show
        the best kernel beside)."""
        if self.task.start is None or slot.parents or not len(self.log):
            return slot
        start = next(iter(self.log))
        if slot.operator == "init" and start.correct:
            return slot
        operator = "mutate" if slot.operator == "init" else slot.operator
        return replace(slot, parents=(start.id,), operator=operator)

    def _fit(self, slot: Slot) -> Slot | None:
        """The slot, or as much of it as the budget has attempts for."""
        self._stop(self.meter.exhausted)
        if self.stopped:
            return None
        most = self.meter.budget.attempts
        if most is not None and self._attempts + slot.size > most:
            left = most - self._attempts
            if left < 1:
                self.stopped = f"{most} attempts were made, as many as budget.attempts allows"
                return None
            ideas = min(slot.ideas, left)
            slot = replace(slot, ideas=ideas, n=min(slot.n, left // max(ideas, 1)))
        self._attempts += slot.size
        return slot

    def _context(self, slot: Slot) -> AgentContext:
        async def approve(ideas: Sequence[str]) -> Sequence[Word]:
            return await _waited_for(self.approve, slot, ideas)

        return AgentContext(
            self.task,
            self.log.snapshot(),
            self.axes.memory,
            self.models.caller(str(slot.number)),
            Random(f"{self.seed}:{slot.number}"),
            self._look,
            approve,
            self._fits,
            self._taken,
            slot.final,
        )

    async def _expand(self, slot: Slot, context: AgentContext) -> list[Attempt]:
        """The slot's attempts; those that it left before, if it was committed before. Raises
        BudgetSpent and ModelDown where the run has to stop before it has them."""
        old = self.log.left(slot.number)
        if old:
            self._taken |= {attempt.digest for attempt in old}
            return old
        try:
            return await self._made(slot, context)
        except (BudgetSpent, ModelDown) as error:
            self._stop(str(error))
            raise

    async def _made(self, slot: Slot, context: AgentContext) -> list[Attempt]:
        if self.task.start is not None and not len(self.log):
            drafts = [KernelDraft(self.task.start, idea=GIVEN, operator=GIVEN)]
            self._taken.add(self.task.start.digest)
        else:
            if self.axes.proposer.roles:
                self.watch("models write")
            drafts = await self.axes.proposer.propose(slot, context)
            self._taken |= {draft.candidate.digest for draft in drafts if draft.candidate}
            drafts = await self.axes.critic.screen(drafts, context)
        self._stop(self.models.dead)
        evaluated = await asyncio.gather(*(self._paid(draft) for draft in drafts))
        seen = [draft for draft in evaluated if draft.status != UNPAID]
        if not seen:
            raise BudgetSpent(self.stopped)
        several = [
            self._finish(self._attempt(slot, k, draft, len(seen)), context)
            for k, draft in enumerate(seen)
        ]
        return list(await asyncio.gather(*several))

    async def _paid(self, draft: KernelDraft) -> EvaluatedDraft:
        try:
            return await self._look(draft)
        except BudgetSpent as spent:
            self._stop(str(spent))
            return EvaluatedDraft(draft, UNPAID)

    async def _look(self, draft: KernelDraft) -> EvaluatedDraft:
        """Each candidate is evaluated once, whoever asks."""
        if draft.candidate is None or draft.status:
            return EvaluatedDraft(draft, draft.status or Status.NO_CODE, draft.detail)
        digest = draft.candidate.digest
        if digest not in self._looks:
            self._looks[digest] = asyncio.create_task(self._evaluate(draft))
        return replace(await asyncio.shield(self._looks[digest]), draft=draft)

    async def _evaluate(self, draft: KernelDraft) -> EvaluatedDraft:
        candidate = draft.candidate
        assert candidate is not None
        broken = self.task.constraints.broken_by(candidate.source, candidate.language)
        if broken:
            return _rejected(draft, broken)
        async with self._building:
            await asyncio.to_thread(self.bench.build, candidate)
        async with self._device:
            if self.meter.exhausted:
                raise BudgetSpent(self.meter.exhausted)
            before = self.bench.device_s
            records = await asyncio.to_thread(self.bench.evaluate, candidate)
            self.meter.spend_device(self.bench.device_s - before)
            feedback, metrics = await asyncio.to_thread(self._sense, draft, records)
        over = self.task.constraints.exceeded_by(records)
        if over:
            return replace(_rejected(draft, over), records=records, metrics=metrics)
        status = Status.of(records)
        detail = next((r.detail for r in records if str(r.verdict) == status), "")
        return EvaluatedDraft(draft, status, detail, records, feedback, metrics)

    async def _fits(self, candidate: Candidate) -> str:
        if self.meter.exhausted:
            raise BudgetSpent(self.meter.exhausted)
        async with self._building:
            return await asyncio.to_thread(self.bench.no_place, candidate)

    def _sense(
        self, draft: KernelDraft, records: Sequence[object]
    ) -> tuple[list[PromptBlock], dict[str, float]]:
        """Sources of later stages have nothing to measure once one said so."""
        feedback: list[PromptBlock] = []
        metrics: dict[str, float] = {}
        stopped_at: int | None = None
        for source in self.axes.sources:
            if stopped_at is not None and source.stage > stopped_at:
                break
            measured = source.measure(self.task, draft.candidate, records)  # type: ignore[arg-type]
            metrics |= measured.metrics
            if measured.text:
                feedback.append(
                    PromptBlock(
                        kind=source.kind,
                        title=measured.title,
                        text=measured.text,
                        of_critics=source.kind in self.axes.of_critics,
                    )
                )
            if measured.stop:
                stopped_at = source.stage
        return feedback, metrics

    def _attempt(self, slot: Slot, number: int, seen: EvaluatedDraft, siblings: int) -> Attempt:
        draft, task = seen.draft, self.task
        candidate = draft.candidate
        status = Status(seen.status)
        scored = [r for r in seen.records if r.workload.set == task.scored]
        by_workload = scoring.speedups(scored, self.baseline)
        unscored = scoring.why_unscored(scored, by_workload)
        parents = draft.parents or slot.parents
        if unscored:
            by_workload = {}
        score, ranked = scoring.score(status, by_workload), ""
        if status is Status.PASSED and not by_workload and task.ends != "hardware":
            known = rank.of(scored)
            score = rank.score(known, executed=task.ends == "object")
            ranked = str(known)
        return Attempt(
            id=f"{slot.number}.{number}",
            slot=slot.number,
            number=number,
            siblings=siblings,
            turn=scoring.depth(self.log.some(parents)),
            parents=parents,
            arm=draft.arm or slot.arm,
            operator=draft.operator or slot.operator,
            phase=slot.phase,
            island=slot.island,
            op=task.op.name,
            target=task.target.name,
            backend=task.backend.name,
            language=task.language,
            dtype=task.dtype,
            author=candidate.author if candidate else "",
            idea=draft.idea,
            rationale=draft.rationale,
            source=candidate.source if candidate else "",
            digest=candidate.digest if candidate else "",
            donor=draft.donor,
            status=status,
            detail=seen.detail or draft.detail,
            score=score,
            speedups=by_workload if status is Status.PASSED else {},
            ranked=ranked,
            records=tuple(r.id for r in seen.records),
            metrics=dict(seen.metrics),
            feedback=tuple(seen.feedback),
            notes=(*draft.notes, *([unscored] if unscored else [])),
            calls=draft.calls,
        )

    async def _finish(self, attempt: Attempt, context: AgentContext) -> Attempt:
        """The attempt with its diagnosis and its cost."""
        llm = context.llm.within(f"{attempt.number}.critic")
        diagnosis, note = await self._diagnose(attempt, replace(context, llm=llm))
        calls = (*attempt.calls, *llm.calls)
        return attempt.model_copy(
            update={
                "diagnosis": diagnosis,
                "notes": (*attempt.notes, *([note] if note else [])),
                "calls": calls,
                "cost": self.models.store.cost(calls),
            }
        )

    async def _diagnose(
        self, attempt: Attempt, context: AgentContext
    ) -> tuple[Diagnosis | None, str]:
        try:
            return await self.axes.critic.diagnose(attempt, context), ""
        except (ModelError, BudgetSpent) as error:
            return None, f"not diagnosed: {error}"

    def _commit(self, slot: Slot, attempts: Sequence[Attempt]) -> None:
        self._attempts -= slot.size - len(attempts) + self._uncharged(attempts)
        attempts = [self._first(attempt) for attempt in attempts]
        self.log.add(attempts)
        for attempt in attempts:
            self.axes.memory.learn(attempt)
        self.axes.strategy.tell(slot, attempts)
        self.report(attempts)

    def _uncharged(self, attempts: Sequence[Attempt]) -> int:
        """How many the budget does not count, since nothing here can judge them: at most as many as
        it has, so that an author who knows nothing else comes to an end."""
        vain = sum(attempt.status is Status.UNAVAILABLE for attempt in attempts)
        free = max((self.meter.budget.attempts or 0) - self._in_vain, 0)
        self._in_vain += vain
        return min(vain, free)

    def _first(self, attempt: Attempt) -> Attempt:
        """The attempt; marked as a duplicate, without a score, where the run has its kernel
        already."""
        same = self.log.by_digest(attempt.digest) if attempt.digest else None
        if same is None or attempt.status is Status.DUPLICATE or same.id == attempt.id:
            return attempt
        return attempt.model_copy(
            update={
                "status": Status.DUPLICATE,
                "detail": f"the same kernel as attempt {same.id}",
                "score": 0.0,
            }
        )


async def _waited_for(approve: Approve, slot: Slot, ideas: Sequence[str]) -> Sequence[Word]:
    """Asks people in a thread that nobody joins: a run that is interrupted does not wait for
    their answer."""
    loop, answer = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()

    def tell(result: Sequence[Word] | None, error: Exception | None) -> None:
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(result)

    def ask() -> None:
        result, failed = None, None
        try:
            result = approve(slot, ideas)
        except (OSError, PortkernError) as error:
            failed = error
        if not loop.is_closed():
            loop.call_soon_threadsafe(tell, result, failed)

    Thread(target=ask, daemon=True).start()
    approved: Sequence[Word] = await answer
    return approved


def _rejected(draft: KernelDraft, reasons: Sequence[str]) -> EvaluatedDraft:
    text = "\n".join(reasons)
    block = PromptBlock(kind="constraints", title="Constraints that were not kept", text=text)
    return EvaluatedDraft(draft, Status.REJECTED, text, feedback=[block])
