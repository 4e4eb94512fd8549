"""Jobs that wait: the more urgent first, and of equals the client's who has had least."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from portkern.errors import PortkernError

T = TypeVar("T")
R = TypeVar("R")

#: The priorities of a job; the larger is taken first.
PRIORITIES = range(10)
USUAL_PRIORITY = 5


class QueueFull(PortkernError):
    """Too much waits already; the same may be asked again later."""

    exit_code = 3


@dataclass(frozen=True)
class Limits:
    """How many jobs may wait, of one client and of all."""

    per_client: int = 64
    total: int = 1_024


@dataclass(eq=False)
class Job(Generic[T, R]):
    """``answer`` is cancelled when its client has gone before it began."""

    client: str
    priority: int
    asked: T
    answer: Future[R] = field(default_factory=Future)


class JobQueue(Generic[T, R]):
    """Thread-safe. ``taken`` counts what each client was served, halved now and then, so that who
    comes late is neither last nor first for ever."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._waiting: dict[int, Job[T, R]] = {}
        self._taken: Counter[str] = Counter()
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._closed = False

    def __len__(self) -> int:
        with self._changed:
            return len(self._waiting)

    def put(self, job: Job[T, R]) -> None:
        """Raises QueueFull."""
        with self._changed:
            self._drop_cancelled()
            own = sum(one.client == job.client for one in self._waiting.values())
            if self._closed:
                raise QueueFull("The server is ending; start it again")
            if own >= self._limits.per_client:
                raise QueueFull(f"{own} jobs of this client wait already; wait for some of them")
            if len(self._waiting) >= self._limits.total:
                raise QueueFull(f"{len(self._waiting)} jobs wait already; try again later")
            self._waiting[next(self._numbers)] = job
            self._changed.notify()

    def take(self) -> Job[T, R] | None:
        """The next job, which has begun; None when the queue is closed."""
        with self._changed:
            while True:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if self._closed:
                    return None
                number = min(self._waiting, key=self._order)
                job = self._waiting.pop(number)
                if job.answer.set_running_or_notify_cancel():
                    self._served(job.client)
                    return job

    def close(self) -> None:
        """Ends the queue and cancels the jobs that wait."""
        with self._changed:
            self._closed = True
            for job in self._waiting.values():
                job.answer.cancel()
            self._waiting.clear()
            self._changed.notify_all()

    def _order(self, number: int) -> tuple[int, int, int]:
        job = self._waiting[number]
        return -job.priority, self._taken[job.client], number

    def _served(self, client: str) -> None:
        self._taken[client] += 1
        if self._taken[client] > 1_000:
            self._taken = Counter({who: n // 2 for who, n in self._taken.items() if n > 1})

    def _drop_cancelled(self) -> None:
        gone = [number for number, job in self._waiting.items() if job.answer.cancelled()]
        for number in gone:
            del self._waiting[number]
