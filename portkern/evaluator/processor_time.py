"""How long the threads of a process ran and waited for a processor, as the system's scheduler
counts it: seen from outside, whatever the process does to its own clock."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

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
        """Of the thread that ran longest: what all of them did took no less."""
        return max((ran for ran, _ in self.threads.values()), default=0.0)

    @property
    def beside_s(self) -> float:
        """How long all other threads ran, those that have ended too, or stood ready."""
        ran_s = max(self.ran_s, sum(ran for ran, _ in self.threads.values())) - self.busiest_s
        busiest = max(self.threads.values(), default=(0.0, 0.0))
        return ran_s + self.waited_s - busiest[1]


def of_family(pid: int) -> ProcessorTime:
    """Of a process and its descendants; what has ended counts nothing."""
    ran_s = 0.0
    threads: dict[int, tuple[float, float]] = {}
    for member in family(pid):
        try:
            ran_s += time.clock_gettime((~member << 3) | _CPUCLOCK_SCHED)
        except OSError:  # it has ended
            continue
        for counted in Path(f"/proc/{member}/task").glob("*/schedstat"):
            threads[int(counted.parent.name)] = _ran_and_waited_s(counted)
    return ProcessorTime(ran_s, threads)


def own_wait_s() -> float:
    """Of the thread that asks."""
    return _ran_and_waited_s(Path("/proc/thread-self/schedstat"))[1]


def family(pid: int) -> Iterator[int]:
    yield pid
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            for child in children.read_text().split():
                yield from family(int(child))
        except OSError:
            continue


def _ran_and_waited_s(schedstat: Path) -> tuple[float, float]:
    """ "nanoseconds run, nanoseconds waited, time slices" (Documentation/scheduler/sched-stats);
    0 of a kernel that does not count."""
    try:
        ran, waited, _ = schedstat.read_text().split()
    except (OSError, ValueError):
        return 0.0, 0.0
    return int(ran) / 1e9, int(waited) / 1e9
