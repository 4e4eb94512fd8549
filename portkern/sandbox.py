"""Workers from the judge's side: spawn, ask with a deadline, and see how they ended.

Every worker is confined by :mod:`portkern.jail`, shares an :class:`Arena` with the judge, and is
gone with all that it started when its session closes.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from portkern.arena import Arena
from portkern.errors import PortkernError
from portkern.jail import Layers, Policy

#: What a worker sees of the judge's environment; API keys and tokens are not among it.
ALLOWED = {"PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "TZ", "VIRTUAL_ENV"}
ALLOWED_PREFIXES = (
    "CUDA", "NVIDIA", "ROCM", "ROCR", "HIP", "HSA", "POCL", "OCL", "OMP_", "MKL_", "NUMBA_",
    "TRITON_", "JAX_", "XLA_", "PORTKERN_", "PYTHON", "TORCH_", "DO_NOT_TRACK",
)  # fmt: skip
#: How long a worker that has closed its connection may take to be gone.
GRACE_S = 1.0
#: The last bytes of what a worker printed, for the record.
LOG_TAIL = 4000
#: The longest reply, how deep it may be nested, and the longest of its texts that is kept.
REPLY_BYTES, REPLY_LEVELS, TEXT_LENGTH = 8 << 20, 16, 1 << 16


@dataclass(frozen=True)
class Answer:
    """What the worker replied: data from the jail, to be checked like any other claim."""

    data: Mapping[str, Any]


@dataclass(frozen=True)
class Failed:
    """The worker reported an exception; ``error`` is its type's name."""

    error: str
    message: str
    log: str


@dataclass(frozen=True)
class Died:
    """The worker ended without an answer; negative ``status`` is the signal that ended it."""

    status: int
    log: str

    def __str__(self) -> str:
        if self.status < 0:
            return f"killed by {_signal_name(-self.status)}"
        return f"exited with status {self.status} instead of answering"


@dataclass(frozen=True)
class TimedOut:
    """No answer within the deadline; the whole process group was killed."""

    limit_s: float
    log: str


Outcome = Answer | Failed | Died | TimedOut


def _signal_name(number: int) -> str:
    """Most of the real-time signals have none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class ForkServer:
    """One warm process per set of preloaded modules; started on first use, thread-safe."""

    def __init__(self, preload: tuple[str, ...]) -> None:
        self._preload = preload
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._layers: Layers | None = None

    @property
    def layers(self) -> Layers:
        """What its workers are confined by."""
        with self._lock:
            if self._control is None:
                self._start()
            assert self._layers is not None
            return self._layers

    def spawn(
        self, policy: Policy, environment: Mapping[str, str], *, arena: int, log: int
    ) -> tuple[int, socket.socket]:
        """A new worker's pid and the judge's end of its connection."""
        ours, theirs = socket.socketpair()
        request = {"spawn": {"policy": policy.to_json(), "environment": dict(environment)}}
        with theirs:
            try:
                reply = self._ask(request, [theirs.fileno(), arena, log])
            except PortkernError:
                ours.close()
                raise
        return int(reply["pid"]), ours

    def wait(self, pid: int) -> int:
        """The exit status of a worker that has ended or was killed."""
        return int(self._ask({"wait": pid}, [])["status"])

    def close(self) -> None:
        with self._lock:
            self._stop()

    def _ask(self, request: dict[str, Any], handles: list[int]) -> dict[str, Any]:
        """A server that is gone is an error now and started again for the next request."""
        with self._lock:
            control = self._control or self._start()
            try:
                socket.send_fds(control, [json.dumps(request).encode()], handles)
                reply = control.recv(1 << 16)
            except OSError:
                reply = b""
            if not reply:
                self._stop()
                raise PortkernError("The fork server ended; see the lines it printed above")
        answer: dict[str, Any] = json.loads(reply)
        return answer

    def _stop(self) -> None:
        if self._control and self._process:
            self._control.close()  # the server ends when it reads this
            self._process.wait()
        self._control = self._process = None

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        argv = [sys.executable, "-m", "portkern.forkserver", str(theirs.fileno()), *self._preload]
        with theirs:
            self._process = subprocess.Popen(
                argv, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, env=_environment()
            )
        told = ours.recv(1 << 16)
        if not told:
            self._process.wait()
            raise PortkernError("The fork server did not start; see the lines it printed above")
        self._control, self._layers = ours, Layers.from_json(json.loads(told)["layers"])
        return ours


def _environment() -> dict[str, str]:
    return {
        name: value for name, value in os.environ.items()
        if name in ALLOWED or name.startswith(ALLOWED_PREFIXES)
    }  # fmt: skip


_SERVERS: dict[tuple[str, ...], ForkServer] = {}
_SERVERS_LOCK = threading.Lock()


def server(preload: tuple[str, ...]) -> ForkServer:
    with _SERVERS_LOCK:
        return _SERVERS.setdefault(preload, ForkServer(preload))


def close_servers() -> None:
    with _SERVERS_LOCK:
        for warm in _SERVERS.values():
            warm.close()
        _SERVERS.clear()


def layers() -> Layers:
    """What workers on this machine are confined by."""
    return server(()).layers


class Session:
    """One worker. Asking a dead one is an error; see :attr:`alive`.

    It reads ``reads`` beside the system and Python, and sees the GPUs if ``device``.
    """

    def __init__(
        self, preload: tuple[str, ...], environment: Mapping[str, str], *,
        reads: Iterable[Path] = (), device: bool = False,
    ) -> None:  # fmt: skip
        self.arena = Arena()
        self.scratch = Path(tempfile.mkdtemp(prefix="portkern-"))
        self._log = os.memfd_create("portkern-log")
        fcntl.fcntl(self._log, fcntl.F_SETFL, os.O_APPEND)
        self._server = server(preload)
        policy = Policy(self.scratch, tuple(reads), device=device)
        self.pid, self._connection = self._server.spawn(
            policy, environment, arena=self.arena.handle, log=self._log
        )
        self._received = bytearray()
        self.alive = True

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self.close()

    def ask(self, do: str, *, timeout_s: float, **arguments: Any) -> Outcome:
        """Send one request; the worker does not survive a missed deadline."""
        if not self.alive:
            raise PortkernError("This worker has ended; open another session")
        deadline = time.monotonic() + timeout_s
        self._connection.settimeout(timeout_s)  # of a worker that reads nothing
        try:
            self._connection.sendall(json.dumps({"do": do, **arguments}).encode() + b"\n")
            line = self._receive(deadline)
        except TimeoutError:
            line = None
        except OSError:
            line = b""  # it closed the connection while we wrote: the same as no answer
        if line is None:
            self._end()
            return TimedOut(timeout_s, self.log())
        if len(line) > REPLY_BYTES:
            self._end()
            return Failed("ReplyTooLong", f"more than {REPLY_BYTES >> 20} MiB", self.log())
        reply = _parse(line)
        if reply is None:
            return Died(self._end(grace_s=GRACE_S), self.log())
        if reply.get("ok") is True:
            return Answer(reply)
        return Failed(*(str(reply.get(key, "")) for key in ("error", "message", "log")))

    def log(self) -> str:
        """The end of what the worker printed."""
        size = os.fstat(self._log).st_size
        return os.pread(self._log, LOG_TAIL, max(0, size - LOG_TAIL)).decode(errors="replace")

    def close(self) -> None:
        if self.alive:
            self._end()
        if self.arena.handle >= 0:
            os.close(self._log)
        self.arena.close()
        _remove(self.scratch)

    def _receive(self, deadline: float) -> bytes | None:
        """One line, or more than REPLY_BYTES of one; ``b""`` when the connection closed first,
        None when time is up."""
        end = self._received.find(b"\n")
        while end < 0 and len(self._received) <= REPLY_BYTES:
            remaining = deadline - time.monotonic()
            if remaining <= 0 or not select.select([self._connection], [], [], remaining)[0]:
                return None
            chunk = self._connection.recv(1 << 16)
            if not chunk:
                return b""
            found = chunk.find(b"\n")
            end = len(self._received) + found if found >= 0 else -1
            self._received += chunk
        line = bytes(self._received[:end] if end >= 0 else self._received)
        del self._received[: len(line) + 1]
        return line

    def _end(self, *, grace_s: float = 0.0) -> int:
        """Kill all of it, and the status of the worker itself: its own if it ends in time."""
        self.alive = False
        with suppress(ProcessLookupError):
            process = os.pidfd_open(self.pid)
            select.select([process], [], [], grace_s)
            os.close(process)
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._connection.close()
        return self._server.wait(self.pid)


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        reply = _plain(json.loads(line), REPLY_LEVELS)
    except (ValueError, RecursionError):  # of JSON that is nested too deeply
        return None
    return reply if isinstance(reply, dict) else None


def _plain(value: Any, levels: int) -> Any:
    """With texts that can be written as UTF-8, where JSON may name half a character, and that a
    record can hold."""
    if levels == 0:
        raise ValueError("nested too deeply")
    if isinstance(value, str):
        return value[:TEXT_LENGTH].encode(errors="replace").decode()
    if isinstance(value, list):
        return [_plain(one, levels - 1) for one in value]
    if isinstance(value, dict):
        return {_plain(key, 1): _plain(one, levels - 1) for key, one in value.items()}
    return value


def _remove(folder: Path) -> None:
    """A worker may have nested folders deeper than Python's own function reaches."""
    try:
        shutil.rmtree(folder, ignore_errors=True)
    except RecursionError:
        subprocess.run(["rm", "-rf", "--", folder], check=False)
