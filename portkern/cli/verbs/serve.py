"""``portkern serve``: one warm evaluator for all that is asked on this machine."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from portkern.cli import warm_process
from portkern.cli.config import resolve
from portkern.cli.verbs import run_folder
from portkern.errors import BackendUnavailable, ConfigError, StorageError, no_such
from portkern.execution.installation import Portkern
from portkern.printable import printable
from portkern.sandbox import threads
from portkern.serve import address, server, signature
from portkern.serve.client import Client
from portkern.serve.evaluation import Evaluation
from portkern.serve.job_queue import Limits
from portkern.serve.machine import Machine

ACTIONS = ("start", "status", "stop")


@dataclass
class ServeOptions:
    action: str = "start"
    host: str = "127.0.0.1"
    port: int = 0
    workers: int = 0
    waiting_per_client: int = 64
    waiting: int = 1024
    reports: str = "reports"
    run: str = "serve"
    json: bool = False


def main(overrides: Sequence[str]) -> int:
    named = [text if "=" in text else f"action={text}" for text in overrides]
    options = resolve("serve", ServeOptions, named)
    if options.action not in ACTIONS:
        raise no_such("action", options.action, ACTIONS)
    if options.action == "start":
        return _start(options)
    client = Client.whoever()
    if client is None:
        raise BackendUnavailable("No server runs; 'portkern serve' starts one")
    if options.action == "stop":
        client.stop()
    said = dict(client.status()) if options.action == "status" else {"stopping": True}
    for name, value in said.items() if not options.json else ():
        print(f"{name}: {printable(str(value))}")
    if options.json:
        print(json.dumps(said | {"exit_code": 0}))
    return 0


def _start(options: ServeOptions) -> int:
    folder = run_folder.run_folder(options.reports, options.run).absolute()
    workers = options.workers or len(os.sched_getaffinity(0))
    key = signature.new_key()
    chosen = server.Door(
        options.host,
        options.port,
        workers,
        Limits(options.waiting_per_client, options.waiting),
    )
    with _alone(), run_folder.writing(folder):
        threads.own_process()
        evaluation = Evaluation(folder, Machine(workers))
        running = server.evaluating(evaluation, key, chosen)
        at = address.ServerAddress(
            host=options.host,
            port=running.port,
            key=key,
            pid=os.getpid(),
            run=str(folder),
            portkern=str(Portkern.here()),
        )
        at.write()
        signal.signal(signal.SIGTERM, lambda *_: running.stop())
        _tell(options, at)
        try:
            with warm_process.beside(key):
                running.serve()
        finally:
            address.forget(at)
    return 0


def _tell(options: ServeOptions, at: address.ServerAddress) -> None:
    if options.json:
        said = {"host": at.host, "port": at.port, "pid": at.pid, "run": at.run}
        print(json.dumps(said), flush=True)
    else:
        print(f"portkern serves at {at.host}:{at.port}; records: {printable(at.run)}", flush=True)


@contextmanager
def _alone() -> Iterator[None]:
    """One server for each user's cache folder. Raises ConfigError."""
    from filelock import FileLock, Timeout

    path = address.lock()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError.of(error, path.parent) from error
    try:
        with FileLock(path).acquire(timeout=0):
            yield
    except Timeout:
        at = address.known()
        which = f"process {at.pid}, port {at.port}" if at else "it is just starting"
        raise ConfigError(
            f"A server runs already ({which}); 'portkern serve stop' ends it"
        ) from None
