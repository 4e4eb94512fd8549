"""The process that commands are forked from: ``python -m portkern.cli.warm_process``.

It imports what ``portkern check`` needs, once, and waits at a socket in the server's folder. A
command that is signed with the server's key becomes a fork of it, with the client's streams, folder
and environment, that runs the verb as a process of its own would. It never has a thread, and runs
nothing itself. Refused is who is confined in another way than the server or may use less than it,
and all where a file of portkern's has changed since.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from portkern.cli import main, streams, warm
from portkern.sandbox.jail import control_groups
from portkern.serve import address, signature
from portkern.spec.foreign_text import json_value

#: Seconds in which a client has to say all.
_SAYS_S = 5.0
#: What of a process confines it: programs of others run with more of it than the server has.
_CONFINED = ("Seccomp:", "Seccomp_filters:", "NoNewPrivs:", "CapEff:", "CapBnd:")
Said = Mapping[str, object]


class Commands:
    """``listening`` is the server's socket, ``alive`` a pipe that it holds until it ends."""

    def __init__(self, listening: socket.socket, alive: int, key: str) -> None:
        self._listening, self._alive = listening, alive
        self._verifier = signature.Verifier(key)
        self._files = _files()
        self._confined = _confinement(os.getpid())
        _prepare()
        held, early = _sockets()
        with suppress(FileNotFoundError):  # the server has ended meanwhile
            early.rename(held)  # from now on it answers at once

    def serve(self) -> None:
        """Takes commands until the server ends; those that run come to their end."""
        while True:
            asked: list[socket.socket | int] = [self._listening, self._alive]
            ready, _, _ = select.select(asked, [], [], 1.0)
            with suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            if self._alive in ready:
                return
            if ready:
                with suppress(Exception), ExitStack() as opened:
                    self._take(opened)

    def _take(self, opened: ExitStack) -> None:
        """Forks for one command. What is not as it must be is closed without an answer, and the
        client runs it itself."""
        door = opened.enter_context(self._listening.accept()[0])
        door.settimeout(_SAYS_S)
        peer, own = _peer(door), os.getpid()
        if _confinement(peer) != self._confined or not control_groups.may_as_much(own, peer):
            return
        said, files = self._asked(door, opened)
        if said["same"] != json_value(json.dumps(warm.same())) or _files() != self._files:
            return
        words = [str(word) for word in said["words"]]  # type: ignore[attr-defined]
        if os.fork() == 0:
            self._listening.close()
            os.close(self._alive)
            _run(door, said, files, words)

    def _asked(self, door: socket.socket, opened: ExitStack) -> tuple[Said, Sequence[int]]:
        """Raises ValueError for what is not signed, and OSError for who says too little."""
        first, files, _, _ = socket.recv_fds(door, warm.MOST_ANSWER, warm.FILES)
        for number in files:
            opened.callback(os.close, number)
        line, _, body = first.partition(b"\n")
        head = json_value(line)
        size, signed, until = head["bytes"], str(head["signed"]), time.monotonic() + _SAYS_S
        if type(size) is not int or not 0 < size <= warm.MOST_BYTES or len(files) != warm.FILES:
            raise ValueError("not a command")
        while len(body) < size:
            part = door.recv(size - len(body))
            if not part or time.monotonic() > until:
                raise ValueError("not all of a command")
            body += part
        if self._verifier.refusal(signed, *warm.ASKED) or not signature.is_of(signed, body):
            raise ValueError("not signed")
        said = json_value(body)
        if not isinstance(said, dict):
            raise ValueError("not a command")
        return said, files


def _sockets() -> tuple[Path, Path]:
    """Where clients look, and where the socket is until somebody answers there."""
    held = address.file().parent / warm.SOCKET
    return held, held.with_suffix(".new")


def _prepare() -> None:
    """Imports and reads all that a check does whatever it is asked."""
    from portkern.cli.config import compose_ahead, resolve
    from portkern.cli.verbs import check
    from portkern.execution.installation import Portkern
    from portkern.spec import registry, target

    resolve("check", check.CheckOptions, [])  # imports what Hydra imports late
    compose_ahead("check", check.CheckOptions)
    for name in registry.names():
        registry.load(name)
    for name in target.names():
        target.load(name)
    Portkern.here()
    for module in ("portkern.ops", "portkern.cli.exit_code", "http.client", "filelock"):
        import_module(module)
    if len(os.listdir("/proc/self/task")) != 1:  # noqa: PTH208 - a fork would lack the others
        raise SystemExit("a module has begun a thread, which a fork would not have")


def _files() -> dict[str, tuple[int, int]]:
    """When each file that a command may import was changed, and its size."""
    found = dict[str, tuple[int, int]]()
    folders = [f for name in ("portkern", "portkern.backends", "portkern.targets", "portkern.conf")
               for f in import_module(name).__path__]  # fmt: skip
    while folders:
        for entry in os.scandir(folders.pop()):
            if entry.is_dir():
                if entry.name != "__pycache__":
                    folders.append(entry.path)
                continue
            held = entry.stat()
            found[entry.path] = held.st_mtime_ns, held.st_size
    for path in filter(os.path.isdir, sys.path):  # where packages are installed
        found[path] = os.stat(path).st_mtime_ns, 0  # noqa: PTH116
    return found


def _peer(door: socket.socket) -> int:
    """Raises ValueError for another user's process."""
    size = 3 * 4
    held = door.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    process, user, _ = (int.from_bytes(held[n : n + 4], sys.byteorder) for n in range(0, size, 4))
    if user != os.geteuid():
        raise ValueError("another user")
    return process


def _confinement(process: int) -> list[str]:
    """Namespaces, root and filters of a process. Raises OSError where it is gone."""
    here = Path(f"/proc/{process}")
    spaces = [one for one in (here / "ns").iterdir() if not one.name.endswith("_for_children")]
    status = (here / "status").read_text().splitlines()
    return [
        *(str(one.readlink()) for one in (*sorted(spaces), here / "root")),
        *(line for line in status if line.startswith(_CONFINED)),
    ]


def _run(door: socket.socket, said: Said, files: Sequence[int], words: Sequence[str]) -> NoReturn:
    """Never returns: the process is the command's."""
    code = 4
    try:
        os.setsid()
        door.settimeout(None)
        for number, given in enumerate(files[:3]):
            os.dup2(given, number)
        os.fchdir(files[3])
        for number in files:
            os.close(number)
        _become(said)
        door.sendall(json.dumps({"process": os.getpid()}).encode() + b"\n")
        if door.recv(1) != warm.BEGIN:  # the client has waited for too long, and runs it itself
            os._exit(0)
        threading.Thread(target=_watch, args=(door,), daemon=True).start()
        try:
            code = main.whole(words)
        except KeyboardInterrupt:
            code = main.interrupted()
        atexit._run_exitfuncs()
        sys.stderr.flush()
        door.sendall(json.dumps({"code": code}).encode() + b"\n")
    finally:
        os._exit(code)


def _become(said: Said) -> None:
    environment, processors = said["environment"], said["processors"]
    assert isinstance(environment, dict) and isinstance(processors, list)
    os.environ.clear()
    os.environ.update(environment)
    if sys.pycache_prefix:
        os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix
    os.umask(int(str(said["umask"])))
    _heed(said)
    with suppress(OSError):
        os.sched_setaffinity(0, processors)
    time.tzset()
    encoding = str(said["encoding"])
    sys.stdin, sys.stdout, sys.stderr = (
        os.fdopen(number, mode, encoding=encoding, closefd=False)
        for number, mode in enumerate(("r", "w", "w"))
    )
    streams.prepare()


def _heed(said: Said) -> None:
    """Signals do what they do to the client, whatever the server was started to ignore."""
    ignored, blocked = said["ignored"], said["blocked"]
    assert isinstance(ignored, list) and isinstance(blocked, list)
    plain = (signal.SIG_DFL, signal.SIG_IGN, signal.default_int_handler)
    for one in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        if one in ignored:
            signal.signal(one, signal.SIG_IGN)
        elif signal.getsignal(one) in plain:  # not a handler of a module that was imported
            own = signal.default_int_handler if one == signal.SIGINT else signal.SIG_DFL
            signal.signal(one, own)
    signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _watch(door: socket.socket) -> None:
    """A client that is gone, killed say, interrupts its command, or kills it where that would not
    heed an interrupt."""
    with suppress(OSError):
        while door.recv(1):
            pass
    deaf = signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    if deaf or signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        os.kill(os.getpid(), signal.SIGKILL)
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


@contextmanager
def beside(key: str) -> Iterator[int]:
    """The number of the process of this server's commands, which ends after it."""
    held, early = _sockets()
    for path in (held, early):
        path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        with warm.address(early.name) as place:
            listening.bind(place)
        early.chmod(0o600)
        listening.listen(64)
        read, write = os.pipe()
        try:
            command = [sys.executable, "-P", "-m", __name__, str(listening.fileno()), str(read)]
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                pass_fds=(listening.fileno(), read),
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
                start_new_session=True,
            )
            os.close(read)
            assert process.stdin is not None
            with process.stdin as told:
                told.write(key.encode())
            listening.close()
            yield process.pid
        finally:
            os.close(write)
            for path in (held, early):
                path.unlink(missing_ok=True)
            with suppress(subprocess.TimeoutExpired):  # its commands come to their end
                process.wait(_SAYS_S)


if __name__ == "__main__":
    Commands(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]), sys.stdin.read()).serve()
