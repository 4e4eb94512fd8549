"""Control groups: who is in which, what they withhold and count, and those that portkern makes."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath

from portkern.sandbox.jail import owner
from portkern.sandbox.jail.limits import ProcessLimits

#: Where the system's hierarchies are, each of version 1 in a folder of its own.
MOUNTED = Path("/sys/fs/cgroup")
#: Files of a group that say what its processes get, and what they say where nothing is withheld.
_USUAL = {
    "cpu.max": "max",
    "cpu.weight": "100",
    "cpu.idle": "0",
    "memory.max": "max",
    "memory.high": "max",
    "memory.swap.max": "max",
    "io.max": "",
    "cpu.cfs_quota_us": "-1",
    "cpu.shares": "1024",
}
#: The limit of version 1, in bytes: as much as there can be, rounded to pages.
_V1_MEMORY, _V1_UNLIMITED = "memory.limit_in_bytes", 1 << 60
#: Counts of tasks that a service manager gives each group: equal ones are taken for the same.
_TASKS = "pids.max"
#: A killed process leaves its group when the kernel has let go of its memory.
_LEAVING_S = 2.0


def groups_of(process: int) -> Mapping[str, PurePosixPath]:
    """The group of a process in each hierarchy. Raises OSError once it has ended."""
    lines = Path(f"/proc/{process}/cgroup").read_text(encoding="utf-8").splitlines()
    parts = [line.split(":", 2) for line in lines]
    return {controllers: PurePosixPath(path) for _, controllers, path in parts}


def tasks_counted() -> Iterator[tuple[int, int]]:
    """The number of tasks and the limit of each group that counts this process's own and has a
    limit; nothing where no group can be seen."""
    with suppress(OSError, ValueError):
        for controllers, group in groups_of(os.getpid()).items():
            for one in (group, *group.parents):
                folder = _top(controllers) / one.relative_to("/")
                with suppress(OSError, ValueError):
                    most = int((folder / _TASKS).read_text())  # "max" stands for none
                    yield int((folder / "pids.current").read_text()), most


def may_as_much(one: int, other: int) -> bool:
    """Whether neither of two processes is in a group that withholds what the other gets. What
    cannot be read is taken for less. Raises OSError where one has ended."""
    mine, its = groups_of(one), groups_of(other)
    if mine.keys() != its.keys():
        return False
    return all(_alike(name, mine[name], its[name]) for name in mine)


def _alike(controllers: str, mine: PurePosixPath, its: PurePosixPath) -> bool:
    """Groups that both are in count both alike; of the others none may withhold anything."""
    if mine == its:
        return True
    shared = {mine, *mine.parents} & {its, *its.parents}
    top = _top(controllers)
    try:
        return _withheld(top, mine, shared) == _withheld(top, its, shared)
    except (OSError, ValueError):
        return False


def _top(controllers: str) -> Path:
    if controllers:
        return MOUNTED / controllers.removeprefix("name=")
    unified = MOUNTED / "unified"  # beside those of version 1
    return unified if unified.is_dir() else MOUNTED


def _withheld(top: Path, group: PurePosixPath, shared: set[PurePosixPath]) -> list[str]:
    """The limits of tasks in a group's own part of the tree. Raises ValueError where more is
    withheld, and OSError where a group is not to be seen."""
    tasks = list[str]()
    for one in (group, *group.parents):
        if one in shared:
            break
        folder = top / one.relative_to("/")
        found = {path.name for path in folder.iterdir()}
        for name in found & _USUAL.keys():
            said = (folder / name).read_text(encoding="utf-8").split()
            if " ".join(said[:1]) != _USUAL[name]:
                raise ValueError(f"{folder} has {name}")
        if _V1_MEMORY in found and int((folder / _V1_MEMORY).read_text()) < _V1_UNLIMITED:
            raise ValueError(f"{folder} has {_V1_MEMORY}")
        if _TASKS in found:
            tasks.append((folder / _TASKS).read_text(encoding="utf-8").strip())
    return sorted(set(tasks) - {"max"})


class ControlGroup:
    """A control group of one worker: version 2, or version 1's two hierarchies."""

    def __init__(self, folders: list[Path]) -> None:
        self.folders = folders

    @classmethod
    def create(cls, limits: ProcessLimits) -> ControlGroup | None:
        """A control group with these limits; None where this user may not make one, or the kernel
        has no such controllers."""
        name, memory, tasks = owner.name(), str(limits.memory_bytes), str(limits.tasks)
        if is_unified():
            wanted = [(MOUNTED / name, {"memory.max": memory, "pids.max": tasks})]
        else:
            wanted = [
                (MOUNTED / "memory" / name, {"memory.limit_in_bytes": memory}),
                (MOUNTED / "pids" / name, {"pids.max": tasks}),
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
    """End what is left in the groups of processes that have ended, and remove them."""
    for hierarchy in [MOUNTED] if is_unified() else [MOUNTED / "memory", MOUNTED / "pids"]:
        for folder in hierarchy.glob("portkern-*"):
            if owner.gone(folder.name):
                _kill_members(folder)
                ControlGroup([folder]).remove()


def is_unified() -> bool:
    """Whether there is one hierarchy (version 2)."""
    return (MOUNTED / "cgroup.controllers").exists()


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
