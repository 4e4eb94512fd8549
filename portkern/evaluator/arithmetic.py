"""The evaluator's own arithmetic on whole tensors, one piece at a time for each job."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from portkern.sandbox import threads

T = TypeVar("T")

_changed = threading.Condition()
_busy = 0
#: One thread for each job, and anew when there are more or fewer of these: each keeps a team of the
#: size that it had when it was first used.
_pool: tuple[int, ThreadPoolExecutor] = (0, ThreadPoolExecutor(1))
#: How often it is asked whether there are more jobs by now.
ASKED_S = 0.5


def alone(work: Callable[[], T]) -> T:
    """The result of work that uses all processors of a job: for a second piece beside it another
    thread would bring a team of its own that waits for the first, and memory of its own to be asked
    of the system."""
    with _turn():
        return _submitted(work).result()


def _submitted(work: Callable[[], T]) -> Future[T]:
    global _pool
    with _changed:
        jobs = threads.jobs()
        if _pool[0] != jobs:
            _pool[1].shutdown(wait=False)
            _pool = jobs, ThreadPoolExecutor(jobs, "portkern-check")
        return _pool[1].submit(_limited, work)


def _limited(work: Callable[[], T]) -> T:
    threads.limit_here()
    return work()


@contextmanager
def _turn() -> Iterator[None]:
    global _busy
    with _changed:
        while not _changed.wait_for(lambda: _busy < threads.jobs(), ASKED_S):
            pass
        _busy += 1
    try:
        yield
    finally:
        with _changed:
            _busy -= 1
            _changed.notify_all()
