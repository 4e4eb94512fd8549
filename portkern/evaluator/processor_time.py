"""How long the threads of a process ran and waited for a processor, as the system's scheduler
counts it: seen from outside, whatever the process does to its own clock."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

_CPUCLOCK_SCHED = 2  # of a whole process, with threads that have ended: clock_getcpuclockid(3)


@dataclass(frozen=True)
class ProcessorTime:
    """Seconds since they began, of a process and all that it started. ``threads``: of each that
    lives, by its number, how long it ran and how long it stood ready without a processor."""

    ran_s: float
    threads: Mapping[int, tuple[float, float]]

    def since(self, before: ProcessorTime) -> ProcessorTime:
        threads = {
            number: (ran - was[0], waited - was[1])
            for number, (ran, waited) in self.threads.items()
            for was in [before.threads.get(number, (0.0, 0.0))]
        }
        return ProcessorTime(self.ran_s - before.ran_s, threads)

    @property
    def waited_s(self) -> float:
        return sum(waited for _, waited in self.threads.values())

    @property
    def busiest_s(self) -> float:
        """The seconds of the thread that ran longest: what all of them did took no less."""
        return max((ran for ran, _ in self.threads.values()), default=0.0)

    @property
    def beside_s(self) -> float:
        """How long all other threads ran, those that have ended too, or stood ready."""
        ran_s = max(self.ran_s, sum(ran for ran, _ in self.threads.values())) - self.busiest_s
        busiest = max(self.threads.values(), default=(0.0, 0.0))
        return ran_s + self.waited_s - busiest[1]


def of_family(pid: int, known: Collection[int] = ()) -> ProcessorTime:
    """The processor time of a process and its descendants, which are not looked for where they are
    ``known``; those that have ended count nothing."""
    ran_s = 0.0
    threads: dict[int, tuple[float, float]] = {}
    for member in known or family(pid):
        try:
            ran_s += _of_process_s(member)
        except OSError:  # it has ended
            continue
        for number in _threads(member):
            counted = _ran_and_waited_s(f"/proc/{member}/task/{number}/schedstat")
            if counted is not None:
                threads[int(number)] = counted
    return ProcessorTime(ran_s, threads)


def ran_s(pid: int, known: Collection[int] = ()) -> float:
    """The seconds that a process and its descendants, as of :func:`of_family`, ran, without a look
    at their threads."""
    total = 0.0
    for member in known or family(pid):
        with suppress(OSError):  # it has ended
            total += _of_process_s(member)
    return total


def _of_process_s(pid: int) -> float:
    """Raises OSError once it has ended."""
    return time.clock_gettime((~pid << 3) | _CPUCLOCK_SCHED)


def own_wait_s() -> float:
    """The seconds that the calling thread has waited for a processor."""
    return (_ran_and_waited_s("/proc/thread-self/schedstat") or (0.0, 0.0))[1]


def family(pid: int) -> Iterator[int]:
    yield pid
    for number in _threads(pid):
        try:
            children = _read(f"/proc/{pid}/task/{number}/children")
        except OSError:
            continue
        for child in children.split():
            yield from family(int(child))


def thread_states(pid: int) -> Iterator[str]:
    """The state of each thread as a letter: R for one that runs, or would if it had a processor."""
    for number in _threads(pid):
        with suppress(OSError, IndexError):  # it has ended
            # "12 (a name) R 1 …"
            yield _read(f"/proc/{pid}/task/{number}/stat").rpartition(b")")[2].split()[0].decode()


# Without pathlib, whose share of a round was larger than the system's: a round is looked at some
# hundred times.


def _threads(pid: int) -> list[str]:
    """Their numbers; none once the process has ended."""
    try:
        with os.scandir(f"/proc/{pid}/task") as folders:
            return [folder.name for folder in folders]
    except OSError:
        return []


def _ran_and_waited_s(schedstat: str) -> tuple[float, float] | None:
    """ "nanoseconds run, nanoseconds waited, time slices" (Documentation/scheduler/sched-stats);
    0 of a kernel that does not count or a thread that has just ended, None where there is no such
    file."""
    try:
        ran, waited, _ = _read(schedstat).split()
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return 0.0, 0.0
    return int(ran) / 1e9, int(waited) / 1e9


def _read(path: str) -> bytes:
    """Raises OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        text = b""
        while piece := os.read(handle, 1 << 16):
            text += piece
        return text
    finally:
        os.close(handle)
