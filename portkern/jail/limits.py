"""What a worker may use: memory, processes, files. By rlimits, and by cgroups where we may."""

from __future__ import annotations

import os
import resource
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")
_OOM_FIRST = "1000"  # the kernel's killer takes the worker before it takes the judge


@dataclass(frozen=True)
class Limits:
    """``memory_bytes`` counts private writable memory; ``file_bytes`` is the largest file;
    ``tasks`` are processes and threads; ``cpu_s`` is of one process."""

    memory_bytes: int
    file_bytes: int
    tasks: int
    open_files: int = 4096
    cpu_s: int = 3600

    @classmethod
    def of_this_machine(cls) -> Limits:
        """Three quarters of the memory, and tasks enough for thread pools on every core."""
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return cls(memory // 4 * 3, memory // 4, 1024 + 64 * (os.cpu_count() or 1))


def apply(limits: Limits, *, device: bool) -> None:
    """To this process and what comes from it. A GPU's driver maps far more memory than there is:
    with a ``device`` only a cgroup can count."""
    wanted = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: limits.file_bytes,
        resource.RLIMIT_NOFILE: limits.open_files,
        resource.RLIMIT_CPU: limits.cpu_s,
        resource.RLIMIT_NPROC: limits.tasks,
    }
    if not device:
        wanted[resource.RLIMIT_DATA] = limits.memory_bytes
    for name, value in wanted.items():
        _, hard = resource.getrlimit(name)
        most = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(name, (most, most))
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_OOM_FIRST)


class Group:
    """A cgroup of one worker: version 2, or version 1's two hierarchies."""

    def __init__(self, folders: list[Path]) -> None:
        self.folders = folders

    @classmethod
    def create(cls, name: str, limits: Limits) -> Group | None:
        """None where this user may not, or the kernel has no such controllers."""
        memory, tasks = str(limits.memory_bytes), str(limits.tasks)
        if (_CGROUPS / "cgroup.controllers").exists():
            wanted = [(_CGROUPS / name, {"memory.max": memory, "pids.max": tasks})]
        else:
            wanted = [
                (_CGROUPS / "memory" / name, {"memory.limit_in_bytes": memory}),
                (_CGROUPS / "pids" / name, {"pids.max": tasks}),
            ]
        made = cls([])
        try:
            for folder, values in wanted:
                folder.mkdir()
                made.folders.append(folder)
                for file, value in values.items():
                    (folder / file).write_text(value)
        except OSError:
            made.remove()
            return None
        return made

    def add(self, pid: int) -> None:
        for folder in self.folders:
            (folder / "cgroup.procs").write_text(str(pid))

    def remove(self) -> None:
        """Once all in it have ended; what is still there stays for the kernel to count."""
        for folder in self.folders:
            with suppress(OSError):
                folder.rmdir()
