"""How many threads the libraries of a new worker have: one for each processor, or for their part of
these where several jobs share the machine.

With a team for all processors in each of dozens of workers, teams wait for each other's threads
longer than they work, and whoever looks at a worker has all of its threads to look at.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

#: Fewer would hide what a kernel's threads do to each other.
LEAST = 2
_jobs = 1
_usual: int | None = None  # of this process's own libraries; None where they are not ours


def share(jobs: int) -> None:
    """Says of how many jobs a worker that is started from now on is one."""
    global _jobs
    _jobs = jobs


def jobs() -> int:
    return _jobs


def number() -> int | None:
    """The threads of a job's worker; None where they need no limit."""
    processors = len(os.sched_getaffinity(0))
    part = max(LEAST, processors // _jobs)
    return part if part < processors else None


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """The variables by which a new worker's libraries know; ``given`` is what its user set."""
    limit, set_ = number(), given.get("OMP_NUM_THREADS", "")
    if limit is None or (set_.isdecimal() and int(set_) <= limit):
        return {}
    return {"OMP_NUM_THREADS": str(limit), "NUMBA_NUM_THREADS": str(limit)}


def own_process() -> None:
    """Says that nothing but evaluations is done in this process."""
    global _usual
    import torch

    _usual = torch.get_num_threads()


def limit_here() -> None:
    """As many for this process's own libraries, in this thread and in those that begin later; where
    it is somebody's whose threads are not ours to say, nothing."""
    if _usual is None:
        return
    torch, wanted = sys.modules["torch"], min(_usual, number() or _usual)
    if torch.get_num_threads() != wanted:  # it starts a pool anew each time that it is told
        torch.set_num_threads(wanted)


def limit_loaded(environment: Mapping[str, str]) -> None:
    """The same for what was loaded before this process was told, and would not look again."""
    limit, torch = environment.get("OMP_NUM_THREADS", ""), sys.modules.get("torch")
    if torch is not None and limit.isdecimal():
        torch.set_num_threads(int(limit))
