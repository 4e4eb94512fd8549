"""How many evaluations the machine's server does, how long clients wait, and what is left behind.
Adds a row to results/serving.jsonl, which is written anew as the run goes on and says whether it
``ended``: one that was killed has said how far it came.

    .venv/bin/python -m benchmarks.serving [clients=8] [evaluations=200] [hostile=0.0] [kills=0]
        [distinct=0] [limit_s=20] [places=cpu@x86_64] [timed=false] [seconds=0] [first=0] [group=1]

``hostile`` is the share of kernels that crash, hang, are wrong or break rules; each has the verdict
that it must get. ``kills`` of workers are spread over the run: a kernel whose worker was killed is
asked again. Clients also go away in the middle of a request, one in fifty. ``distinct``: so many
kernels are sent again and again, so that most need no compiler; 0: each is sent once. ``limit_s``:
seconds of a load or a call, which those that hang take as a whole. ``places``: where each kernel
must be right, with commas, such as hip@gfx942,hip@gfx1100,cuda@sm_90. After ``seconds`` no more
are sent; ``first`` is the number of the first kernel, by which a second run sends others.
``group`` kernels are asked for in one request, as the answers to one prompt are.
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
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import product
from pathlib import Path

import psutil

from benchmarks import _script
from portkern import ops
from portkern.cells.selection import SelectedCell
from portkern.evaluator.build import StageLimits
from portkern.evaluator.statistics import TimingPlan
from portkern.evaluator.trial import TrialOptions
from portkern.execution.plan import ExecutionPlan
from portkern.records import atomic_write
from portkern.records.record import RecordFile, Verdict
from portkern.serve import signature
from portkern.serve.address import PLANS
from portkern.serve.client import Client, ServerGone
from portkern.serve.job_queue import QueueFull
from portkern.spec import registry, target
from portkern.spec.candidate import Candidate
from portkern.toolchain import host

#: A plain softmax, by backend.
BODIES = {
    "cpu": """// {number}
#include <cmath>
#include <cstdint>
extern "C" int softmax(const scalar_t* x, scalar_t* y, int64_t rows, int64_t n) {{
    {first}
    for (int64_t row = 0; row < rows; ++row, x += n, y += n) {{
        float most = x[0], sum = 0;
        for (int64_t i = 1; i < n; ++i) most = x[i] > most || x[i] != x[i] ? x[i] : most;
        for (int64_t i = 0; i < n; ++i) sum += std::exp(x[i] - most);
        for (int64_t i = 0; i < n; ++i) y[i] = std::exp(x[i] - most) / sum;
    }}
    return 0;
}}
""",
    "gpu": """// {number}
#include <cstdint>
__global__ void of_row(const scalar_t* x, scalar_t* y, int64_t n) {{
    __shared__ float part[256];
    x += blockIdx.x * n, y += blockIdx.x * n;
    float most = x[0], sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += 256) most = most > x[i] ? most : x[i];
    part[threadIdx.x] = most;
    __syncthreads();
    for (int k = 128; k; k /= 2) {{
        if (threadIdx.x < k) part[threadIdx.x] = fmaxf(part[threadIdx.x], part[threadIdx.x + k]);
        __syncthreads();
    }}
    most = part[0];
    __syncthreads();
    for (int64_t i = threadIdx.x; i < n; i += 256) sum += expf(x[i] - most);
    part[threadIdx.x] = sum;
    __syncthreads();
    for (int k = 128; k; k /= 2) {{
        if (threadIdx.x < k) part[threadIdx.x] += part[threadIdx.x + k];
        __syncthreads();
    }}
    for (int64_t i = threadIdx.x; i < n; i += 256) y[i] = expf(x[i] - most) / part[0];
}}
extern "C" int softmax(const scalar_t* x, scalar_t* y, int64_t rows, int64_t n, STREAM stream) {{
    {first}
    of_row<<<rows, 256, 0, stream>>>(x, y, n);
    return 0;
}}
""",
}
STREAMS = {"hip": "hipStream_t", "cuda": "cudaStream_t"}
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
#: How often the server's memory is looked at while it works.
LOOKS = 20
RESULTS = _script.RESULTS / "serving.jsonl"
KNOWN = tuple(
    "clients evaluations hostile kills distinct limit_s places timed seconds first group".split()
)


@dataclass
class Tally:
    """``changed`` are kernels that did not get a verdict that they must get, one line each;
    ``seconds`` are of requests; ``curve`` is what there was after every so many evaluations."""

    every: int = 1
    evaluations: int = 0
    seconds: list[float] = field(default_factory=list)
    verdicts: Counter[str] = field(default_factory=Counter)
    changed: list[str] = field(default_factory=list)
    asked_again: int = 0
    killed: int = 0
    vanished: int = 0
    curve: list[dict[str, int]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(frozen=True)
class Load:
    """The load that the server is put under."""

    hostile: float
    distinct: int
    limit_s: float
    places: tuple[str, ...] = ("cpu@x86_64",)
    timed: bool = False
    seconds: float = 0.0
    first: int = 0
    group: int = 1


@dataclass(frozen=True)
class Sent:
    """A kernel: its number is in its source, and ``first`` is its first line."""

    number: int
    first: str

    @property
    def may_get(self) -> tuple[Verdict, ...]:
        return HOSTILE.get(self.first, (Verdict.PASSED,))


@dataclass(frozen=True)
class Footprint:
    """The memory of a server; ``of_all`` includes the processes that it started, whose shared pages
    count in each. ``plans`` and ``temporary`` are files that an idle server left."""

    megabytes: int
    of_all: int
    processes: int
    files: int
    plans: int
    temporary: int

    @classmethod
    def of(cls, process: psutil.Process, folder: Path) -> Footprint:
        own = [process, *process.children(recursive=True)]
        return cls(
            process.memory_info().rss >> 20,
            sum(map(rss, own)) >> 20,
            len(own),
            process.num_fds(),
            len(list((folder / "cache" / "plans").glob("*"))),
            len(list((folder / "tmp").rglob("*"))),
        )


def rss(process: psutil.Process) -> int:
    with suppress(psutil.Error):  # it has ended
        return int(process.memory_info().rss)
    return 0


def main() -> None:
    words = _script.words(KNOWN, __doc__)
    clients, count = int(words.get("clients", 8)), int(words.get("evaluations", 200))
    kills = int(words.get("kills", 0))
    tally = Tally(max(1, count // LOOKS))
    began = datetime.now(UTC).isoformat(timespec="microseconds")
    asked = Load(
        float(words.get("hostile", 0)),
        int(words.get("distinct", 0)),
        float(words.get("limit_s", 20)),
        tuple(words.get("places", "cpu@x86_64").split(",")),
        words.get("timed") == "true",
        float(words.get("seconds", 0)),
        int(words.get("first", 0)),
        int(words.get("group", 1)),
    )
    with tempfile.TemporaryDirectory() as box:
        folder = Path(box)
        with serving(folder) as server:
            warm(clients, asked)
            time.sleep(2)
            before, used = Footprint.of(server, folder), _script.processor_s(server)
            run = Soak(began, clients, asked, tally, before, time.monotonic())

            def look() -> Footprint:
                now = Footprint.of(server, folder)
                run.write(now, _script.processor_s(server) - used, ended=False)
                return now

            start = run.start
            with killing(server, kills, count, tally), ThreadPoolExecutor(clients) as pool:
                until = start + asked.seconds if asked.seconds else float("inf")
                numbers = range(asked.first, asked.first + count, asked.group)
                for done in [pool.submit(ask, n, asked, tally, look, until) for n in numbers]:
                    done.result()
            run.wall_s = time.monotonic() - start
            time.sleep(2)  # the last workers end
            used = _script.processor_s(server) - used
            after = Footprint.of(server, folder)
        kept = RecordFile(folder / "reports" / "serve" / "records.jsonl").read()[0]
    print(json.dumps(run.write(after, used, ended=True, records=len(kept)), indent=1))


@dataclass
class Soak:
    """A run that has begun; ``start`` is by the monotonic clock, ``wall_s`` 0 until it is over."""

    began: str
    clients: int
    asked: Load
    tally: Tally
    before: Footprint
    start: float
    wall_s: float = 0.0
    path: Path = RESULTS

    def write(
        self, after: Footprint, used: float, *, ended: bool, **more: object
    ) -> dict[str, object]:
        """Writes the run's row in place of what it had written so far. Called by one thread at a
        time."""
        tally, wall_s = self.tally, self.wall_s or time.monotonic() - self.start
        waited = sorted(tally.seconds)
        row = {
            "began": self.began,
            "ended": ended,
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": f"{len(os.sched_getaffinity(0))} of {os.cpu_count()} cores, "
            f"{host.cpu_name()}",
            "load": round(os.getloadavg()[0], 1),
            "clients": self.clients,
            "evaluations": tally.evaluations,
            **vars(self.asked),
            "kills": tally.killed,
            "asked_again": tally.asked_again,
            "vanished": tally.vanished,
            "wall_s": round(wall_s, 1),
            "per_minute": round(60 * tally.evaluations / wall_s, 1),
            "latency_s": {
                "median": round(statistics.median(waited), 2),
                "p95": round(waited[min(len(waited) - 1, int(0.95 * len(waited)))], 2),
            },
            "processor_s_each": round(used / tally.evaluations, 3),
            "verdicts": tally.verdicts,
            "changed": tally.changed,
            **more,
            "curve": tally.curve,
            "before": vars(self.before),
            "after": vars(after),
        }
        before = self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else []
        others = [line for line in before if json.loads(line).get("began") != self.began]
        atomic_write.write(self.path, "\n".join([*others, json.dumps(row)]) + "\n")
        return row


@contextmanager
def serving(folder: Path) -> Iterator[psutil.Process]:
    os.environ["PORTKERN_CACHE_DIR"] = str(folder / "cache")
    temporary = folder / "tmp"
    temporary.mkdir()
    folder.chmod(0o711)  # workers that are another user go through it, as they do through /tmp
    temporary.chmod(0o1777)
    own = {**os.environ, "TMPDIR": str(temporary)}
    command = [sys.executable, "-m", "portkern.cli", "serve", "json=true"]
    out = subprocess.PIPE
    with subprocess.Popen(command, cwd=folder, env=own, stdout=out, text=True) as process:
        try:
            assert process.stdout
            json.loads(process.stdout.readline())
            yield psutil.Process(process.pid)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def warm(clients: int, asked: Load) -> None:
    """Asks the server until it has made what it makes once."""
    with ThreadPoolExecutor(clients) as pool:
        honest = replace(asked, hostile=0.0, distinct=0, limit_s=60.0)
        for done in [pool.submit(ask, -1 - n, honest, Tally()) for n in range(2 * clients)]:
            done.result()


@contextmanager
def killing(server: psutil.Process, kills: int, count: int, tally: Tally) -> Iterator[None]:
    """Kills a process of a kernel now and then; not what they are forked from."""
    over = threading.Event()

    def kill() -> None:
        for number in range(1, kills + 1):
            while tally.evaluations < number * count / (kills + 1):
                if over.wait(0.05):
                    return
            with suppress(psutil.Error, IndexError):
                forkers = [p for p in server.children() if "forkserver" in " ".join(p.cmdline())]
                leaves = [one for p in forkers for one in p.children(recursive=True)]
                random.choice(leaves).kill()
                tally.killed += 1

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def ask(
    turn: int,
    asked: Load,
    tally: Tally,
    look: Callable[[], Footprint] | None = None,
    until: float = float("inf"),
) -> None:
    """A request for kernels of the two kinds, as one of the clients, until each has a verdict that
    it must get; five times at most."""
    if time.monotonic() > until:
        return
    client = Client.here()
    assert client, "the server does not answer"
    client = replace(client, name=threading.current_thread().name)
    kernels = [kernel_of(asked, n) for n in range(turn, turn + asked.group)]
    if turn > 0 and turn // asked.group % VANISHES == 0:
        vanish(client, plan_of(asked, kernels))
        with tally.lock:
            tally.vanished += 1
    start = time.monotonic()
    verdicts = dict.fromkeys(kernels, Verdict.UNAVAILABLE)
    for again in range(5):
        left = [each for each in kernels if verdicts[each] not in each.may_get]
        with tally.lock:
            tally.asked_again += len(left) if again else 0
        with suppress(QueueFull, ServerGone):
            verdicts |= judged(client, asked, left) if left else {}
    with tally.lock:
        looked = tally.evaluations // tally.every
        tally.evaluations += len(kernels)
        tally.seconds.append(time.monotonic() - start)
        for each in kernels:
            tally.verdicts[str(verdicts[each])] += 1
            if verdicts[each] not in each.may_get:
                tally.changed.append(f"{each.first or 'a plain kernel'}: {verdicts[each]}")
        if look and tally.evaluations // tally.every > looked:
            tally.curve.append({"after": tally.evaluations, **vars(look())})
            print(tally.curve[-1], flush=True)


def kernel_of(asked: Load, turn: int) -> Sent:
    number = turn % asked.distinct if asked.distinct and turn > 0 else turn
    drawn = random.Random(number)
    return Sent(number, drawn.choice([*HOSTILE]) if drawn.random() < asked.hostile else HONEST)


def judged(client: Client, asked: Load, kernels: Sequence[Sent]) -> dict[Sent, Verdict]:
    """The verdict of each: that of the first place where it did not pass, if there is one."""
    records = client.evaluate(plan_of(asked, kernels))
    places = len(asked.places)
    found = {}
    for at, each in enumerate(kernels):
        verdicts = [one.verdict for one in records[at * places : (at + 1) * places]]
        found[each] = max(verdicts, key=lambda one: one is not Verdict.PASSED)
    return found


def vanish(client: Client, plan: ExecutionPlan) -> None:
    """Sends a request and does not wait for its answer."""
    body = plan.to_json().encode()
    signed = signature.sign(client.at.key, "POST", PLANS, body)
    head = f"POST {PLANS} HTTP/1.1\r\nHost: here\r\n{signature.HEADER}: {signed}\r\n"
    with socket.create_connection((client.at.host, client.at.port)) as connection:
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)


def plan_of(asked: Load, kernels: Sequence[Sent]) -> ExecutionPlan:
    """Each kernel at all places."""
    op = ops.load("softmax")
    cells = []
    for each, place in product(kernels, asked.places):
        name, _, where = place.partition("@")
        backend = registry.load(name)
        body = BODIES["gpu" if name in STREAMS else name].replace("STREAM", STREAMS.get(name, ""))
        source = body.format(number=each.number, first=each.first)
        language = next(iter(backend.languages.values()))
        candidate = Candidate("softmax", name, language, source, "softmax")
        size = op.workloads["ci"][0]
        cells.append(
            SelectedCell(op, "ci", size, "float32", backend, target.load(where), candidate)
        )
    limits = StageLimits(60.0, asked.limit_s, asked.limit_s)
    timing = TimingPlan(rounds=3, budget_s=0.02, patient=False)
    return ExecutionPlan.of(cells, TrialOptions(limits, timing, timed=asked.timed), "soak")


if __name__ == "__main__":
    main()
