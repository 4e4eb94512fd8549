"""Starts programs of others for a worker, which runs none of their code in its own process.

The launcher is forked while the worker still has its privileges, and keeps them. For each program
it makes a namespace of processes, with a /proc and a folder of its own; the program in it has
another user than the worker, none of its handles, and ends with all that it started. What it left
under names that the worker asked for is read with the program's own rights.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import socket
import stat
import struct
import subprocess
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NoReturn

from portkern.sandbox.jail import system
from portkern.sandbox.jail.restrictions import Restrictions, close_all_but

#: The longest request to the launcher.
_REQUEST = 1 << 17
#: What comes with one: where the program's output, how it ended and its files go to.
_HANDLES = 3
#: Handles of a program from here on are files that nobody else can write to.
_FIRST_SEALED, _MOST_SEALED = 3, 8
#: A folder of more than these bytes or entries is not copied: it can be read then, not written to.
MOST_COPIED, MOST_ENTRIES = 64 << 20, 10_000
_LENGTH = struct.Struct("<q")
_ABSENT = -1
#: How long the rest of what a program wrote is waited for, once it has ended.
_LEFT_S = 20.0
#: Where every user of the jail may write.
_SHARED = (Path("/tmp"), Path("/dev/shm"))


@dataclass(frozen=True)
class Command:
    """``argv`` is run in a copy of the folder ``cwd``; ``wanted`` are names below
    :attr:`Launcher.results` and how many bytes of each are kept. Of these the first ``sealed`` are
    not files of the folder, but what is written to the handles from 3 on, which the process begins
    with, and stays as it was written. Where the process is ours, and gives them to nobody, they are
    its own word."""

    argv: tuple[str, ...]
    cwd: str
    environment: Mapping[str, str]
    timeout_s: float
    wanted: tuple[tuple[str, int], ...] = ()
    sealed: int = 0


@dataclass(frozen=True)
class Ended:
    """``status`` is negative for a signal, None when the time was over; ``files`` are those of the
    wanted which are there."""

    status: int | None
    output: bytes
    files: Mapping[str, bytes]


@dataclass(frozen=True)
class ProgramPlace:
    """Where programs run. ``folder`` is theirs alone. ``user``: None, they have the worker's."""

    folder: Path
    user: int | None
    restrictions: Restrictions
    folder_bytes: int

    @property
    def results(self) -> Path:
        return self.folder / "results"

    @property
    def separate(self) -> bool:
        return "namespaces" in self.restrictions.layers

    def restrict(self) -> None:
        self.restrictions.apply(self.user, [self.folder], groups=False, deadly=True)


class Launcher:
    """The worker's side: one program at a time."""

    def __init__(self, connection: socket.socket, results: Path) -> None:
        self._connection = connection
        self.results = results

    def run(self, command: Command, most_output: int) -> Ended:
        """Raises OSError where it cannot be started."""
        reading, writing = os.pipe()
        told, tell = os.pipe()
        files = os.memfd_create("portkern-results")
        try:
            request = json.dumps(asdict(command)).encode()
            socket.send_fds(self._connection, [request], [writing, tell, files])
            os.close(writing)
            os.close(tell)
            writing = tell = -1
            output = _drained(reading, most_output)
            said = json.loads(_drained(told, _REQUEST) or b"{}")
            if "status" not in said:
                raise OSError(said.get("problem", "the process that starts programs has ended"))
            return Ended(said["status"], output, _unpacked(files, command.wanted))
        finally:
            for handle in (reading, writing, told, tell, files):
                if handle >= 0:
                    os.close(handle)


def _drained(handle: int, most: int) -> bytes:
    """The beginning of what a handle gives; the rest is read as well, so that no writer waits."""
    kept = bytearray()
    while chunk := os.read(handle, 1 << 16):
        kept += chunk[: most - len(kept)]
    return bytes(kept)


def _unpacked(handle: int, wanted: Sequence[tuple[str, int]]) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    offset = 0
    for name, _ in wanted:
        length = _LENGTH.unpack(os.pread(handle, _LENGTH.size, offset))[0]
        offset += _LENGTH.size
        if length != _ABSENT:
            files[name] = _pread(handle, length, offset)
            offset += length
    return files


def _pread(handle: int, length: int, offset: int) -> bytes:
    data = bytearray()
    while len(data) < length and (chunk := os.pread(handle, length - len(data), offset)):
        data += chunk
        offset += len(chunk)
    return bytes(data)


# ---- the launcher


def started(place: ProgramPlace) -> Launcher:
    """Forks the launcher, which ends with this process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    system.set_dumpable(False)
    _forked([theirs.fileno()], lambda: _serve(theirs, place))
    theirs.close()
    return Launcher(ours, place.results)


def _serve(connection: socket.socket, place: ProgramPlace) -> NoReturn:
    """Starts one program after the other, each in a process that is prepared while the program
    before it runs, as this takes longer than many a program. Where both would have one folder,
    the preparation waits until the other one has ended."""
    shared = {folder: set(folder.iterdir()) for folder in _SHARED if place.separate}
    keeper, channel = _prepared(place)
    while True:
        message, handles, _, _ = socket.recv_fds(connection, _REQUEST, _HANDLES)
        if not message:
            os._exit(0)
        with channel:
            socket.send_fds(channel, [message], handles)
        for handle in handles:
            os.close(handle)
        ending = keeper
        if place.separate:
            keeper, channel = _prepared(place)
        os.waitpid(ending, 0)
        for folder, before in shared.items():
            for left in set(folder.iterdir()) - before:
                _remove(left)
        if not place.separate:
            _remove(place.folder)
            keeper, channel = _prepared(place)


def _prepared(place: ProgramPlace) -> tuple[int, socket.socket]:
    """A process which ends with the program that it is told, and the connection to it. In
    namespaces it is the first of its own, with which all others end."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    apart = system.NEWNS | system.NEWPID | system.NEWIPC if place.separate else 0
    keeper = _forked([theirs.fileno()], lambda: _oversee(theirs, place), apart)
    theirs.close()
    return keeper, ours


def _forked(handles: Sequence[int], action: Callable[[], object], apart: int = 0) -> int:
    """A process that does this, with these handles and the standard ones, and ends."""
    process = system.fork_into(apart) if apart else os.fork()
    if process:
        return process
    try:
        system.die_with_parent(signal.SIGKILL)
        close_all_but([0, 1, 2, *handles])
        action()
        os._exit(0)
    except BaseException:  # noqa: BLE001 - this process must not go on as its parent
        traceback.print_exc()
    finally:
        os._exit(1)


def _oversee(channel: socket.socket, place: ProgramPlace) -> None:
    """Prepare all, then run the program that the channel tells and say how it ended, or why it
    could not begin. All that it started has ended too."""
    problem = _furnished(place)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    failed, fails = os.pipe()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    program = _forked([theirs.fileno(), fails], lambda: _become_program(theirs, place, fails))
    os.close(fails)
    theirs.close()
    message, handles, _, _ = socket.recv_fds(channel, _REQUEST, _HANDLES)
    if not message:
        return
    command = Command(**json.loads(message))
    output, tell, files = handles
    sealed = [_Sealed(most) for _, most in command.wanted[: command.sealed]]
    with ours, suppress(OSError):  # who could not get so far has said why
        if not problem:
            socket.send_fds(ours, [message], [output, *(one.writing for one in sealed)])
    os.close(output)
    for one in sealed:
        one.begin()
    status = _waited(program, time.monotonic() + command.timeout_s)
    _end_all(place)
    with os.fdopen(failed, "rb") as said:
        problem = problem or said.read(1000).decode(errors="replace")
    _collect(place, command, files, [one.ended() for one in sealed])
    answer = {"problem": problem} if problem else {"status": status}
    os.write(tell, json.dumps(answer).encode())


def _furnished(place: ProgramPlace) -> str:
    """The program's folder, and in namespaces a /proc that knows its processes only. Why not, if
    that cannot be."""
    try:
        _furnish(place)
    except OSError as error:
        return str(error)
    return ""


def _furnish(place: ProgramPlace) -> None:
    place.folder.mkdir(exist_ok=True)
    if place.separate:
        flags = system.MS_NOSUID | system.MS_NODEV
        system.mount("tmpfs", place.folder, "tmpfs", flags, f"size={place.folder_bytes},mode=0700")
        # Read-only: by its memory's file there a program writes to code that it may not change.
        flags |= system.MS_NOEXEC | system.MS_RDONLY
        system.mount("proc", Path("/proc"), "proc", flags)
    else:
        system.adopt_orphans()
    place.results.mkdir()
    if place.user is not None:
        for path in (place.folder, place.results):
            os.chown(path, place.user, place.user)


def _waited(program: int, deadline: float) -> int | None:
    """Reaps whatever ends meanwhile."""
    while True:
        with suppress(ChildProcessError):
            while ended := os.waitpid(-1, os.WNOHANG):
                if ended[0] == program:
                    return os.waitstatus_to_exitcode(ended[1])
                if ended[0] == 0:
                    break
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            return None
        signal.sigtimedwait({signal.SIGCHLD}, left_s)


def _end_all(place: ProgramPlace) -> None:
    """Ends all processes of a program; one that loses its parent becomes a child of this
    process."""
    while True:
        if place.separate:
            with suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)
        for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        signal.sigtimedwait({signal.SIGCHLD}, 0.01)


def _become_program(orders: socket.socket, place: ProgramPlace, fails: int) -> None:
    """Give up all rights, then wait for what to run."""
    os.set_inheritable(fails, False)
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.setsid()
        place.restrict()
        with orders:
            message, handles, _, _ = socket.recv_fds(orders, _REQUEST, 1 + _MOST_SEALED)
        command = Command(**json.loads(message))
        beyond = _FIRST_SEALED + _MOST_SEALED
        null = os.open(os.devnull, os.O_RDONLY)
        null, output, *sealed, fails = (
            fcntl.fcntl(handle, fcntl.F_DUPFD_CLOEXEC, beyond) for handle in (null, *handles, fails)
        )
        standard = (null, output, output, *sealed)
        for number, source in enumerate(standard):
            os.dup2(source, number)
        close_all_but([*range(len(standard)), fails])
        os.chdir(_copied(Path(command.cwd), place.folder / "files"))
        environment = {
            **command.environment,
            "HOME": str(place.folder),
            "TMPDIR": str(place.folder),
        }
        os.execvpe(command.argv[0], command.argv, environment)
    except BaseException as error:  # noqa: BLE001 - this process must not go on as its parent
        os.write(fails, f"{type(error).__name__}: {error}".encode(errors="replace")[:1000])
        os._exit(127)


def _copied(folder: Path, into: Path) -> Path:
    """The folder itself where it is too large to copy."""
    if not _is_small(folder):
        return folder
    copy = into / (folder.name or "folder")
    with suppress(shutil.Error):  # of single files that are not files or may not be read
        shutil.copytree(folder, copy, symlinks=True)
    return copy


def _is_small(folder: Path) -> bool:
    size = 0
    for number, path in enumerate(folder.rglob("*")):
        size += path.lstat().st_size
        if size > MOST_COPIED or number > MOST_ENTRIES:
            return False
    return True


class _Sealed:
    """The bytes that are written to a handle, up to so many. It is a pipe, so that nobody can
    change what was written before."""

    def __init__(self, most: int) -> None:
        self._reading, self.writing = os.pipe()
        self._most, self._content = most, b""
        self._reader = threading.Thread(target=self._read, daemon=True)

    def begin(self) -> None:
        """Called when others have the handle to write to."""
        os.close(self.writing)
        self._reader.start()

    def ended(self) -> bytes:
        """All of it, once nobody has the handle any more."""
        self._reader.join(_LEFT_S)
        return self._content

    def _read(self) -> None:
        self._content = _drained(self._reading, self._most)


def _collect(place: ProgramPlace, command: Command, files: int, sealed: Sequence[bytes]) -> None:
    """Each length and bytes. Nothing of the program runs any more, and who reads takes on its
    rights: a link leads to what it could have read itself."""
    place.restrict()
    for number, (name, most) in enumerate(command.wanted):
        is_sealed = number < len(sealed)
        content = sealed[number] if is_sealed else read_plain(place.results / name, most)
        os.write(files, _LENGTH.pack(_ABSENT if content is None else len(content)))
        rest = memoryview(content or b"")
        while rest:
            rest = rest[os.write(files, rest) :]


def read_plain(path: Path, most: int) -> bytes | None:
    """The bytes of a file; None for what is not a file, such as a pipe that nobody writes to."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        return None
    with os.fdopen(handle, "rb") as file:
        return file.read(most)


def _remove(path: Path) -> None:
    """Removes a file or folder of any form; folders may be nested deeper than Python's own
    function reaches."""
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    except RecursionError:
        subprocess.run(["rm", "-rf", "--", path], check=False)
    except OSError:
        return
