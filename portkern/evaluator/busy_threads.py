"""Whether processes rest while nothing is asked of them.

A thread that spins shows by the processor time it gets. On a busy machine it may get none for as
long as one looks; it then shows by standing ready to run.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import psutil

#: At rest a process takes less than this share of a processor, and its threads are ready to run in
#: less than that share of looks.
BUSY, READY = 0.2, 0.5
#: In one watch.
LOOKS = 10
#: Seconds before a watch, in which pools of threads fall asleep, and those of the watch itself. The
#: later ones are for those that seemed busy at first.
WATCHES = ((0.02, 0.03), (0.1, 0.1), (0.5, 0.5))


def processes_at_work(
    pids: Collection[int], meanwhile: Callable[[], None] = lambda: None
) -> set[int]:
    """Those that work, or their children do, in every watch; ``meanwhile`` is done in the first."""
    left = set(pids)
    for number, (settle_s, watch_s) in enumerate(WATCHES):
        time.sleep(settle_s if left else 0.0)
        families = {pid: _family(pid) for pid in left}
        before, start = {pid: _ran_s(families[pid]) for pid in left}, time.perf_counter()
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
            if ready[pid] >= READY * LOOKS or _ran_s(_family(pid)) - before[pid] >= BUSY * watched_s
        }
    return left


def _family(pid: int) -> Sequence[psutil.Process]:
    """A process and all that it started; none where it has ended."""
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.Error:
        return []


def _ran_s(family: Sequence[psutil.Process]) -> float:
    """In hundredths, with threads that have ended."""
    total = 0.0
    for process in family:
        try:
            times = process.cpu_times()
            total += times.user + times.system
        except psutil.Error:
            continue
    return total


def _is_ready(process: psutil.Process) -> bool:
    """Whether one of its threads runs, or would if it had a processor."""
    for stat in Path(f"/proc/{process.pid}/task").glob("*/stat"):
        try:  # "12 (a name) R 1 …"
            if stat.read_text().rpartition(")")[2].split()[0] == "R":
                return True
        except (OSError, IndexError):  # it has ended
            continue
    return False
