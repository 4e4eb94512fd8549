"""Files that all processes of a machine share, and the first that needs one makes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from portkern.errors import StorageError

#: The seconds for another process to make it.
TIMEOUT_S = 600.0


def make_once(final: Path, make: Callable[[Path], object]) -> None:
    """``make`` the file ``final`` unless it is there. It is made under another name and moved into
    place, so that none sees half of it, and under a lock, so that it is not made twice at once.
    Raises StorageError for a file that somebody else has put there: some are loaded."""
    if final.exists():
        if not _be_own(final) & 0o004:  # by an earlier version, under a mask
            readable(final.parent)
        return
    from filelock import FileLock

    final.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(final.parent / ".lock", timeout=TIMEOUT_S):
        if not final.exists():
            made = final.with_name(f".{os.getpid()}-{final.name}")
            try:
                make(made)
                # Whatever the mask: what others may change is taken for theirs below.
                made.chmod(made.stat().st_mode & ~0o022)
                readable(final.parent)
                made.rename(final)
            finally:
                made.unlink(missing_ok=True)


@contextmanager
def aside(final: Path) -> Iterator[Path]:
    """A place to make a file before it is moved to ``final``: in a new folder beside it that nobody
    else may write to, so that no link waits there under its name. Raises OSError."""
    final.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".", dir=final.parent) as folder:
        yield Path(folder, final.name)


def readable(folder: Path) -> None:
    """Has workers, which are another user where root starts them, read a folder and what is in it,
    whatever the mask. Folders above it stay as they are, which others may be kept out by. What is
    another user's, or goes meanwhile, is left alone."""
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink() and path.name != ".lock":
            with suppress(OSError):
                path.chmod(path.stat().st_mode | (0o055 if path.is_dir() else 0o044))


#: The owner of files whose owner this process cannot see, as in a worker's namespace.
_UNSEEN = 65534


def _be_own(final: Path) -> int:
    """The mode of a file that nobody else may change. Raises StorageError for another one."""
    held = final.stat()
    if held.st_uid not in (0, os.geteuid(), _UNSEEN) or held.st_mode & 0o002:
        raise StorageError(
            f"Got {final}, which another user has made or may change; set PORTKERN_CACHE_DIR to a "
            "folder of your own"
        )
    return held.st_mode
