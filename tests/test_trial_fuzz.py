"""Workers that die, lie and babble at any message: every kernel still gets its result."""

from __future__ import annotations

import json
import os
import random
import socket
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO, cast
from unittest.mock import patch

import pytest
import torch  # noqa: F401  (its import takes seconds, which the first worker would seem to take)

from portkern import ops
from portkern.cells.selection import host_targets
from portkern.evaluator import (
    busy_threads,
    host_shortage,
    idle_time,
    inputs,
    interleaved_timing,
    workers,
)
from portkern.evaluator.build import BuildRequest, StageLimits
from portkern.evaluator.result import Result
from portkern.evaluator.statistics import TimingPlan
from portkern.evaluator.trial import Trial, TrialOptions
from portkern.evaluator.workers import Contestant
from portkern.records.record import Verdict
from portkern.sandbox.message import Failed, Request, encoded
from portkern.sandbox.session import End, Session
from portkern.sandbox.shared_memory import SharedMemory, SharedMemoryView
from portkern.spec import registry, target
from portkern.spec.backend import Artifact, Build, Call, Kernel, Venue
from portkern.spec.op import Workload
from portkern.toolchain.torch_device import TorchDevice
from portkern.worker import protocol
from portkern.worker.protocol import Changes, Done, Loaded, Ran, Timed, Trace
from portkern.worker.worker import Worker

from .kernels import RIGHT, relu

OP = ops.load("relu")
TINY = Workload("7", {"n": 7})
OPTIONS = TrialOptions(
    StageLimits(load_s=5.0, run_s=0.5),
    TimingPlan(rounds=2, budget_s=0.0, burst_s=1e-6, most=2, stage_s=1e-6),
)
#: No process has it.
NOBODY = (1 << 22) + 7
#: What no worker may make of a kernel, whatever it says.
EXCUSES = (Verdict.UNAVAILABLE, Verdict.UNSUPPORTED)
#: The errors that excuse a kernel, without that of memory: a worker that says there was none is
#: asked again, alone.
ERRORS = ("BackendUnavailable", "JailError", "LaunchTimeout", "BuildTimeout", "E")
REPLIES: Sequence[object] = (
    Done(),
    Loaded("perf_counter"),
    Changes(()),
    Timed((1.0, 1.0)),
    Ran(1, (), 0.1, ()),
)
ODD: Sequence[Any] = (
    float("nan"),
    float("inf"),
    -1,
    True,
    1 << 70,
    None,
    "",
    "\ud800",
    [],
    [[]],
    {},
    {"a": 1},
)


class Honest(Worker):
    """Answers as a worker does, in this process and without a look at its threads."""

    def load(self, asked: protocol.Load) -> Loaded:
        return self._opened(lambda call: [call.inputs[0].clamp_min(0)])

    def reference(self, asked: protocol.Reference) -> Loaded:
        return self._opened(lambda call: [call.inputs[0].relu()])

    def _opened(self, launch: Any) -> Loaded:
        self._host = TorchDevice("cpu")
        self._kernel = Kernel(self._host, launch)
        return Loaded("perf_counter")

    def run(self, asked: protocol.Run) -> Ran:
        ran = super().run(replace(asked, traced=False))
        return replace(ran, trace=Trace(missing="not traced")) if asked.traced else ran

    def time(self) -> Timed:
        for number, call in enumerate(self._staged):
            # the evaluator reads its own memory, where a C++ kernel would have written
            call.outputs[0].copy_(self._results(call)[0])
            self._returned[number] = call.outputs
        return Timed((5.0,) * (len(self._staged) - 1))

    def _results(self, call: Call) -> Any:
        assert self._kernel is not None
        return self._kernel.launch(call)


class Scripted(Session):
    """A worker that is a thread: of the messages it answers, each may be one too many."""

    rate, chosen, silent = 0.0, random.Random(0), 0.02

    def __init__(self, preload: object, environment: object, **_: object) -> None:
        self._connection, self._theirs = socket.socketpair()
        self._handles = socket.socket(socket.AF_UNIX)
        self._received, self._confined, self.alive = bytearray(), True, True
        self.memory, self.scratch = SharedMemory(), Path("/nowhere/at/all")
        self._log = os.memfd_create("log")
        self.pid = self._server_pid = NOBODY
        server: Any = SimpleNamespace(wait=self._wait)
        self._server = server
        self.lied, self.candidate, self.excused = "", False, False
        self._chosen = random.Random(self.chosen.random())
        self._handle = os.dup(self.memory.handle)
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _wait(self, pid: int, *, server: int) -> End:
        ways = [End(0), End(-9), End(-11), End(1), End(-9, exhausted=True), End(gone=True)]
        end = self._chosen.choice(ways)
        self.excused = end.gone
        return end

    def _serve(self) -> None:
        try:
            with self._theirs, self._theirs.makefile("rwb") as stream:
                self._answer(cast(BinaryIO, stream))
        except OSError:
            pass  # the evaluator has had enough
        finally:
            os.close(self._handle)

    def _answer(self, stream: BinaryIO) -> None:
        worker = Honest(SharedMemoryView(self._handle))
        for line in stream:
            request = protocol.request_of(json.loads(line))
            self.candidate |= isinstance(request, protocol.Load)
            right = worker.answer(request)
            honest = self._chosen.random() >= self.rate
            stream.write(right if honest else self._other(request, right))
            stream.flush()
            if self._chosen.random() < self.rate / 4:
                return  # it dies once it has answered

    def _other(self, request: Request[Any], right: bytes) -> bytes:
        """Instead of the right reply. Raises OSError to end without any."""
        if isinstance(request, protocol.Idle):
            return right  # who does not answer it well loses nothing
        if self._chosen.random() < self.silent:
            self.lied = "silent"
            self._theirs.recv(1)
            raise OSError
        ways = [self._dead, self._failed, self._wrong_kind, self._cut, self._noise, self._twice]
        ways += [self._odd, self._odd, self._miscounted]
        way = self._chosen.choice(ways)
        self.lied = f"{type(request).__name__} {way.__name__}"
        return way(request, right)

    def _dead(self, request: Request[Any], right: bytes) -> bytes:
        raise OSError

    def _failed(self, request: Request[Any], right: bytes) -> bytes:
        return Failed(self._chosen.choice(ERRORS), "no", "log", after_s=100.0).line()

    def _wrong_kind(self, request: Request[Any], right: bytes) -> bytes:
        lines = [encoded({"ok": True, "reply": reply}) for reply in REPLIES]
        own = json.loads(right)["reply"].keys()
        return self._chosen.choice([x for x in lines if json.loads(x)["reply"].keys() != own])

    def _cut(self, request: Request[Any], right: bytes) -> bytes:
        return right[: self._chosen.randrange(len(right) - 1)] + b"\n"

    def _noise(self, request: Request[Any], right: bytes) -> bytes:
        return self._chosen.choice(
            [b"\n", b"[" * 9999 + b"\n", b"null\n", b"\xff\n", b'{"ok":1}\n']
        )

    def _twice(self, request: Request[Any], right: bytes) -> bytes:
        return right + right

    def _odd(self, request: Request[Any], right: bytes) -> bytes:
        """One value of the reply, or of what is in it, is of no such type; or it has one more."""
        message = json.loads(right)
        reply = message["reply"]
        name = self._chosen.choice([*reply, "more"])
        usual = type(reply.get(name))
        odd = [x for x in ODD if type(x) is not usual and not (name == "seconds" and x == 1)]
        reply[name] = self._chosen.choice(odd)
        return json.dumps(message).encode() + b"\n"

    def _miscounted(self, request: Request[Any], right: bytes) -> bytes:
        message = json.loads(right)
        match message["reply"]:
            case {"samples": list(samples)}:
                samples.append(1.0)
            case {"outputs": list(outputs)}:
                outputs.append(outputs[0])
            case reply:
                reply["more"] = 1
        return json.dumps(message).encode() + b"\n"


def contestants(count: int) -> list[Contestant]:
    backend, where = registry.load("cpu"), target.load(host_targets()[0])
    venue = backend.venues(where).hardware
    assert isinstance(venue, Venue)
    request = Build(relu(RIGHT), OP.signature, "float32", where, TINY.dims, {})
    artifact = Artifact(Path("/nowhere/relu.so"), "shared library")
    return [
        Contestant(BuildRequest(backend, request), artifact, venue, "allow") for _ in range(count)
    ]


@pytest.fixture(autouse=True)
def processors() -> Iterator[None]:
    """Workers are threads of this process here; one that misbehaves leaves it on a processor."""
    allowed = os.sched_getaffinity(0)
    yield
    os.sched_setaffinity(0, allowed)


@pytest.fixture(autouse=True)
def in_no_time() -> Iterator[None]:
    with (
        patch.object(workers, "Session", Scripted),
        patch.object(interleaved_timing, "CONFIRMATIONS", (0.0,)),
        patch.object(interleaved_timing, "SETTLE_S", 0.0),
        patch.object(idle_time, "SETTLE_S", 0.0),
        patch.object(interleaved_timing.InterleavedTiming, "_compare_floors", lambda self: None),
        patch.object(host_shortage, "seen", lambda: ""),
        patch.object(busy_threads, "WATCHES", ((0.0, 0.0),)),
    ):
        yield


def tried(seed: int, count: int, rate: float) -> tuple[list[Result], list[Scripted]]:
    """The results of as many kernels, and their workers by number."""
    made: list[Scripted] = []
    Scripted.chosen, Scripted.rate = random.Random(seed), rate

    class Counted(Scripted):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            made.append(self)

    with (
        patch.object(workers, "Session", Counted),
        patch.object(host_shortage, "seen", lambda: ""),  # what this machine is short of meanwhile
        Trial(OP, "float32", contestants(count), OPTIONS) as trial,
    ):
        results = trial.run(TINY, distributions=[*inputs.DISTRIBUTIONS][: 1 + seed % 3])
    for session in made:
        session.thread.join(10.0)
    return results, made


def test_workers_that_behave_pass() -> None:
    results, made = tried(0, 2, 0.0)
    assert not [session.lied for session in made if session.lied]
    assert [result.verdict for result in results] == [Verdict.PASSED] * 2, results
    assert all(result.samples for result in results)


def hold(seeds: Sequence[int]) -> None:
    """No exception leaves the trial; nobody is excused, and nobody who lied passes."""
    verdicts = set()
    for seed in seeds:
        rate = random.Random(seed).choice([0.01, 0.05, 0.2])
        results, made = tried(seed, 1, rate)
        assert len(results) == 1
        [result] = results
        verdicts.add(result.verdict)
        kernels = [session for session in made if session.candidate and not session.excused]
        lies = [session.lied for session in kernels if session.lied]
        assert result.verdict not in EXCUSES, (seed, result, lies)
        assert not (lies and result.verdict is Verdict.PASSED and result.samples), (seed, lies)
        json.dumps(result.detail, ensure_ascii=False).encode()
    assert len(seeds) < 50 or {Verdict.PASSED, Verdict.CRASHED} <= verdicts


@pytest.mark.full
@pytest.mark.timeout(3000)
def test_three_hundred_workers_that_misbehave_get_a_result_and_never_pass() -> None:
    hold(range(1000, 1300))


def test_of_several_each_gets_a_result_though_any_of_them_dies() -> None:
    for seed in range(20):
        results, _ = tried(seed, 3, 0.1)
        assert len(results) == 3
        assert not {result.verdict for result in results} & {*EXCUSES}
