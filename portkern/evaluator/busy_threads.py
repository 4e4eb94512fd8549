"""Whether processes rest while nothing is asked of them.

A thread that spins shows by the processor time it gets. On a busy machine it may get none for as
long as one looks; it then shows by standing ready to run.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager

from portkern.evaluator import processor_time

#: The share of a processor that a process at rest stays under, and the share of looks in which its
#: threads are ready to run.
BUSY, READY = 0.2, 0.5
#: The looks of one watch.
LOOKS = 10
#: Seconds before a watch, in which pools of threads fall asleep, and those of the watch itself. The
#: later ones are for those that seemed busy at first.
WATCHES = ((0.02, 0.03), (0.1, 0.1), (0.5, 0.5))
#: The share of the baseline's rounds; a pool that falls asleep late, on a busy machine, does so in
#: few.
MOSTLY = 0.75


class AtRest:
    """Whether processes rest while somebody else is timed: threads that spin for a while after a
    call, and are asleep once one looks for them, slow down whoever comes next. ``pids``: by whom
    they belong to."""

    def __init__(self, pids: Mapping[int, int]) -> None:
        self._pids = pids
        self._watches = 0
        self._busy: Counter[int] = Counter()

    @contextmanager
    def watched(self, begun: bool) -> Iterator[None]:
        """Watches the processes while the body runs, in which only somebody else has work to do;
        does nothing unless ``begun``."""
        if not begun:
            yield
            return
        before, start = self._ran_s(), time.perf_counter()
        yield
        watched_s = time.perf_counter() - start
        self._watches += 1
        for key, ran_s in self._ran_s().items():
            self._busy[key] += ran_s - before[key] >= BUSY * watched_s

    def disturbing(self) -> list[int]:
        """The owners of the processes that were at work in most watches."""
        return [key for key, busy in self._busy.items() if busy > MOSTLY * self._watches]

    def _ran_s(self) -> Mapping[int, float]:
        return {key: processor_time.ran_s(pid) for key, pid in self._pids.items()}


def processes_at_work(
    pids: Collection[int], meanwhile: Callable[[], None] = lambda: None
) -> set[int]:
    """The processes that work in every watch, by themselves or by their children; ``meanwhile``
    is done in the first."""
    left = set(pids)
    for number, (settle_s, watch_s) in enumerate(WATCHES):
        time.sleep(settle_s if left else 0.0)
        families = {pid: list(processor_time.family(pid)) for pid in left}
        before, start = {pid: processor_time.ran_s(pid) for pid in left}, time.perf_counter()
        if not number:
            meanwhile()
        ready: Counter[int] = Counter()
        for _ in range(LOOKS if left else 0):
            time.sleep(watch_s / LOOKS)
            ready.update(pid for pid in left if any(map(_is_ready, families[pid])))
        watched_s = time.perf_counter() - start
        left = {
            pid
            for pid in left
            if ready[pid] >= READY * LOOKS
            or processor_time.ran_s(pid) - before[pid] >= BUSY * watched_s
        }
    return left


def _is_ready(pid: int) -> bool:
    """Whether one of its threads runs, or would if it had a processor."""
    return "R" in processor_time.thread_states(pid)
