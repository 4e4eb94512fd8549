"""A watch over the file system: what this process writes, and where it may; and what nobody may
change, as it is run later by itself."""

from __future__ import annotations

import errno
import hashlib
import os
import site
import stat
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
#: The arguments that are paths, by the event of the interpreter that changes a file, each with that
#: of the open folder that it is relative to.
_EVENTS: Mapping[str, Sequence[tuple[int, int | None]]] = {
    "open": [(0, None)],
    "os.chmod": [(0, 2)],
    "os.chown": [(0, 3)],
    "os.link": [(1, 3)],
    "os.mkdir": [(0, 2)],
    "os.remove": [(0, 1)],
    "os.rename": [(0, 2), (1, 3)],
    "os.rmdir": [(0, 1)],
    "os.symlink": [(1, 2)],
    "os.truncate": [(0, None)],
    "os.utime": [(0, 3)],
}
#: The listeners that are told of a write; a hook of the interpreter stays until the process ends.
_told: list[Callable[[str], None]] = []
_installed = False


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    if not _told or event not in _EVENTS:
        return
    if event == "open" and not (isinstance(arguments[2], int) and arguments[2] & _WRITING):
        return
    if event == "os.rename":  # the same folder may have another path
        _known.clear()
    for place, relative in _EVENTS[event]:
        path = arguments[place]
        # as a folder that is removed is walked: it was opened by its own path
        inner = relative is not None and arguments[relative] != -1
        if isinstance(path, str | bytes) and not inner:
            for tell in _told:
                tell(_real(os.fsdecode(path)))


#: Folders that were met, which file each is, and its path without links: a look at one file in the
#: place of one at each folder above it.
_known: dict[str, tuple[tuple[int, int], str]] = {}


def _real(path: str) -> str:
    """The name that is made or changed, in the folder that it is in."""
    folder, name = os.path.split(os.path.abspath(path))  # noqa: PTH100
    try:
        found = os.stat(folder)  # noqa: PTH116
    except OSError as error:
        is_a_path = error.errno != errno.ENAMETOOLONG
        real = os.path.realpath(folder) if is_a_path else folder
    else:
        file = found.st_dev, found.st_ino
        before, real = _known.get(folder, (None, ""))
        if before != file:
            real = os.path.realpath(folder)
            _known[folder] = file, real
    return os.path.join(real, name)  # noqa: PTH118


@contextmanager
def watched(allowed: Sequence[Path]) -> Iterator[list[str]]:
    """Paths that this process writes to outside of ``allowed``, as they come."""
    global _installed
    if not _installed:
        sys.addaudithook(_hook)
        _installed = True
    places = tuple(f"{os.path.realpath(place)}/" for place in allowed)
    beyond: list[str] = []

    def tell(path: str) -> None:
        if not f"{path}/".startswith(places):
            beyond.append(path)

    _told.append(tell)
    try:
        yield beyond
    finally:
        _told.remove(tell)


#: Files of a home that a shell, a compiler, git or Python reads or starts, whoever wrote them.
_OF_HOME = (
    *(".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".profile", ".inputrc"),
    *(".zshenv", ".zprofile", ".zshrc", ".gitconfig", ".netrc", ".pdbrc", ".pythonrc.py"),
    *(".ssh/*", ".config/git/*", ".config/pip/*", ".config/autostart/*", ".config/fish/*"),
    *(".config/systemd/user/*", ".ipython/profile_default/startup/*", ".local/bin/*"),
)
#: The same of the machine.
_OF_MACHINE = (
    *("ld.so.preload", "ld.so.conf.d/*", "environment", "passwd", "sudoers.d/*", "crontab"),
    *("profile", "profile.d/*", "bash.bashrc", "cron.*/*", "systemd/system/*"),
)


def run_later(home: Path, machine: Path = Path("/etc")) -> dict[str, str]:
    """The digests of files that are run or read later by themselves, by their paths; of links where
    they lead."""
    packages = [*map(Path, site.getsitepackages()), Path(site.getusersitepackages())]
    looked = [(home, _OF_HOME), (machine, _OF_MACHINE), *((one, ("*.pth",)) for one in packages)]
    return {
        str(path): _digest(path)
        for folder, patterns in looked
        for pattern in patterns
        for path in folder.glob(pattern)
        if _is_run_later(path)
    }


def _is_run_later(path: Path) -> bool:
    """Whether the file is run later; False for what a developer's own ssh writes: hosts that it
    met, and its sockets."""
    try:
        mode = path.lstat().st_mode
    except OSError:  # of others
        return True
    return (stat.S_ISREG(mode) or stat.S_ISLNK(mode)) and not path.name.startswith("known_hosts")


def _digest(path: Path) -> str:
    try:
        if path.is_symlink():
            return f"-> {path.readlink()}"
        return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
    except OSError as error:  # of others
        return error.strerror or ""


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """The paths of what was changed, made or removed."""
    return sorted(path for path in {*before, *after} if before.get(path) != after.get(path))
