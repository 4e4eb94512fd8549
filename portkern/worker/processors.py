"""The processors on which a worker's threads run while calls are staged and timed."""

from __future__ import annotations

import ctypes
import itertools
import os
from contextlib import suppress
from pathlib import Path

_libc = ctypes.CDLL(None)


class Processors:
    """The processors that this process may use."""

    def __init__(self) -> None:
        self._all = sorted(os.sched_getaffinity(0))
        self._main = self._all[0]

    def hold(self) -> None:
        """The main thread stays where it is, beside the caches that hold what it has read: with
        those of another processor a short call takes half as long again."""
        here = _libc.sched_getcpu()
        self._main = here if here in self._all else self._all[0]
        os.sched_setaffinity(0, {self._main})

    def spread(self) -> None:
        """The other threads in turn on the others: OpenMP's teams, which are made one after the
        other, then have a processor for each of their threads. A scheduler that puts two of a team
        on one makes a region take a time slice, a hundred times what it should. In a jail without
        namespaces and without a user of its own this has no effect."""
        rest = [processor for processor in self._all if processor != self._main]
        threads = {int(task.name) for task in Path("/proc/self/task").iterdir()} - {os.getpid()}
        for thread, processor in zip(sorted(threads), itertools.cycle(rest), strict=False):
            with suppress(ProcessLookupError):  # it has ended
                os.sched_setaffinity(thread, {processor})

    def free(self) -> None:
        """The main thread may be woken where there is room."""
        os.sched_setaffinity(0, self._all)
