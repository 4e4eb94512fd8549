"""The evaluator's own arithmetic on whole tensors, one piece at a time for each job."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from portkern.sandbox import threads

T = TypeVar("T")

#: More than a machine has jobs at once. A thread that is idle is taken before one is started.
_POOL = ThreadPoolExecutor(1 << 10, "portkern-check")
_changed = threading.Condition()
_busy = 0


def alone(work: Callable[[], T]) -> T:
    """The result of work that uses all processors of a job: for a second piece beside it another
    thread would bring a team of its own that waits for the first, and memory of its own to be asked
    of the system."""
    with _turn():
        return _POOL.submit(_limited, work).result()


def _limited(work: Callable[[], T]) -> T:
    threads.limit_here()
    return work()


@contextmanager
def _turn() -> Iterator[None]:
    global _busy
    with _changed:
        _changed.wait_for(lambda: _busy < threads.jobs())
        _busy += 1
    try:
        yield
    finally:
        with _changed:
            _busy -= 1
            _changed.notify_all()
