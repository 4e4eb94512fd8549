"""Shows what is nearest to the task among documents, or to the kernel at hand."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from portkern.agent.attempt import Attempt, PromptBlock
from portkern.agent.log import Log
from portkern.agent.memory import documents
from portkern.agent.memory.documents import MemoryDocument
from portkern.agent.memory.history import VisibleLog
from portkern.agent.memory.options import MemoryOptions
from portkern.agent.memory.ranking import Bm25, Ranking
from portkern.agent.memory.text import Passage
from portkern.agent.slot import Slot
from portkern.agent.task import Task


class Retrieval:
    """The nearest documents, the nearest first."""

    def __init__(self, ranking: Ranking, options: MemoryOptions, task: Task) -> None:
        self.ranking, self.options, self.task = ranking, options, task

    @cached_property
    def _shelf(self) -> list[MemoryDocument]:
        known = [name for name in self.options.corpora if name in documents.CORPORA]
        return [
            document
            for name in known
            for document in documents.CORPORA[name](self.task, own=self.options.own)
        ]

    def passages(self, slot: Slot, role: str, log: Log, task: Task) -> list[Passage]:
        past = VisibleLog(slot, role, log, self.options)
        if self.options.mending and any(parent.correct for parent in past.parents):
            return []
        nearest = self.nearest(self._question(past), [*self._shelf, *self._of_run(past)])
        return [
            Passage(PromptBlock(kind=self.ranking.kind, title=document.title, text=document.text))
            for document in nearest
        ]

    def nearest(self, question: str, among: Sequence[MemoryDocument]) -> list[MemoryDocument]:
        """The documents nearest to the question, at most ``k``; equally near ones keep their
        order."""
        scores = self.ranking.scores(question, [document.key for document in among])
        order = sorted(range(len(among)), key=lambda at: -scores[at])
        near = [among[at] for at in order if scores[at] > self.options.min_score]
        return near[: self.options.k]

    def _question(self, past: VisibleLog) -> str:
        """The first parent's code, or what is to be done with it, if that is asked for and there
        is any."""
        if self.options.query == "action":
            return past.action or documents.question(self.task.op)
        if self.options.query == "code":
            for parent in past.parents[:1]:
                return parent.source or documents.question(self.task.op)
        return documents.question(self.task.op)

    def _of_run(self, past: VisibleLog) -> list[MemoryDocument]:
        """Correct attempts; those that the slot names are for histories to tell."""
        if documents.LOG not in self.options.corpora:
            return []
        named = {*past.slot.parents, *past.slot.shown}
        return [
            documents.of_attempt(attempt, self.task)
            for attempt in past.visible
            if attempt.correct and attempt.source and attempt.id not in named
        ]

    def learn(self, attempt: Attempt) -> None:
        """The log has it."""


def bm25(options: MemoryOptions, task: Task) -> Retrieval:
    return Retrieval(Bm25(), options, task)


def embed(options: MemoryOptions, task: Task) -> Retrieval:
    from portkern.agent.memory.embedding import Nearness, of_catalogue

    if not options.model:
        return Retrieval(Nearness(of_catalogue()), options, task)
    from portkern.agent.memory import encoder

    return Retrieval(Nearness(encoder.named(options.model)), options, task)
