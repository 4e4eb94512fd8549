"""Whether a process may use as much as another one, as far as control groups say."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath

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


def groups_of(process: int) -> Mapping[str, PurePosixPath]:
    """The group of a process in each hierarchy. Raises OSError once it has ended."""
    lines = Path(f"/proc/{process}/cgroup").read_text(encoding="utf-8").splitlines()
    parts = [line.split(":", 2) for line in lines]
    return {controllers: PurePosixPath(path) for _, controllers, path in parts}


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
