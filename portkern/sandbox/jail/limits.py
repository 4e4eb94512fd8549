"""Limits on what a worker may use: memory, processes, files. They are set by rlimits; where we may,
a control group has them too (``control_groups.py``)."""

from __future__ import annotations

import os
import re
import resource
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_OOM_FIRST = "1000"  # the kernel's killer takes the worker before it takes the evaluator


@dataclass(frozen=True)
class ProcessLimits:
    """``memory_bytes`` counts private writable memory; ``file_bytes`` is the largest file;
    ``tasks`` are processes and threads; ``cpu_s`` is of one process."""

    memory_bytes: int
    file_bytes: int
    tasks: int
    open_files: int = 4096
    cpu_s: int = 3600

    @classmethod
    def of_this_machine(cls) -> ProcessLimits:
        """Three quarters of the memory, and tasks enough for thread pools on every core."""
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return cls(memory // 4 * 3, memory // 4, 1024 + 64 * (os.cpu_count() or 1))


def apply(limits: ProcessLimits, *, device: bool, others: int | None) -> None:
    """Applies the limits to this process and what comes from it. A GPU's driver maps far more
    memory than there is: with a ``device`` only a cgroup can count. ``others``: tasks that the
    worker's user has beside, as the system counts them together; None where only a cgroup counts
    the worker's."""
    wanted = {
        resource.RLIMIT_CORE: 1,  # bytes: with 0 a program that takes cores on a pipe gets them
        resource.RLIMIT_FSIZE: limits.file_bytes,
        resource.RLIMIT_NOFILE: limits.open_files,
        resource.RLIMIT_CPU: limits.cpu_s,
    }
    if others is not None:
        wanted[resource.RLIMIT_NPROC] = limits.tasks + others
    if not device:
        wanted[resource.RLIMIT_DATA] = limits.memory_bytes
    for name, value in wanted.items():
        _, hard = resource.getrlimit(name)
        most = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(name, (most, most))
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_OOM_FIRST)


def counts_by_namespace() -> bool:
    """Whether the kernel counts the tasks of a user namespace apart from others of its user."""
    match = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return match is not None and (int(match[1]), int(match[2])) >= (5, 14)


def tasks_of(user: int) -> int:
    """Processes and threads of this user."""
    count = 0
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if process.stat().st_uid == user:
                count += process.joinpath("task").stat().st_nlink - 2
    return count
