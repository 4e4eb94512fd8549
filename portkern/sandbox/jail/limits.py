"""Limits on what a worker may use: memory, processes, files. They are set by rlimits, and by
cgroups where we may."""

from __future__ import annotations

import os
import re
import resource
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from portkern.sandbox.jail import owner

_CGROUPS = Path("/sys/fs/cgroup")
_OOM_FIRST = "1000"  # the kernel's killer takes the worker before it takes the evaluator
#: A killed process leaves its cgroup when the kernel has let go of its memory.
_LEAVING_S = 2.0


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


class ControlGroup:
    """A cgroup of one worker: version 2, or version 1's two hierarchies."""

    def __init__(self, folders: list[Path]) -> None:
        self.folders = folders

    @classmethod
    def create(cls, limits: ProcessLimits) -> ControlGroup | None:
        """A control group with these limits; None where this user may not make one, or the kernel
        has no such controllers."""
        name, memory, tasks = owner.name(), str(limits.memory_bytes), str(limits.tasks)
        if _unified():
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

    @property
    def out_of_memory(self) -> bool:
        """Whether the kernel has killed a process in it for using more than granted."""
        for folder in self.folders:
            for file in ("memory.events", "memory.oom_control"):
                with suppress(OSError):
                    if re.search(r"^oom_kill [1-9]", (folder / file).read_text(), re.MULTILINE):
                        return True
        return False

    def remove(self) -> None:
        """Once all in it have ended; what has not after a while stays for a later sweep."""
        deadline = time.monotonic() + _LEAVING_S
        while not self.removed() and time.monotonic() < deadline:
            time.sleep(0.005)

    def removed(self) -> bool:
        """Removes it if all in it have ended; whether it is gone."""
        return all(_removed(folder) for folder in self.folders)


def sweep() -> None:
    """End what is left in the cgroups of processes that have ended, and remove them."""
    for hierarchy in [_CGROUPS] if _unified() else [_CGROUPS / "memory", _CGROUPS / "pids"]:
        for folder in hierarchy.glob("portkern-*"):
            if owner.gone(folder.name):
                _kill_members(folder)
                ControlGroup([folder]).remove()


def _unified() -> bool:
    return (_CGROUPS / "cgroup.controllers").exists()


def _removed(folder: Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _kill_members(folder: Path) -> None:
    with suppress(OSError):
        for pid in map(int, (folder / "cgroup.procs").read_text().split()):
            if pid > 0:  # 0 stands for a process of another namespace
                os.kill(pid, signal.SIGKILL)
