"""A command in a process that has imported all of it: a fork of the server's own.

Nothing of a command is known here. Its words go to the machine's server with this process's
streams, folder and environment; there a copy of a warm process takes them on and runs the same
verb as this one would have. Without a server, or where it refuses, it is run here.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import signal
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from portkern.serve import signature
from portkern.toolchain.run_tool import cache_root

SOCKET = "commands.sock"
#: A site's own targets are read anew by each command, in a process of its own.
TARGETS = "PORTKERN_TARGETS_DIR"
#: The stand-ins for an HTTP method and path in signatures.
ASKED = ("RUN", "command")
#: The most bytes of a request and of an answer; seconds in which the server says whether it takes
#: it.
MOST_BYTES, MOST_ANSWER, REACH_S = 8 << 20, 1 << 12, 10.0
#: What the client says once it knows who runs the command.
BEGIN = b"!"
#: Streams, and the folder.
FILES = 4
#: Variables that are read when a process begins, or when it imports what it needs.
READ_ONCE = ("PYTHONPATH", "LD_LIBRARY_PATH", "LD_PRELOAD", TARGETS)
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_IGNORED = signal.SIG_IGN
#: How the process ended that ran the command, if it could not say so itself.
_LOST = 4
_GONE = "the process that ran the command is gone; run it again with serve=never"


def code_of(words: Sequence[str]) -> int | None:
    """The exit code of a command that ran in the server's process; None where none took it."""
    key = None if os.environ.get(TARGETS) else _key()
    if key is None:
        return None
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
        door.settimeout(REACH_S)
        try:
            with address() as path:
                door.connect(path)
            _ask(door, key, words)
            taken = json.loads(_line(door) or "{}")
            process = int(taken.get("process", 0))
        except (OSError, ValueError):
            return None
        if not process:
            return None
        with _forwarded(process):  # before it begins: a signal in between would be lost
            try:
                door.sendall(BEGIN)
            except OSError:
                return None
            door.settimeout(None)
            return _ended(door)


def _key() -> str | None:
    """The key in the server's file, if that is this user's and nobody else's."""
    try:
        with (cache_root() / "serve" / "address.json").open("rb") as file:
            held = os.fstat(file.fileno())
            if held.st_uid != os.geteuid() or held.st_mode & 0o077:
                return None
            return str(json.loads(file.read(1 << 16))["key"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


@contextmanager
def address(name: str = SOCKET) -> Iterator[str]:
    """The socket's path, short however long that of its folder is."""
    folder = os.open(cache_root() / "serve", os.O_DIRECTORY | os.O_RDONLY)
    try:
        yield f"/proc/self/fd/{folder}/{name}"
    finally:
        os.close(folder)


def _ask(door: socket.socket, key: str, words: Sequence[str]) -> None:
    folder = os.open(".", os.O_DIRECTORY | os.O_RDONLY)
    try:
        body = json.dumps({"words": [*words], **surroundings()}).encode()
        head = {"bytes": len(body), "signed": signature.sign(key, *ASKED, body)}
        socket.send_fds(door, [json.dumps(head).encode() + b"\n"], [0, 1, 2, folder])
        door.sendall(body)
    finally:
        os.close(folder)


def surroundings() -> dict[str, object]:
    """All that a command sees of this process beside its words, streams and folder."""
    mask = os.umask(0)
    os.umask(mask)
    return {
        "environment": dict(os.environ),
        "encoding": sys.stdout.encoding if sys.stdout is not None else "utf-8",
        "umask": mask,
        "ignored": [one for one in signal.valid_signals() if signal.getsignal(one) == _IGNORED],
        "blocked": [*signal.pthread_sigmask(signal.SIG_BLOCK, [])],
        "processors": sorted(os.sched_getaffinity(0)),
        "same": same(),
    }


def same() -> dict[str, object]:
    """All that has to be the same in both processes."""
    limits = {
        name: resource.getrlimit(number)
        for name, number in vars(resource).items()
        if name.startswith("RLIMIT_")
    }
    return {
        "python": [sys.prefix, sys.version, sys.flags.optimize, sys.warnoptions, sys._xoptions],
        "once": [os.environ.get(name, "") for name in READ_ONCE],
        "portkern": str(Path(__file__).resolve().parent),
        "user": [os.getuid(), os.geteuid(), os.getgid(), os.getegid(), sorted(os.getgroups())],
        "limits": hashlib.sha256(repr(sorted(limits.items())).encode()).hexdigest(),
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
    }


@contextmanager
def _forwarded(process: int) -> Iterator[None]:
    """Signals that end or stop this process are the command's, which ends and stops as it would
    have here. Those that are ignored, as under nohup, stay so."""

    def forward(number: int, _: object) -> None:
        with suppress(ProcessLookupError):
            os.kill(process, number)
        if number != signal.SIGINT:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def stop(number: int, _: object) -> None:
        """Has an end when this process is told to go on. The command has no terminal, without
        which a process that is asked to stop does not."""
        with suppress(ProcessLookupError):
            os.killpg(process, signal.SIGSTOP)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        signal.signal(number, stop)
        with suppress(ProcessLookupError):
            os.killpg(process, signal.SIGCONT)

    handlers = {**dict.fromkeys(_ENDING, forward), signal.SIGTSTP: stop}
    asked = {one: how for one, how in handlers.items() if signal.getsignal(one) != _IGNORED}
    before = [(one, signal.signal(one, how)) for one, how in asked.items()]
    try:
        yield
    finally:
        for one, handler in before:
            signal.signal(one, handler)


def _ended(door: socket.socket) -> int:
    said: Mapping[str, object] = {}
    with suppress(OSError, ValueError):
        said = json.loads(_line(door) or "{}")
    code = said.get("code")
    if isinstance(code, int):
        return code
    sys.stderr.write(f"portkern: error: {_GONE}\n")
    return _LOST


def _line(door: socket.socket) -> bytes:
    got = b""
    while not got.endswith(b"\n") and len(got) < MOST_ANSWER:
        part = door.recv(MOST_ANSWER)
        if not part:
            break
        got += part
    return got
