"""A watch over what all descendants of a process write: compilers, servers, programs in the jail;
not what it writes itself.

``python tests/write_watch.py PROCESS`` reads from its input, a JSON object in a line, which
``folders`` to watch, what is ``allowed`` beneath them, ``shared`` folders in which only what is
there already is watched, and ``alone``, folders without those in them. It says how much it watches,
tells each write, a JSON object a line, and ends when its input does. It stands alone, as it starts
before the tests do.

The kernel names each change of a marked folder with the process that made it (fanotify), whatever
namespaces and mounts that one has, and tells of each new process who started it (the process
connector), so that one which has ended is still known for a descendant. Without the connector, as
in a container, a change by one that has ended is not told: it may be anybody's. Nothing is marked
where tests may write, so that nothing is told of it and the watch costs nothing.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import select
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from itertools import islice
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)
_CHANGES: Mapping[int, str] = {
    0x2: "written",
    0x4: "attributes changed",
    0x8: "written",
    0x40: "moved away",
    0x80: "moved here",
    0x100: "made",
    0x200: "removed",
}
_ON_DIRECTORIES, _ON_CHILDREN = 0x40000000, 0x08000000
_WHERE_NAMED = 0x400 | 0x800  # FAN_REPORT_DIR_FID | FAN_REPORT_NAME
_NOT_BLOCKING, _CLOSED_AT_EXEC, _UNLIMITED = 0x2, 0x1, 0x10 | 0x20
_ADD, _ONLY_DIRECTORIES = 0x1, 0x8
_HANDLE_ONLY = 0x200  # AT_HANDLE_FID
_OVERFLOW = 0x4000
_HERE = -100
_METADATA = struct.Struct("=IBBHQii")
_CONNECTOR, _ABOUT_PROCESSES, _FORKED = 11, 1, 1
#: Folders that are marked at most, and for how long: not those that lie deeper.
MOST, MARKING_S = 100_000, 10.0
#: The kernel keeps what happens meanwhile.
PAUSE_S = 0.1
_HEARD_S = 1.0
_FIRST_NAMESPACE = "pid:[4026531836]"


class Family:
    """The descendants of a process, those that have ended too. ``exact``: the kernel tells of each
    new process; otherwise only those that still run are looked at."""

    def __init__(self, root: int) -> None:
        self._root, self._members = root, {root}
        self._began = _began(root) or 0
        self._told = self._subscribed()
        if self._told:  # those that it had before
            self._members.update(pid for pid in _processes() if self._is_beneath(pid))

    @property
    def exact(self) -> bool:
        return self._told is not None

    def close(self) -> None:
        if self._told:
            self._told.close()

    def has(self, pid: int) -> bool | None:
        """Whether a process is a member; None where that cannot be known, as it or whoever started
        it has ended and nobody told of it."""
        self._listen()
        if self.exact:
            return pid in self._members
        return self._is_beneath(pid)

    def _subscribed(self) -> socket.socket | None:
        """A socket that hears of each new process; None where the kernel tells of none, as to who
        is not root or is in a namespace of processes."""
        with ExitStack() as opened, suppress(OSError):
            if str(Path("/proc/self/ns/pid").readlink()) != _FIRST_NAMESPACE:
                return None
            kind = socket.SOCK_DGRAM
            told = opened.enter_context(socket.socket(socket.AF_NETLINK, kind, _CONNECTOR))
            told.bind((0, 1))
            told.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
            # the second form is for kernels that do not choose among events
            for words in ((1, _FORKED), (1,)):
                body = struct.pack(f"={len(words)}I", *words)
                head = struct.pack("=IIIIHH", _ABOUT_PROCESSES, 1, 0, 0, len(body), 0)
                length = 16 + len(head) + len(body)
                told.send(struct.pack("=IHHII", length, 3, 0, 0, os.getpid()) + head + body)
                if _is_heard(told):
                    told.setblocking(False)
                    opened.pop_all()
                    return told
        return None

    def _listen(self) -> None:
        while self._told:
            try:
                message = self._told.recv(4096)
            except BlockingIOError:
                return
            except OSError:  # some were lost, and numbers may be others' by now
                self._told = None
                return
            forked = _forked(message)
            if forked is None:
                continue
            parent, child = forked
            if parent in self._members:
                self._members.add(child)
            else:
                self._members.discard(child)  # a number that was a member's

    def _is_beneath(self, pid: int) -> bool | None:
        """Whether the root is among the processes above a running one; False where one of these is
        older than the root, None where the way ends before, at process 1."""
        while pid > 1:
            if pid == self._root:
                return True
            began, parent = _began(pid), _parent(pid)
            if began is None or parent is None:
                return None
            if began < self._began:
                return False
            pid = parent
        return None  # whoever started it has ended


def _is_heard(told: socket.socket) -> bool:
    """Whether a socket hears of a process that this one starts now. The kernel's own answer does
    not pass where it chooses among events, and others' events come before."""
    child = os.posix_spawn(sys.executable, [sys.executable, "-SEc", ""], {})
    os.waitpid(child, 0)
    until = time.monotonic() + _HEARD_S
    while (left := until - time.monotonic()) > 0:
        told.settimeout(left)
        try:
            message = told.recv(4096)
        except TimeoutError:
            break
        if _forked(message) == (os.getpid(), child):
            return True
    return False


def _forked(message: bytes) -> tuple[int, int] | None:
    """The processes that forked and that was begun; None for a thread and for other events."""
    if len(message) < 68:
        return None
    what, _, _, _, parent, child, group = struct.unpack_from("=IIQIIII", message, 36)
    return (parent, child) if what == _FORKED and child == group else None


def _processes() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]


def _stat(pid: int) -> Sequence[str] | None:
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return None


def _parent(pid: int) -> int | None:
    found = _stat(pid)
    return int(found[1]) if found else None


def _began(pid: int) -> int | None:
    found = _stat(pid)
    return int(found[19]) if found else None


class Marks:
    """Folders whose changes the kernel tells, with the process. Raises OSError where it does not:
    it names processes to root alone."""

    def __init__(self) -> None:
        flags = _WHERE_NAMED | _NOT_BLOCKING | _CLOSED_AT_EXEC | _UNLIMITED
        self.handle = _LIBC.fanotify_init(flags, os.O_RDONLY)
        if self.handle < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        self._folders: dict[bytes, str] = {}

    @property
    def count(self) -> int:
        return len(self._folders)

    def add(self, folder: str) -> None:
        """Mark a folder, without those in it; a file system that tells nothing is left out."""
        mask = sum(_CHANGES) | _ON_DIRECTORIES | _ON_CHILDREN
        file = _file_handle(folder)
        done = file and _LIBC.fanotify_mark(
            self.handle, _ADD | _ONLY_DIRECTORIES, ctypes.c_uint64(mask), _HERE, os.fsencode(folder)
        )
        if file is not None and not done:
            self._folders[file] = folder

    def changes(self) -> Iterator[tuple[str, str, int]]:
        """The changes since the last call: what was done, the path and the process."""
        while True:
            try:
                events = os.read(self.handle, 1 << 18)
            except BlockingIOError:
                return
            while events:
                length, _, _, head, mask, _, pid = _METADATA.unpack_from(events)
                if mask & _OVERFLOW:
                    yield "lost: more changes than the system keeps", "", 0
                what = next((name for bit, name in _CHANGES.items() if mask & bit), "changed")
                for folder, name in self._places(events[head:length]):
                    yield what, folder if name == "." else os.path.join(folder, name), pid  # noqa: PTH118
                events = events[length:]

    def _places(self, records: bytes) -> Iterator[tuple[str, str]]:
        """The marked folders of an event, each with the name in it."""
        while len(records) >= 20:
            _, _, length, file, size = struct.unpack_from("=BBH8sI", records)
            end = 16 + size
            folder = self._folders.get(file + records[12 : end + 4])
            if folder is not None:
                yield folder, os.fsdecode(records[end + 4 : length].partition(b"\0")[0]) or "."
            records = records[length:]


def _file_handle(folder: str) -> bytes | None:
    """The name that the kernel has for a folder: its file system, and its number there."""
    room = 128
    for flags in (_HANDLE_ONLY, 0):
        buffer = ctypes.create_string_buffer(struct.pack("=Ii", room, 0), 8 + room)
        mount = ctypes.c_int()
        if not _LIBC.name_to_handle_at(
            _HERE, os.fsencode(folder), buffer, ctypes.byref(mount), flags
        ):
            size = struct.unpack_from("=I", buffer)[0]
            try:
                system = os.statvfs(folder).f_fsid
            except OSError:
                return None
            return struct.pack("=Q", system) + buffer.raw[: 8 + size]
    return None


def folders(tops: Iterable[str], allowed: Sequence[str]) -> Iterator[str]:
    """Folders beneath, the least deep first, but for allowed ones and what Python compiles; a link
    is not followed, and no other file system entered."""
    left = deque((top, os.lstat(top).st_dev) for top in tops if os.path.isdir(top))  # noqa: PTH112
    seen = set[str]()
    while left:
        folder, device = left.popleft()
        if folder in seen or folder in allowed:
            continue
        seen.add(folder)
        yield folder
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if (
                        entry.name != "__pycache__"
                        and entry.is_dir(follow_symlinks=False)
                        and entry.stat(follow_symlinks=False).st_dev == device
                    ):
                        left.append((entry.path, device))
        except OSError:  # of others, or gone
            continue


#: What several sessions of tests and tools share among temporary files, whoever made it first.
_SHARED = re.compile(
    r"pytest-of-|portkern-|torchinductor_|torch_extensions|hsperfdata_|matplotlib-|pymp-|tmp|ray$|"
    r"cc\w{6}|clang-|comgr-|nvidia-|\.|.*cache",
    re.IGNORECASE,
)


def main() -> None:
    asked = json.loads(sys.stdin.readline())
    root = int(sys.argv[1])
    family, marks = Family(root), Marks()
    known = _mark(marks, asked)
    family.has(0)  # hears of all that was begun meanwhile
    ways = _ways(asked["allowed"])
    _tell({"folders": marks.count, "exact": family.exact})
    is_last = False
    while not is_last:
        waits = [] if family.exact else [marks.handle]
        is_last = sys.stdin in select.select([sys.stdin, *waits], [], [], PAUSE_S)[0]
        at = time.time()
        for what, path, pid in [*marks.changes()]:
            folder, name = os.path.split(path)
            if path in asked["allowed"] or path not in known.get(folder, {path}):
                continue
            if path in ways:
                marks.add(path)
                continue
            if pid != root and name != "__pycache__" and family.has(pid):
                _tell({"what": what, "path": path, "process": pid, "by": _called(pid), "at": at})
        family.has(0)


def _ways(allowed: Iterable[str]) -> set[str]:
    """Folders that are not there and that whoever makes an allowed one makes first."""
    above = {str(path) for one in allowed for path in Path(one).parents}
    return {path for path in above if not os.path.lexists(path)}


def _mark(marks: Marks, asked: Mapping[str, Sequence[str]]) -> Mapping[str, set[str]]:
    """Mark all folders that are asked for, until it has taken too long; returns the files of
    others in each of the shared ones."""
    known, tops = dict[str, set[str]](), [*asked["folders"]]
    for shared in asked["shared"]:
        there = [path for path in Path(shared).iterdir() if not _SHARED.match(path.name)]
        known[shared] = {*map(str, there)}
        tops += [str(path) for path in sorted(there) if not path.is_symlink()]
    for folder in (*asked["shared"], *asked["alone"]):
        marks.add(folder)
    until = time.monotonic() + MARKING_S
    for folder in islice(folders(tops, [*asked["allowed"], *asked["shared"]]), MOST):
        if time.monotonic() > until:
            break
        marks.add(folder)
    return known


def _tell(what: Mapping[str, object]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def _called(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text("utf-8", "replace").strip()
    except OSError:
        return ""


if __name__ == "__main__":
    main()
