"""How many evaluations the machine's server does, how long clients wait, and what is left behind.
Adds a row to results/serving.jsonl.

    .venv/bin/python -m benchmarks.serving [clients=8] [evaluations=200] [hostile=0.0] [kills=0]

``hostile`` is the share of kernels that crash, hang, are wrong or break rules; each has the verdict
that it must get. ``kills`` of workers are spread over the run: a kernel whose worker was killed is
asked again. Clients also go away in the middle of a request, one in fifty.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import psutil

from benchmarks import _script
from portkern import ops
from portkern.cells.selection import Cell
from portkern.evaluator.build import StageLimits
from portkern.evaluator.statistics import TimingPlan
from portkern.evaluator.trial import TrialOptions
from portkern.execution.plan import Plan
from portkern.records.record import RecordFile, Verdict
from portkern.serve import signature
from portkern.serve.address import PLANS
from portkern.serve.client import Client, ServerGone
from portkern.serve.job_queue import QueueFull
from portkern.spec import registry, target
from portkern.spec.candidate import Candidate
from portkern.toolchain import host

BODY = """// {number}
#include <cstdint>
extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n) {{
    {first}
    for (int64_t i = 0; i < n; ++i) y[i] = x[i] > 0 || x[i] != x[i] ? x[i] : 0;
    return 0;
}}
"""
HONEST = ""
#: The first line of a kernel, and the verdicts that it may get.
HOSTILE = {
    "y[0] = *(volatile scalar_t*)nullptr;": (Verdict.CRASHED,),
    "for (volatile int forever = 1; forever;) {}": (Verdict.TIMED_OUT,),
    "n -= 1;": (Verdict.WRONG,),
    "return 1;": (Verdict.CRASHED, Verdict.WRONG),
    "while (true) new char[1 << 20]();": (Verdict.CRASHED, Verdict.TIMED_OUT),
    'system("id");': (Verdict.REJECTED, Verdict.BUILD_FAILED),
}
#: A client goes away in the middle of one request in so many.
VANISHES = 50
#: Seconds of a load or a call.
LIMIT_S = 20.0
RESULTS = _script.RESULTS / "serving.jsonl"


@dataclass
class Tally:
    """``changed`` are kernels that did not get a verdict that they must get, one line each."""

    seconds: list[float] = field(default_factory=list)
    verdicts: Counter[str] = field(default_factory=Counter)
    changed: list[str] = field(default_factory=list)
    asked_again: int = 0
    vanished: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(frozen=True)
class Footprint:
    """What a server takes that has nothing to do."""

    megabytes: int
    processes: int
    files: int
    plans: int

    @classmethod
    def of(cls, process: psutil.Process, cache: Path) -> Footprint:
        own = [process, *process.children(recursive=True)]
        return cls(
            process.memory_info().rss >> 20,
            len(own),
            process.num_fds(),
            len(list((cache / "plans").glob("*"))),
        )


def main() -> None:
    words = _script.words(("clients", "evaluations", "hostile", "kills"), __doc__)
    clients, count = int(words.get("clients", 8)), int(words.get("evaluations", 200))
    hostile, kills = float(words.get("hostile", 0)), int(words.get("kills", 0))
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder)) as server:
        cache = Path(folder, "cache")
        warm(clients)
        before, start = Footprint.of(server, cache), time.monotonic()
        tally = Tally()
        with killing(server, kills, count, tally), ThreadPoolExecutor(clients) as pool:
            for done in [pool.submit(ask, number, hostile, tally) for number in range(count)]:
                done.result()
        wall_s = time.monotonic() - start
        time.sleep(2)  # the last workers end
        after = Footprint.of(server, cache)
        kept = RecordFile(Path(folder, "reports", "serve", "records.jsonl")).read()[0]
    row = {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{os.cpu_count()} cores, {host.cpu_name()}",
        "load": round(os.getloadavg()[0], 1),
        "clients": clients,
        "evaluations": len(tally.seconds),
        "hostile": hostile,
        "kills": kills,
        "asked_again": tally.asked_again,
        "vanished": tally.vanished,
        "per_minute": round(60 * len(tally.seconds) / wall_s, 1),
        "latency_s": {
            "median": round(statistics.median(tally.seconds), 2),
            "p95": round(statistics.quantiles(tally.seconds, n=20)[-1], 2),
        },
        "verdicts": tally.verdicts,
        "changed": tally.changed,
        "records": len(kept),
        "before": vars(before),
        "after": vars(after),
    }
    with RESULTS.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
    print(json.dumps(row, indent=1))


@contextmanager
def serving(folder: Path) -> Iterator[psutil.Process]:
    os.environ["PORTKERN_CACHE_DIR"] = str(folder / "cache")
    command = [sys.executable, "-m", "portkern.cli", "serve", "json=true"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            json.loads(process.stdout.readline())
            yield psutil.Process(process.pid)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def warm(clients: int) -> None:
    """Asks the server until it has made what it makes once."""
    with ThreadPoolExecutor(clients) as pool:
        for done in [pool.submit(ask, -1 - n, 0.0, Tally()) for n in range(2 * clients)]:
            done.result()


@contextmanager
def killing(server: psutil.Process, kills: int, count: int, tally: Tally) -> Iterator[None]:
    """Kills a process of a kernel now and then; not what they are forked from."""
    over = threading.Event()

    def kill() -> None:
        for number in range(1, kills + 1):
            while len(tally.seconds) < number * count / (kills + 1) and not over.wait(0.05):
                pass
            with suppress(psutil.Error, IndexError):
                forkers = [p for p in server.children() if "forkserver" in " ".join(p.cmdline())]
                leaves = [one for p in forkers for one in p.children(recursive=True)]
                random.choice(leaves).kill()

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def ask(number: int, hostile: float, tally: Tally) -> None:
    """One kernel of the two kinds, as one of the clients, until it has a verdict."""
    drawn = random.Random(number)
    first = drawn.choice([*HOSTILE]) if drawn.random() < hostile else HONEST
    client = Client.here()
    assert client, "the server does not answer"
    client = replace(client, name=threading.current_thread().name)
    plan = plan_of(BODY.format(number=number, first=first))
    if number > 0 and number % VANISHES == 0:
        vanish(client, plan)
        with tally.lock:
            tally.vanished += 1
    start = time.monotonic()
    verdict = Verdict.UNAVAILABLE
    for _ in range(5):
        with suppress(QueueFull, ServerGone):
            verdict = client.evaluate(plan)[0].verdict
        if verdict in HOSTILE.get(first, (Verdict.PASSED,)):
            break
        with tally.lock:
            tally.asked_again += 1
    with tally.lock:
        tally.seconds.append(time.monotonic() - start)
        tally.verdicts[str(verdict)] += 1
        if verdict not in HOSTILE.get(first, (Verdict.PASSED,)):
            tally.changed.append(f"{first or 'a plain kernel'}: {verdict}")


def vanish(client: Client, plan: Plan) -> None:
    """Sends a request and does not wait for its answer."""
    body = plan.to_json().encode()
    signed = signature.sign(client.at.key, "POST", PLANS, body)
    head = f"POST {PLANS} HTTP/1.1\r\nHost: here\r\n{signature.HEADER}: {signed}\r\n"
    with socket.create_connection((client.at.host, client.at.port)) as connection:
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)


def plan_of(source: str) -> Plan:
    op, backend = ops.load("relu"), registry.load("cpu")
    candidate = Candidate("relu", "cpu", backend.languages[".cpp"], source, "relu")
    size, place = op.workloads["ci"][0], target.load("x86_64")
    cell = Cell(op, "ci", size, "float32", backend, place, candidate)
    limits = StageLimits(60.0, LIMIT_S, LIMIT_S)
    return Plan.of([cell], TrialOptions(limits, TimingPlan(patient=False), timed=False), "soak")


if __name__ == "__main__":
    main()
