"""One warm evaluator for all commands of a machine: its door, its queue, and what it keeps."""

from __future__ import annotations

import json
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from portkern.cells.selection import SelectedCell
from portkern.cli import main
from portkern.errors import ConfigError, StorageError, WorkerError
from portkern.evaluator.build import StageLimits
from portkern.evaluator.statistics import TimingPlan
from portkern.evaluator.trial import TrialOptions
from portkern.execution.installation import Portkern
from portkern.execution.plan import ExecutionPlan
from portkern.learn.rewards import Unavailable
from portkern.records.record import Record, RecordFile, Verdict
from portkern.sandbox import threads
from portkern.sandbox.message import Failed
from portkern.sandbox.session import Session
from portkern.serve import address, evaluation, server, signature
from portkern.serve.address import PLANS, STATUS, ServerAddress
from portkern.serve.client import Client, ServerFailed, ServerGone
from portkern.serve.job_queue import Job, JobQueue, Limits, QueueFull
from portkern.serve.machine import Machine
from portkern.worker.protocol import Reference
from tests.llm_server import MODEL
from tests.llm_server import Server as LanguageModel
from tests.report_records import make

RELU = """#include <cstdint>
extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) y[i] = x[i] > 0 || x[i] != x[i] ? x[i] : 0;
    return 0;
}
"""
KEY = signature.new_key()


# Signatures


def test_a_request_is_taken_once_and_only_as_it_was_signed() -> None:
    now = [1000.0]
    verifier = signature.Verifier(KEY, lambda: now[0])
    said = signature.sign(KEY, "POST", PLANS, b"body", now=now[0])
    assert signature.is_of(said, b"body") and not signature.is_of(said, b"other")
    assert "wrong" in verifier.refusal(said, "POST", STATUS)
    assert verifier.refusal(said, "POST", PLANS) == ""
    assert "before" in verifier.refusal(said, "POST", PLANS)
    other = signature.sign(signature.new_key(), "POST", PLANS, b"body", now=now[0])
    assert "wrong" in verifier.refusal(other, "POST", PLANS)
    for nonsense in ("", "Bearer abc", "Portkern x y z", said + " "):
        assert "not signed" in verifier.refusal(nonsense, "POST", PLANS)


@pytest.mark.parametrize("later", [signature.VALID_S + 1, -signature.VALID_S - 1, 1e9])
def test_a_signature_of_another_time_is_not_taken(later: float) -> None:
    said = signature.sign(KEY, "GET", STATUS, b"", now=1000.0)
    assert "ago" in signature.Verifier(KEY, lambda: 1000.0 + later).refusal(said, "GET", STATUS)


def test_a_request_cannot_be_sent_again_before_its_signature_ends() -> None:
    now = [1000.0]
    verifier = signature.Verifier(KEY, lambda: now[0])
    said = signature.sign(KEY, "GET", STATUS, b"", now=1000.0 + signature.VALID_S)
    assert verifier.refusal(said, "GET", STATUS) == ""
    now[0] += 2 * signature.VALID_S - 1
    assert "before" in verifier.refusal(said, "GET", STATUS)


def test_an_answer_is_believed_for_its_own_request_alone() -> None:
    request = signature.sign(KEY, "GET", STATUS, b"", now=1000.0)
    other = signature.sign(KEY, "GET", STATUS, b"", now=1000.0)
    right = signature.answer(KEY, request, 200, b"{}")
    assert right == signature.Verifier(KEY).answer(request, 200, b"{}")
    wrong = [
        signature.answer(signature.new_key(), request, 200, b"{}"),
        signature.answer(KEY, other, 200, b"{}"),
        signature.answer(KEY, request, 503, b"{}"),
        signature.answer(KEY, request, 200, b"[]"),
    ]
    assert right not in wrong


class Imposter(BaseHTTPRequestHandler):
    """A program that has got the port that a server had."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_somebody_else_at_the_servers_port_is_not_believed() -> None:
    with HTTPServer(("127.0.0.1", 0), Imposter) as imposter:
        threading.Thread(target=imposter.serve_forever, daemon=True).start()
        port = imposter.server_port
        at = ServerAddress(host="127.0.0.1", port=port, key=KEY, pid=0, run="", portkern="")
        client = Client(at)
        with pytest.raises(ServerGone):
            client.status()
        imposter.shutdown()


# The queue and the machine


def job(client: str, priority: int = 5) -> Job[str, str]:
    return Job(client, priority, client)


def test_urgent_jobs_come_first_and_clients_take_turns() -> None:
    queue: JobQueue[str, str] = JobQueue(Limits())
    for one in (job("a"), job("a"), job("a"), job("b"), job("c", 9)):
        queue.put(one)
    taken = [queue.take() for _ in range(5)]
    assert [one.client for one in taken if one] == ["c", "a", "b", "a", "a"]


def test_a_flood_of_one_client_leaves_room_for_others() -> None:
    queue: JobQueue[str, str] = JobQueue(Limits(per_client=2, total=3))
    queue.put(job("a"))
    queue.put(job("a"))
    with pytest.raises(QueueFull, match="of this client"):
        queue.put(job("a"))
    queue.put(job("b"))
    with pytest.raises(QueueFull, match="wait already"):
        queue.put(job("c"))


def test_a_job_that_is_cancelled_makes_room_and_is_not_begun() -> None:
    queue: JobQueue[str, str] = JobQueue(Limits(per_client=1))
    gone, next_one = job("a"), job("a")
    queue.put(gone)
    gone.answer.cancel()
    queue.put(next_one)
    assert queue.take() is next_one


@pytest.mark.parametrize(
    ("jobs", "processors", "set_", "given"),
    [
        (1, 48, "", None),
        (4, 48, "", "12"),
        (44, 48, "", "2"),  # not one: a kernel's threads would not disturb each other
        (44, 48, "1", None),
        (44, 48, "64", "2"),
        (5, 2, "", None),
        (2, 48, "four", "24"),
    ],
)
def test_threads_of_a_worker_are_its_jobs_part_of_the_processors(
    jobs: int, processors: int, set_: str, given: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(processors)))
    monkeypatch.setattr(threads, "_jobs", jobs)
    told = threads.environment({"OMP_NUM_THREADS": set_})
    assert told.get("OMP_NUM_THREADS") == told.get("NUMBA_NUM_THREADS") == given


def test_a_worker_beside_others_has_its_part_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    source = "import torch\nraise KeyError(torch.get_num_threads())\n"
    monkeypatch.setattr(threads, "LEAST", 1)
    monkeypatch.setattr(threads, "_jobs", len(os.sched_getaffinity(0)))
    with Session(("torch",), {}) as opened:
        outcome = opened.ask(Reference(source, device="cpu", compiled=False), timeout_s=60)
    assert isinstance(outcome, Failed)
    assert outcome.message == "1"


def test_jobs_are_told_how_many_they_are() -> None:
    told: list[int] = []
    machine = Machine(4, told.append)
    with machine.shared(), machine.shared(), machine.shared():
        pass
    with machine.alone():
        pass
    assert told == [1, 2, 3, 1]


def test_who_is_alone_on_the_machine_is_alone() -> None:
    machine, log = Machine(2), list[str]()

    def shared(_: int) -> None:
        with machine.shared():
            log.append("in")
            time.sleep(0.002)
            log.append("out")

    def alone(_: int) -> None:
        with machine.alone():
            log.append("alone")
            time.sleep(0.002)
            log.append("done")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: (alone if n % 3 == 0 else shared)(n), range(24)))
    inside = 0
    for before, what in zip(["", *log], log, strict=False):
        inside += {"in": 1, "out": -1}.get(what, 0)
        assert inside <= 2
        assert what != "alone" or inside == 0
        assert before != "alone" or what == "done"
    assert log.count("alone") == 8


# The door


def cells(source: str = RELU) -> list[SelectedCell]:
    from portkern.cells.selection import Selection
    from portkern.spec import registry
    from portkern.spec.candidate import Candidate

    class One:
        name = "one"

        def candidates(self, op: str, backend: object) -> list[Candidate]:
            return [Candidate(op, "cpu", "c++", source, entry=op)]

    assert registry.load("cpu")
    return Selection(["relu"], ["x86_64"], ["cpu"], ["ci"], ["float32"], kernels=One()).cells()


def plan(run: str = "mine", source: str = RELU) -> ExecutionPlan:
    return ExecutionPlan.of(cells(source), TrialOptions(), run)


@contextmanager
def running(work: server.Evaluate, **options: object) -> Iterator[Client]:
    chosen = server.Door(workers=1, **options)  # type: ignore[arg-type]
    own = server.Server(work, KEY, chosen, run="serve")
    thread = threading.Thread(target=own.serve)
    thread.start()
    at = ServerAddress(host="127.0.0.1", port=own.port, key=KEY, pid=0, run="", portkern="")
    try:
        yield Client(at, "test")
    finally:
        own.stop()
        thread.join()


def answers(asked: ExecutionPlan) -> list[Record]:
    return [make(run="serve") for _ in asked.cells]


def said(client: Client, request: bytes, *, wait: bool = True) -> bytes:
    """The answer to bytes that are sent as they are."""
    with socket.create_connection((client.at.host, client.at.port), timeout=10) as link:
        link.sendall(request)
        return b"".join(iter(lambda: link.recv(1 << 16), b"")) if wait else b""


def signed(method: str, path: str, body: bytes = b"", length: str = "") -> bytes:
    lines = [
        f"{method} {path} HTTP/1.1",
        f"Authorization: {signature.sign(KEY, method, path, body)}",
        f"Content-Length: {length or len(body)}",
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


def test_records_come_back_under_the_clients_run() -> None:
    with running(answers) as client:
        asked = plan()
        records = client.evaluate(asked)
        assert {record.run for record in records} == {"mine"}
        assert len(records) == len(asked.cells)
        assert client.status()["done"] == 1


@pytest.mark.parametrize(
    ("method", "path", "body", "length", "status"),
    [
        ("GET", "/../../../etc/passwd", b"", "", b"404"),
        ("GET", "/v1/plans/../status", b"", "", b"404"),
        ("POST", STATUS, b"", "", b"404"),
        ("POST", PLANS, b"{}", "", b"400"),
        ("POST", PLANS, b"\xff\xfe", "", b"400"),
        ("POST", PLANS, b"[" * 100_000, "", b"400"),
        ("POST", PLANS, b"", str(1 << 30), b"413"),
        ("POST", PLANS, b"", "9" * 400, b"400"),
        ("POST", PLANS, b"", "-1", b"400"),
        ("POST", PLANS, b"", "1e3", b"400"),
    ],
)
def test_what_is_signed_and_is_not_a_request_for_something_that_is_there_is_refused(
    method: str, path: str, body: bytes, length: str, status: bytes
) -> None:
    with running(answers) as client:
        assert said(client, signed(method, path, body, length)).split()[1] == status
        assert client.status()["done"] == 0


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /v1/status HTTP/1.1\r\n\r\n", b"401"),
        (b"GET /../../../etc/passwd HTTP/1.1\r\n\r\n", b"401"),
        (b"POST /v1/plans HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", b"401"),
        (b"BREW /pot HTTP/1.1\r\n\r\n", b"501"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"400"),
        (b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\n\r\n", b"414"),
    ],
)
def test_what_is_not_signed_is_refused(request_: bytes, status: bytes) -> None:
    with running(answers) as client:
        assert status in said(client, request_)[:500]
        assert client.status()["done"] == 0


def test_a_plan_of_another_version_and_one_with_facts_of_its_own_are_refused() -> None:
    asked = plan()
    other = asked.portkern.model_copy(update={"evaluator": "0" * 12})
    with pytest.raises(ConfigError, match="The request was made by"):
        evaluation.check(asked.model_copy(update={"portkern": other}))
    place = asked.targets["x86_64"].model_copy(update={"cpu_flags": ["evil"]})
    with pytest.raises(ConfigError, match="other facts"):
        evaluation.check(asked.model_copy(update={"targets": {"x86_64": place}}))
    with pytest.raises(ConfigError, match="cells"):
        evaluation.check(asked.model_copy(update={"cells": asked.cells * 1_000}))


def test_what_a_client_may_ask_for_has_limits() -> None:
    asked = plan().trial_options
    greedy = replace(asked, limits=StageLimits(1e9, 1e9, 1e9))
    assert evaluation.bounded(greedy).limits.run_s == evaluation.MOST_STAGE_S
    assert not evaluation.bounded(greedy).plan.patient


@pytest.mark.parametrize("odd", [math.nan, math.inf, -1.0, 2.0**60])
def test_odd_limits_of_a_client_become_the_servers(odd: float) -> None:
    timing = TimingPlan(rounds=1 << 40, budget_s=odd, burst_s=odd, half_width=odd, slow_s=odd)
    limits = StageLimits(odd, odd, odd)
    given = evaluation.bounded(replace(plan().trial_options, limits=limits, plan=timing))
    stages = (given.limits.build_s, given.limits.load_s, given.limits.run_s)
    assert stages == (evaluation.MOST_STAGE_S,) * 3
    assert given.plan.budget_s == evaluation.MOST_BUDGET_S
    usual = TimingPlan()
    assert (given.plan.burst_s, given.plan.half_width) == (usual.burst_s, usual.half_width)


def test_a_job_whose_client_went_away_is_not_begun() -> None:
    begun, go_on = list[str](), threading.Event()

    def slow(asked: ExecutionPlan) -> list[Record]:
        begun.append(asked.run)
        go_on.wait()
        return answers(asked)

    with running(slow) as client, ThreadPoolExecutor(2) as pool:
        first = pool.submit(client.evaluate, plan("first"))
        wait_for(lambda: begun == ["first"])
        body = plan("second").to_json().encode()
        said(client, signed("POST", PLANS, body), wait=False)
        wait_for(lambda: client.status()["waiting"] == 1)
        third = pool.submit(client.evaluate, plan("third"))
        wait_for(lambda: client.status()["waiting"] == 2)
        time.sleep(3 * server.LOOK_S)
        go_on.set()
        assert first.result() and third.result()
    assert begun == ["first", "third"]


def wait_for(condition: object) -> None:
    assert callable(condition)
    while not condition():
        time.sleep(0.01)


@pytest.mark.parametrize(
    "error", [RuntimeError("odd"), StorageError("no space left"), WorkerError("none starts")]
)
def test_a_job_that_fails_costs_no_other_and_no_kernel_a_reward(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(asked: ExecutionPlan) -> list[Record]:
        if asked.run == "bad":
            raise error
        return answers(asked)

    monkeypatch.setenv("PORTKERN_CACHE_DIR", str(tmp_path / "cache"))
    with running(work) as client:
        with pytest.raises(ServerFailed, match=str(error)):
            client.evaluate(plan("bad"))
        client.at.model_copy(update={"portkern": str(Portkern.here())}).write()
        pytest.importorskip("gymnasium", reason="the package gymnasium is not installed")
        from portkern.env.judge import Judge

        with pytest.raises(Unavailable, match=f"No reward: .*{error}"):
            Judge(tmp_path / "bad", timed=False).records(cells())
        assert client.evaluate(plan("good"))


def test_an_error_that_quotes_a_kernel_sends_a_terminal_no_commands(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def work(asked: ExecutionPlan) -> list[Record]:
        raise RuntimeError("\x1b[2Jit is done")

    with running(work) as client, pytest.raises(ServerFailed):
        client.evaluate(plan("bad"))
    told = capsys.readouterr().err
    assert "RuntimeError: it is done" in told and "\x1b" not in told


def test_who_says_nothing_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "REQUEST_S", 0.3)
    monkeypatch.setattr(server._Handler, "timeout", 0.3)
    with running(answers) as client:
        for begun in (b"POST /v1/plans HT", signed("POST", PLANS, b"{", length="99")):
            assert b"200" not in said(client, begun)
        assert client.evaluate(plan())


def test_a_connection_for_which_there_is_no_thread_costs_no_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where a machine has no threads left for a while, the server is not deaf for ever."""
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 2)
    start = threading.Thread.start

    def none(thread: threading.Thread) -> None:
        if "process_request_thread" in repr(getattr(thread, "_target", None)):
            raise RuntimeError("can't start new thread")
        start(thread)

    with running(answers) as client:
        with monkeypatch.context() as without:
            without.setattr(threading.Thread, "start", none)
            for _ in range(5):
                with suppress(ConnectionError):
                    assert not said(client, signed("GET", STATUS))
        assert client.evaluate(plan())


def test_a_flood_of_connections_ends_and_the_next_client_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Heads and bodies that come by the byte, bodies of a gigabyte, clients that read nothing and
    half-closed ones, more than there are places."""
    monkeypatch.setattr(server, "REQUEST_S", 1.0)
    monkeypatch.setattr(server._Handler, "timeout", 1.0)
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 16)
    whole = signed("POST", PLANS, b"{}" * 100)
    begun = [b"", b"P", whole[:40], whole[:-50], signed("POST", PLANS, b"x", length=str(1 << 30))]
    with running(answers) as client, ExitStack() as opened:
        place = (client.at.host, client.at.port)
        links = [
            opened.enter_context(socket.create_connection(place, timeout=10)) for _ in range(60)
        ]
        until = time.monotonic() + 2.5
        for number, link in enumerate(links):
            with suppress(OSError):
                link.sendall(begun[number % len(begun)])
                if number % 3 == 0:
                    link.shutdown(socket.SHUT_WR)
        while time.monotonic() < until:
            for link in links[1::3]:
                with suppress(OSError):
                    link.sendall(b"X")
            time.sleep(0.05)
        assert client.evaluate(plan())
        idle = [one for one in threading.enumerate() if "process_request_thread" in one.name]
        assert len(idle) <= 16


# The whole of it


@contextmanager
def serving(folder: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-m", "portkern.cli", "serve", "json=true"],
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout
            assert json.loads(process.stdout.readline())["pid"] == process.pid
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def portkern(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "portkern.cli", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.full
def test_check_is_evaluated_by_the_server_and_here_when_it_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PORTKERN_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "relu.cpp").write_text(RELU)
    check = ("check", "relu.cpp", "op=relu", "target=x86_64", "timed=false")
    with serving(tmp_path) as process:
        held = address.file()
        assert held.stat().st_mode & 0o077 == 0
        asked = portkern(tmp_path, *check)
        assert asked.returncode == 0, asked.stderr
        assert f"evaluated by the server, process {process.pid}" in asked.stderr
        asked_for = "ops=relu source=relu.cpp backends=cpu targets=x86_64 track=false budget_s=0"
        matrix = ("matrix", "run=all", *asked_for.split())
        assert "evaluated by the server" in portkern(tmp_path, *matrix).stderr
        assert "server" not in portkern(tmp_path, *matrix).stderr  # its own records answer
        again = portkern(tmp_path, "serve", "run=other")
        assert again.returncode == 2
        assert f"process {process.pid}" in again.stderr
        process.send_signal(signal.SIGKILL)
        process.wait()
    kept = RecordFile(tmp_path / "reports" / "serve" / "records.jsonl").read()[0]
    own = RecordFile(tmp_path / "reports" / "check" / "records.jsonl").read()[0]
    every = RecordFile(tmp_path / "reports" / "all" / "records.jsonl").read()[0]
    assert [record.id for record in kept] == [record.id for record in own + every]
    assert {record.run for record in every} == {"all"}
    assert {record.verdict for record in own} == {Verdict.PASSED}
    assert {record.run for record in own} == {"check"}
    alone = portkern(tmp_path, *check)
    assert alone.returncode == 0
    assert "server" not in alone.stderr
    assert "'portkern serve' starts one" in portkern(tmp_path, *check, "serve=always").stderr


@pytest.mark.full
def test_generate_and_compare_have_their_kernels_run_by_the_server_while_it_takes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PORTKERN_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    (tmp_path / "relu.cpp").write_text(RELU)
    own = evaluation.Evaluation(tmp_path / "serve", Machine(2))
    taken: list[list[Record]] = []

    def work(asked: ExecutionPlan) -> list[Record]:
        if len(taken) == 4:
            raise ConfigError("no more today")
        taken.append(own.evaluate(asked))
        return taken[-1]

    quick = f"workloads=ci rounds=1 budget_s=0 track=false reports={tmp_path}".split()
    generate = f"generate op=relu target=x86_64 source={tmp_path}/relu.cpp budget.attempts=1 run=g"
    compare = "compare ops=relu targets=x86_64 backends=cpu n=2 heldout=false concurrency=1 run=c"
    replies = [f"```cpp\n{text}```" for text in (RELU.replace(": 0", ": 1"), RELU)]
    with LanguageModel(replies) as model, running(work) as client:
        client.at.model_copy(update={"portkern": str(Portkern.here())}).write()
        models = f"models={{m: {{model: {MODEL}, api_base: '{model.url}'}}}}"
        assert main.run([*generate.split(), *quick, "final=[]"]) == 0
        assert main.run([*compare.split(), *quick, models]) == 0
    said = capsys.readouterr().err
    assert said.count("evaluated by the server, process 0") == 2
    assert said.count("not evaluated by the server: no more today") == 1
    # The first answer is of the kernel by which the run's duration is known.
    (sample,) = (tmp_path / "c" / "samples").rglob("0/records.jsonl")
    files = [tmp_path / "g/records.jsonl", tmp_path / "g/race.jsonl", sample]
    for path, answer, count in zip(files, taken[1:], (2, 2, 1), strict=True):
        kept = RecordFile(path).read()[0]
        assert [record.id for record in kept] == [record.id for record in answer][:count]
        assert {record.run for record in kept} == {path.parent.name}
    rows = [json.loads(line) for line in (tmp_path / "c/samples.jsonl").read_text().splitlines()]
    assert [row["status"] for row in rows] == ["wrong", "passed"]


def test_a_server_whose_sources_have_changed_since_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PORTKERN_CACHE_DIR", str(tmp_path))
    with running(answers) as client:
        client.at.model_copy(update={"portkern": "portkern 0.0.1"}).write()
        assert main.run(["serve", "status"]) == 0
        assert main.run(["serve", "stop"]) == 0
        wait_for(lambda: Client.whoever() is None)
    assert main.run(["serve", "stop"]) == 3
    assert "No server runs; 'portkern serve' starts one" in capsys.readouterr().err


@pytest.mark.full
@pytest.mark.parametrize("served", [True, False], ids=["by a server", "by its own process"])
def test_a_check_of_a_user_who_shows_others_nothing_is_done(
    served: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PORTKERN_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "relu.cpp").write_text(RELU)
    check = ("check", "relu.cpp", "op=relu", "target=x86_64", "timed=false")
    mask = os.umask(0o077)
    try:
        with serving(tmp_path) if served else nullcontext():
            asked = portkern(tmp_path, *check, f"serve={'always' if served else 'never'}")
    finally:
        os.umask(mask)
    assert asked.returncode == 0, asked.stdout + asked.stderr
    assert "passed" in asked.stdout
    kept = [tmp_path / "reports" / "check" / "records.jsonl", tmp_path / "cache" / "builds"]
    assert all(path.stat().st_mode & 0o077 == 0 for path in kept)


def test_another_versions_or_users_server_is_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PORTKERN_CACHE_DIR", str(tmp_path))
    with running(answers) as client:
        at = client.at.model_copy(update={"portkern": "portkern 0.0.1"})
        at.write()
        assert address.known() == at
        assert Client.here() is None
        mine = at.model_copy(update={"portkern": str(Portkern.here())})
        mine.write()
        assert Client.here() is not None
        address.file().chmod(0o644)
        assert address.known() is None
    address.file().chmod(0o600)
    assert Client.here() is None  # it has ended
    with pytest.raises(ServerGone):
        Client(mine).status()
    address.file().write_text("{")
    assert address.known() is None
