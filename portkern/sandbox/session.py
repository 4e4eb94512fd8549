"""Workers from the evaluator's side: spawn, ask with a deadline, and see how they ended.

Every worker is confined by :mod:`portkern.sandbox.jail`, shares an :class:`SharedMemory` with the
evaluator, and is gone with all that it started when its session closes.
"""

from __future__ import annotations

import fcntl
import importlib
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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Generic, Literal, TypeVar

from portkern.errors import StorageError, WorkerError
from portkern.sandbox import threads
from portkern.sandbox.environment import inherited
from portkern.sandbox.jail import JailPolicy, Layers, owner
from portkern.sandbox.message import (
    Confined,
    Failed,
    FormError,
    Request,
    brief,
    encoded,
    read,
)
from portkern.sandbox.shared_memory import SharedMemory
from portkern.toolchain.run_tool import cache_root

R = TypeVar("R")

#: What workers that compile programs of others, or run them, import before they are forked.
COMPILING = (
    "portkern.worker.compiling",
    "portkern.simt.execute.build",
    "portkern.simt.execute.program",
    "portkern.simt.execute.source_lines",
)

#: Threads that wait for work spin for some 0.1 ms and no longer: by default OpenMP's and OpenBLAS's
#: keep a processor for up to 200 ms, and time that another worker's kernel or baseline would need.
#: Two threads of one team on one processor waited for 16 ms per region. What the user sets holds.
SHORT_SPINS = {"GOMP_SPINCOUNT": "10000", "KMP_BLOCKTIME": "1", "OPENBLAS_THREAD_TIMEOUT": "20"}
#: What is freed is used again: glibc gives large blocks back, and a baseline whose output is new in
#: every call would spend twenty times as long on the kernel's clearing of pages as on its work.
KEPT_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}
#: How long a worker that has closed its connection may take to be gone.
GRACE_S = 1.0
#: A fork server that says nothing for so long is as good as dead; importing takes longest.
START_S, REPLY_S = 300.0, 60.0
#: The last bytes of what a worker printed, for the record.
LOG_TAIL = 4000
#: The longest reply, how deep it may be nested, and the longest of its texts that is kept.
REPLY_BYTES, REPLY_LEVELS, TEXT_LENGTH = 8 << 20, 16, 1 << 16


@dataclass(frozen=True)
class Answered(Generic[R]):
    """The worker's reply: of the right form, but a claim like any other from the jail."""

    reply: R


@dataclass(frozen=True)
class Died:
    """The worker ended without an answer, or before it was asked; negative ``status`` is the signal
    that ended it.

    ``cause``: ``memory``, it used more than granted; ``harness``, its fork server had ended.
    """

    status: int
    log: str
    cause: Literal["", "memory", "harness"] = ""

    def __str__(self) -> str:
        if self.cause == "memory":
            return "killed for using more memory than a worker may"
        if self.cause == "harness":
            return "cut off: the fork server of its worker was killed"
        if self.status < 0:
            return f"killed by {_signal_name(-self.status)}"
        return f"exited with status {self.status} instead of answering"


@dataclass(frozen=True)
class TimedOut:
    """Stands for an answer that did not come within the deadline; the whole process group was
    killed."""

    limit_s: float
    log: str


@dataclass(frozen=True)
class Unreadable:
    """The worker answered, and not as such a request is answered; it was killed."""

    problem: str
    log: str

    def __str__(self) -> str:
        return f"answered in no form that is known: {self.problem}"


@dataclass(frozen=True)
class Unconfined:
    """There is no worker: the machine could not contain one. Said before it was asked anything."""

    problem: str
    log: str = ""

    def __str__(self) -> str:
        return self.problem


Lost = Failed | Died | TimedOut | Unreadable | Unconfined
Outcome = Answered[R] | Lost


def _signal_name(number: int) -> str:
    """The name of a signal; most of the real-time ones have none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@dataclass(frozen=True)
class End:
    """``gone``: its fork server had ended first, and nobody knows."""

    status: int = -signal.SIGKILL
    exhausted: bool = False
    gone: bool = False


class ForkServer:
    """One warm process per set of preloaded modules; started on first use and again when it has
    been killed, thread-safe. Its workers do not outlive it."""

    def __init__(self, preload: tuple[str, ...]) -> None:
        self._preload = preload
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._layers: Layers | None = None
        self._greeted = False  # the process that runs has said that it can take requests
        self._closed = False

    def begin(self) -> bool:
        """Start it if it does not run, without waiting for its imports; whether this did."""
        with self._lock, suppress(OSError):  # whoever needs it will be told
            if self._control is None and not self._closed:
                self._launch()
                return True
        return False

    @property
    def known_layers(self) -> Layers | None:
        """The layers of the jail; None before it was first started."""
        return self._layers

    @property
    def layers(self) -> Layers:
        """The layers that confine its workers."""
        with self._lock:
            if self._layers is None:
                self._ready()
            assert self._layers is not None
            return self._layers

    def spawn(
        self, policy: JailPolicy, environment: Mapping[str, str], handles: Sequence[int]
    ) -> tuple[int, int, socket.socket]:
        """The pids of a new worker and of its server, and the evaluator's end of its connection.
        ``handles``: of its memory, of its log, and of where it is given others."""
        ours, theirs = socket.socketpair()
        request = encoded({"spawn": {"policy": policy.to_json(), "environment": environment}})
        with ExitStack() as unless_spawned, theirs, self._lock:
            unless_spawned.callback(ours.close)
            # A server that was killed since the last request is noticed now.
            for _ in range(2):
                control = self._ready()
                reply = self._ask(control, request, [theirs.fileno(), *handles])
                if reply is not None and self._process is not None:
                    unless_spawned.pop_all()
                    return int(json.loads(reply)["pid"]), self._process.pid, ours
        raise WorkerError("The fork server ended twice; see the lines it printed above")

    def wait(self, pid: int, *, server: int) -> End:
        """How a worker of the server with this pid ended; it has been killed if it had not."""
        ours, theirs = socket.socketpair()
        with ours:
            with theirs, self._lock:
                if self._control is None or self._process is None or self._process.pid != server:
                    return End(gone=True)
                with suppress(OSError):  # it has ended: nothing will be read
                    socket.send_fds(self._control, [encoded({"wait": pid})], [theirs.fileno()])
            ours.settimeout(REPLY_S)  # others are started and waited for meanwhile
            try:
                reply = ours.recv(1 << 16)
            except OSError:
                reply = b""
        return End(**json.loads(reply)) if reply else End(gone=True)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._stop()

    def _ask(self, control: socket.socket, request: bytes, handles: list[int]) -> bytes | None:
        """The server's answer; None when the server is gone, and the next request needs another
        one."""
        try:
            socket.send_fds(control, [request], handles)
            reply = control.recv(1 << 16)
        except OSError:  # also when it takes too long
            reply = b""
        if not reply:
            self._stop(kill=True)
            return None
        return reply

    def _stop(self, *, kill: bool = False) -> None:
        if self._control is not None:
            self._control.close()  # the server ends when it reads this
        if self._process is not None:
            if kill or not self._greeted:  # one that still imports has no workers, and reads late
                self._process.kill()
            self._process.wait()
        self._control = self._process = None
        self._greeted = False

    def _ready(self) -> socket.socket:
        """The connection to a process that takes requests. It is started twice at most: whoever
        kills servers does not care how far they are."""
        if self._closed:
            raise WorkerError("This fork server was closed; ask for another")
        hello = b""
        for _ in range(2):
            control = self._control or self._launch()
            if self._greeted:
                return control
            with suppress(OSError):
                hello = control.recv(1 << 16)
            if hello:
                self._layers = Layers.from_json(json.loads(hello)["layers"])
                control.settimeout(REPLY_S)
                self._greeted = True
                return control
            self._stop(kill=True)
        raise WorkerError("The fork server did not start; see the lines it printed above")

    def _launch(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.settimeout(START_S)
        module, handle = "portkern.worker.forkserver", str(theirs.fileno())
        with ExitStack() as unless_launched, theirs:
            unless_launched.callback(ours.close)
            self._process = subprocess.Popen(  # -P: the folder it is started in has no modules
                [sys.executable, "-P", "-m", module, handle, *self._preload],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env={**SHORT_SPINS, **KEPT_MEMORY, **inherited()},
            )
            unless_launched.pop_all()
        self._control = ours
        return ours


_SERVERS: dict[tuple[str, ...], ForkServer] = {}
_SERVERS_LOCK = threading.Lock()


def server(preload: tuple[str, ...]) -> ForkServer:
    """The one for these modules; a new one after :func:`close_servers`."""
    with _SERVERS_LOCK:
        return _SERVERS.setdefault(preload, ForkServer(preload))


def warm(preload: tuple[str, ...]) -> None:
    """Start this server, and import its modules here, beside whatever is done meanwhile."""
    server(preload).begin()

    def work() -> None:
        with suppress(ImportError):  # whoever needs it will be told
            for module in preload:
                importlib.import_module(module)

    threading.Thread(target=work).start()  # an import must not be cut off by the end


def close_servers(*which: ForkServer) -> None:
    """Close these, or all there are."""
    with _SERVERS_LOCK:
        closing = [key for key, one in _SERVERS.items() if not which or one in which]
        for one in [_SERVERS.pop(key) for key in closing]:  # not used again if this fails
            one.close()


@contextmanager
def servers_of_own() -> Iterator[None]:
    """Servers that are begun within end with it. Those that were there before go on, so that what
    runs many commands in one process imports PyTorch for their workers once."""
    with _SERVERS_LOCK:
        before = set(_SERVERS.values())
    try:
        yield
    finally:
        with _SERVERS_LOCK:
            own = set(_SERVERS.values()) - before
        if own:
            close_servers(*own)


def layers() -> Layers:
    """The layers that confine workers on this machine, as any server that runs has found out."""
    with _SERVERS_LOCK:
        known = [running.known_layers for running in _SERVERS.values()]
    return next((value for value in known if value is not None), None) or server(()).layers


class Session:
    """One worker. A dead one answers no more: whoever asks it is told how it ended.

    It reads ``reads`` beside the system and Python, and ``copies`` by the paths of what they were
    copied from; it sees the GPUs if ``device``. With ``programs`` it runs those of others, and no
    code of theirs itself. Raises WorkerError or StorageError when there can be none.
    """

    def __init__(
        self,
        preload: tuple[str, ...],
        environment: Mapping[str, str],
        *,
        reads: Iterable[Path] = (),
        copies: Mapping[Path, Path] = MappingProxyType({}),
        device: bool = False,
        programs: bool = False,
    ) -> None:
        self.alive = False
        self.scratch = _scratch()
        self.memory = SharedMemory()
        self._log = os.memfd_create("portkern-log")
        fcntl.fcntl(self._log, fcntl.F_SETFL, os.O_APPEND)
        self._received = bytearray()
        self._confined = False
        self._server = server(preload)
        policy = JailPolicy(
            self.scratch, tuple(reads), device=device, programs=programs, copies=copies
        )
        # Its home is its scratch folder, so it is told where the evaluator's cache is now.
        environment = {
            **environment,
            **threads.environment({**os.environ, **environment}),
            "PORTKERN_CACHE_DIR": str(cache_root().absolute()),
        }
        self._handles, theirs = socket.socketpair()
        self._handles.settimeout(GRACE_S)
        try:
            with theirs:
                self.pid, self._server_pid, self._connection = self._server.spawn(
                    policy, environment, [self.memory.handle, self._log, theirs.fileno()]
                )
        except WorkerError:
            self.close()
            raise
        self.alive = True

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def ask(self, request: Request[R], *, timeout_s: float) -> Outcome[R]:
        """Send one request; the worker does not survive a missed deadline, nor an answer to what it
        was not asked."""
        if not self.alive:
            return self._died
        start = time.monotonic()
        line: bytes | None
        try:
            if (problem := self._unconfined(start + timeout_s)) is not None:
                return problem
            if self._has_said_more():
                return self._refuse("it answered what it was not asked")
            self._connection.settimeout(timeout_s)  # of a worker that reads nothing
            self._connection.sendall(request.line())
            line = self._receive(start + timeout_s)
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
        try:
            reply = _parse(line)
            if reply is None:
                return self._end(grace_s=GRACE_S)
            outcome = _outcome(request, reply)
        except FormError as error:
            return self._refuse(str(error))
        if self._received:
            return self._refuse("it answered more than once")
        if isinstance(outcome, Failed):
            return replace(outcome, after_s=time.monotonic() - start)
        return outcome

    def give(self, handle: int) -> None:
        """Pass a file handle, which the worker takes when a request speaks of it. Raises OSError
        where it is not alive."""
        socket.send_fds(self._handles, [b"h"], [handle])

    def _unconfined(self, deadline: float) -> Lost | None:
        """Why the worker is not confined, None when it is: its first line is portkern's own, which
        no code of others can have written. Raises TimeoutError."""
        if self._confined:
            return None
        line = self._receive(deadline)
        if line is None:
            raise TimeoutError
        try:
            reply = _parse(line)
            first = read(Confined, reply) if reply is not None else None
        except FormError as error:
            return self._refuse(str(error))
        if first is None or first.problem:
            died = self._end(grace_s=GRACE_S)
            return Unconfined(first.problem, died.log) if first else died
        self._confined = True
        return None

    def _has_said_more(self) -> bool:
        """Raises OSError when it has closed the connection."""
        if self._received:
            return True
        if not select.select([self._connection], [], [], 0)[0]:
            return False
        if not self._connection.recv(1):
            raise ConnectionResetError
        return True

    def _refuse(self, problem: str) -> Unreadable:
        self._end()
        return Unreadable(problem, self.log())

    def log(self) -> str:
        """The end of what the worker printed."""
        size = os.fstat(self._log).st_size
        return os.pread(self._log, LOG_TAIL, max(0, size - LOG_TAIL)).decode(errors="replace")

    def stop(self) -> None:
        """Kills it and does not wait until it is gone: :meth:`close` does."""
        if self.alive:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    def close(self) -> None:
        if self.alive:
            self._end()
        if self.memory.handle >= 0:
            os.close(self._log)
        self._handles.close()
        self.memory.close()
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
            place = chunk.find(b"\n")
            end = len(self._received) + place if place >= 0 else -1
            self._received += chunk
        line = bytes(self._received[:end] if end >= 0 else self._received)
        del self._received[: len(line) + 1]
        return line

    def _end(self, *, grace_s: float = 0.0) -> Died:
        """Kill all of it, and how the worker itself ended: by itself if it does in time."""
        self.alive = False
        with suppress(ProcessLookupError):
            process = os.pidfd_open(self.pid)
            select.select([process], [], [], grace_s)
            os.close(process)
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._connection.close()
        end = self._server.wait(self.pid, server=self._server_pid)
        cause: Literal["", "memory", "harness"] = "memory" if end.exhausted else ""
        self._died = Died(end.status, self.log(), "harness" if end.gone else cause)
        return self._died


def _scratch() -> Path:
    """A new folder that only its owner's death leaves behind."""
    called = owner.name()
    try:
        place = Path(tempfile.gettempdir())  # also an error when none can be written to
        _sweep(place)
        (place / called).mkdir(mode=0o700)
    except OSError as error:
        raise StorageError.of(error, Path(error.filename or "$TMPDIR")) from error
    return place / called


def pieces(text: str) -> tuple[str, ...]:
    """The parts of a text that may be longer than a text of a reply: joined they are the whole."""
    return tuple(text[at : at + TEXT_LENGTH] for at in range(0, len(text), TEXT_LENGTH))


@cache
def _sweep(place: Path) -> None:
    """Remove the folders of evaluators that were killed; once is enough."""
    for left in place.glob("portkern-*"):
        if owner.gone(left.name):
            shutil.rmtree(left, ignore_errors=True)


def _parse(line: bytes) -> dict[str, object] | None:
    """The object in a line; None for what is not a JSON object, as half a line is. Raises
    FormError."""
    try:
        reply = _kept(_JSON.decode(line.decode(errors="surrogatepass")), REPLY_LEVELS)
    except FormError:
        raise
    except (ValueError, RecursionError):  # of JSON that is nested too deeply
        return None
    return reply if isinstance(reply, dict) else None


def _refuse(constant: str) -> float:
    raise FormError(f"{constant} is not a number of JSON")


#: Made once: it takes longer than to read a short reply.
_JSON = json.JSONDecoder(parse_constant=_refuse)


def _kept(value: object, levels: int) -> object:
    """The value with texts that can be written as UTF-8 (JSON may name half a character) and are
    short enough for a record."""
    if levels == 0:
        raise ValueError("nested too deeply")
    if isinstance(value, float):
        return value  # first: there are many
    if isinstance(value, str):
        return value[:TEXT_LENGTH].encode(errors="replace").decode()
    if isinstance(value, list):
        return [_kept(item, levels - 1) for item in value]
    if isinstance(value, dict):
        return {_kept(key, 1): _kept(item, levels - 1) for key, item in value.items()}
    return value


def _outcome(request: Request[R], reply: dict[str, object]) -> Answered[R] | Failed:
    match reply:
        case {"ok": True, "reply": given}:
            return Answered(request.read(given))
        case {"ok": False, "reply": given}:
            return read(Failed, given)
    raise FormError(f"{brief(reply)} is not a reply")


def _remove(folder: Path) -> None:
    """A worker may have nested folders deeper than Python's own function reaches."""
    try:
        shutil.rmtree(folder, ignore_errors=True)
    except RecursionError:
        subprocess.run(["rm", "-rf", "--", folder], check=False)
