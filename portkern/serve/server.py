"""The server's door: HTTP on the loopback, for requests that are signed.

Nothing of a request is trusted: bodies have a length and a limit, words are read by type, no path
in it is opened, and whoever says nothing for a while is let go.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import cast

from portkern.errors import ConfigError, PortkernError
from portkern.execution.installation import Portkern
from portkern.execution.plan import ExecutionPlan
from portkern.printable import printable
from portkern.records.record import Record
from portkern.serve import signature
from portkern.serve.address import CLIENT, PLANS, PRIORITY, STATUS, STOP
from portkern.serve.evaluation import Evaluation, check
from portkern.serve.job_queue import PRIORITIES, USUAL_PRIORITY, Job, JobQueue, Limits, QueueFull

#: The most bytes of a request; a plan with all its sources is far smaller.
MOST_BYTES = 32 << 20
#: Connections at once, seconds in which a request must have come, and after which it is looked
#: whether its client is still there.
MOST_CONNECTIONS, REQUEST_S, LOOK_S = 128, 30.0, 0.25
_MOST_NAME = 100


@dataclass(frozen=True)
class Door:
    """The options of a server's door: where it listens, and what it lets in."""

    host: str = "127.0.0.1"
    port: int = 0
    workers: int = 2
    limits: Limits = field(default_factory=Limits)
    most_bytes: int = MOST_BYTES


Evaluate = Callable[[ExecutionPlan], list[Record]]


class Counted:
    """Jobs that were done and how long they took; for the status."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.done = self.failed = 0
        self.seconds = 0.0

    def add(self, seconds: float, *, failed: bool) -> None:
        with self._lock:
            self.done += 1
            self.failed += failed
            self.seconds += seconds


class Server:
    """Listens when it is made; :meth:`serve` returns when it was stopped."""

    def __init__(
        self,
        evaluate: Evaluate,
        key: str,
        options: Door,
        *,
        run: str = "",
    ) -> None:
        self.options, self.run = options, run
        self.verifier = signature.Verifier(key)
        self.queue: JobQueue[ExecutionPlan, list[Record]] = JobQueue(options.limits)
        self.counted = Counted()
        self._evaluate = evaluate
        self._http = _Http((options.host, options.port), _Handler)
        self._http.server = self

    @property
    def port(self) -> int:
        return int(self._http.server_address[1])

    def serve(self) -> None:
        with ThreadPoolExecutor(self.options.workers, "job") as pool:
            for _ in range(self.options.workers):
                pool.submit(self._work)
            try:
                self._http.serve_forever(poll_interval=0.2)
            finally:
                self.queue.close()
                self._http.server_close()

    def stop(self) -> None:
        """Jobs that run come to their end; those that wait are cancelled."""
        threading.Thread(target=self._http.shutdown, daemon=True).start()

    def _work(self) -> None:
        while (job := self.queue.take()) is not None:
            start, failed = time.monotonic(), False
            try:
                job.answer.set_result(self._evaluate(job.asked))
            except Exception as error:  # noqa: BLE001 - a job's end must not be the worker's
                failed = True
                if not isinstance(error, PortkernError):  # the client is told no more than its line
                    sys.stderr.write(printable(traceback.format_exc()))
                job.answer.set_exception(error)
            self.counted.add(time.monotonic() - start, failed=failed)

    def status(self) -> dict[str, object]:
        return {
            "portkern": str(Portkern.here()),
            "run": self.run,
            "waiting": len(self.queue),
            "done": self.counted.done,
            "failed": self.counted.failed,
            "seconds": round(self.counted.seconds, 3),
        }


class _Http(ThreadingHTTPServer):
    """One thread for each connection, of which there are so many at most."""

    daemon_threads = True
    request_queue_size = 128
    server: Server

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._places = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self._own = threading.local()
        super().__init__(address, handler)

    def process_request(self, request: object, client_address: object) -> None:
        """Answers a connection, or closes it at once when all places are taken."""
        if self._places.acquire(blocking=False):
            try:
                super().process_request(request, client_address)  # type: ignore[arg-type]
            except BaseException:  # there is no thread for it that would give its place back
                self._places.release()
                raise
        else:
            self.shutdown_request(request)  # type: ignore[arg-type]

    def process_request_thread(self, request: object, client_address: object) -> None:
        try:
            super().process_request_thread(request, client_address)  # type: ignore[arg-type]
        finally:
            self.known()

    def known(self) -> None:
        """Gives back the place of this thread's connection: whose signature is right waits by the
        limits of the queue."""
        if not getattr(self._own, "known", False):
            self._own.known = True
            self._places.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away in the middle is nothing to be told of."""


class _Refused(PortkernError):
    """A request that is not taken."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


class _Vanished(Exception):
    """The client has closed its connection."""


class _Handler(BaseHTTPRequestHandler):
    server_version, sys_version = "portkern", ""
    protocol_version = "HTTP/1.1"
    timeout = REQUEST_S  # of each read; of all of them, _late

    def setup(self) -> None:
        super().setup()
        self._late = threading.Timer(REQUEST_S, self._let_go)
        self._late.start()

    def finish(self) -> None:
        self._late.cancel()
        super().finish()

    def _let_go(self) -> None:
        """Ends what is still read of a request."""
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RD)

    @property
    def _owner(self) -> Server:
        return cast(_Http, self.server).server

    def do_GET(self) -> None:
        self._answered(self._get)

    def do_POST(self) -> None:
        self._answered(self._post)

    def log_message(self, *_: object) -> None:
        """Logs nothing: records are what is kept."""

    def _answered(self, work: Callable[[bytes], Mapping[str, object]]) -> None:
        self.close_connection = True  # one request each: what follows it is not read
        try:
            header = self.headers.get(signature.HEADER, "")
            refused = self._owner.verifier.refusal(header, self.command, self.path)
            if refused:
                raise _Refused(HTTPStatus.UNAUTHORIZED, f"Not taken: {refused}")
            body = self._body()
            if not signature.is_of(header, body):
                raise _Refused(HTTPStatus.UNAUTHORIZED, "Not taken: its body was altered")
            self._late.cancel()
            cast(_Http, self.server).known()
            self._send(HTTPStatus.OK, work(body))
        except _Vanished:
            return
        except _Refused as error:
            self._send(error.status, _told(error))
        except QueueFull as error:
            self._send(HTTPStatus.TOO_MANY_REQUESTS, _told(error))
        except PortkernError as error:
            self._send(HTTPStatus.BAD_REQUEST, _told(error))
        except Exception as error:  # noqa: BLE001 - a job that ended as nobody foresaw
            what = f"the server failed: {type(error).__name__}: {error}"
            self._send(HTTPStatus.INTERNAL_SERVER_ERROR, {"error": printable(what)})

    def _body(self) -> bytes:
        """The body of a request, within its limit and whole within its time."""
        if self.headers.get("Transfer-Encoding"):
            raise _Refused(HTTPStatus.LENGTH_REQUIRED, "Expected a body with its Content-Length")
        said = self.headers.get("Content-Length", "0")
        most = self._owner.options.most_bytes
        if not said.isascii() or not said.isdigit() or len(said) > 18:
            raise _Refused(HTTPStatus.BAD_REQUEST, "Expected a number as Content-Length")
        if int(said) > most:
            raise _Refused(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"Got {int(said)} bytes, expected at most {most}; ask for fewer kernels at once",
            )
        left, parts, until = int(said), list[bytes](), time.monotonic() + REQUEST_S
        while left:
            try:
                part = self.rfile.read1(min(left, 1 << 16))
            except OSError as error:
                raise _Vanished from error
            if not part or time.monotonic() > until:
                raise _Vanished
            parts.append(part)
            left -= len(part)
        return b"".join(parts)

    def _get(self, body: bytes) -> Mapping[str, object]:
        if self.path != STATUS:
            raise _Refused(HTTPStatus.NOT_FOUND, f"Nothing here; {STATUS} says how the server is")
        return self._owner.status()

    def _post(self, body: bytes) -> Mapping[str, object]:
        if self.path == STOP:
            self._owner.stop()
            return {"stopping": True}
        if self.path != PLANS:
            raise _Refused(HTTPStatus.NOT_FOUND, f"Nothing here; {PLANS} takes plans")
        try:
            text = body.decode()
        except UnicodeDecodeError as error:
            raise ConfigError(f"The request is not UTF-8: {error.reason}") from error
        plan = ExecutionPlan.parse(text, "the request")
        check(plan)
        job: Job[ExecutionPlan, list[Record]] = Job(self._client(), self._priority(), plan)
        self._owner.queue.put(job)
        records = self._wait(job.answer)
        return {"records": [record.document() for record in records]}

    def _client(self) -> str:
        """The client's name for itself, by which limits and turns are counted."""
        return printable(self.headers.get(CLIENT, ""))[:_MOST_NAME]

    def _priority(self) -> int:
        said = self.headers.get(PRIORITY, str(USUAL_PRIORITY))
        if said not in map(str, PRIORITIES):
            raise ConfigError(f"Got {PRIORITY}: {said[:20]!r}, expected 0 to {PRIORITIES[-1]}")
        return int(said)

    def _wait(self, answer: Future[list[Record]]) -> list[Record]:
        """Waits for the records. What no longer has a client is not begun; what has begun ends, and
        its records are kept."""
        while True:
            try:
                answer.exception(timeout=LOOK_S)  # which raises of itself alone
                break
            except NotYet:
                if self._gone():
                    answer.cancel()
                    raise _Vanished from None
            except CancelledError:
                raise QueueFull("The server is ending; start it again") from None
        return answer.result()

    def _gone(self) -> bool:
        with suppress(OSError):
            readable, _, _ = select.select([self.connection], [], [], 0)
            return bool(readable) and not self.connection.recv(1, socket.MSG_PEEK)
        return True

    def _send(self, status: HTTPStatus, document: Mapping[str, object]) -> None:
        content = json.dumps(document).encode()
        with suppress(OSError):
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Connection", "close")
            asked = self.headers.get(signature.HEADER, "")
            self.send_header(signature.ANSWER, self._owner.verifier.answer(asked, status, content))
            self.end_headers()
            self.wfile.write(content)


def _told(error: PortkernError) -> dict[str, object]:
    return {"error": printable(str(error)), "exit_code": error.exit_code}


def evaluating(evaluation: Evaluation, key: str, options: Door) -> Server:
    return Server(evaluation.evaluate, key, options, run=str(evaluation.folder))
