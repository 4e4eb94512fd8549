"""Whatever a worker sends, the evaluator ends with a verdict: it never raises, never passes what
was not computed, never writes a file elsewhere."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from portkern import ops
from portkern.cells.selection import host_targets
from portkern.evaluator import build, reference, worker_reports
from portkern.evaluator.artifact_cache import ArtifactCache
from portkern.evaluator.build import BuildRequest, Built, Failure, StageLimits
from portkern.evaluator.trial import TrialOptions
from portkern.evaluator.worker_reports import Slots
from portkern.records.record import Verdict
from portkern.sandbox import session as sandbox
from portkern.sandbox.message import Confined, Failed, FormError, R, Request, encoded, read
from portkern.sandbox.session import (
    Answered,
    Died,
    End,
    Outcome,
    Session,
    TimedOut,
    Unconfined,
    Unreadable,
)
from portkern.sandbox.shared_memory import SharedMemory
from portkern.spec import registry, target
from portkern.spec.backend import Artifact, Build
from portkern.spec.candidate import Candidate
from portkern.spec.json_types import JsonObject
from portkern.testing import QUICK, evaluate
from portkern.worker import output_guards, protocol
from portkern.worker.protocol import Changes, Ran, State, Timed

SOFTMAX = ops.load("softmax")
BATCH = settings(
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
#: What JSON can say and Python can misread.
ODD: Any = st.sampled_from(
    [
        float("nan"),
        float("inf"),
        -float("inf"),
        -1,
        -0.0,
        1 << 63,
        10**400,
        True,
        "",
        "1",
        "nan",
        "\ud800",
        "\0",
        "../x",
        "/etc/passwd",
        "a" * 100_000,
        [],
        {},
        [[]],
        [{}],
        None,
    ]
)
JSON = st.recursive(
    ODD | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def mixed(*names: str, **usual: Any) -> st.SearchStrategy[dict[str, Any]]:
    """Mappings that have some of the usual items, and odd values for the others."""
    sound = {name: JSON | st.just(value) for name, value in usual.items()}
    return st.fixed_dictionaries({}, optional=sound | dict.fromkeys(names, JSON))


# ---- one reply


def bare(connection: socket.socket) -> Session:
    """A session around one end of a connection, whose worker is a pid that nobody has."""
    session = Session.__new__(Session)
    session._connection, session._received, session.alive = connection, bytearray(), True
    session._confined = True
    session._log = os.memfd_create("log")
    session.pid = session._server_pid = 1 << 30
    server: Any = SimpleNamespace(wait=lambda pid, server: End())
    session._server = server
    return session


def asked(reply: bytes, *, close: bool = True) -> Outcome[Changes]:
    """The outcome of a session that is sent these bytes."""
    ours, theirs = socket.socketpair()

    def send() -> None:
        try:
            theirs.recv(1 << 16)
            theirs.sendall(reply)
        except OSError:
            pass  # the evaluator has had enough
        if close:
            theirs.close()

    sender = threading.Thread(target=send)
    sender.start()
    session = bare(ours)
    try:
        return session.ask(State(), timeout_s=1.0 if close else 0.2)
    finally:
        ours.close()
        sender.join()
        theirs.close()
        os.close(session._log)


@BATCH
@given(st.binary(max_size=300) | JSON.map(lambda one: json.dumps(one).encode()))
def test_any_line_is_an_outcome_whose_texts_can_be_written(line: bytes) -> None:
    outcome = asked(line + b"\n")
    assert isinstance(outcome, Answered | Failed | Died | TimedOut | Unreadable)
    json.dumps(vars(outcome), ensure_ascii=False, default=str).encode()


@pytest.mark.parametrize(
    "line",
    [
        b"[" * 100_000,
        b'{"ok": true, "reply": ' + b"[" * 500 + b"]" * 500 + b"}",
        b'{"ok": ' + b"9" * 5000 + b"}",
        b'{"ok": NaN}',
        b'{"ok": true',
        b"\xff\xfe{}",
        b"\0",
        b"",
        b"[]",
        b"null",
        b'{"ok": 1}',
    ],
    ids=[
        "deep",
        "rather deep",
        "long number",
        "nan",
        "cut off",
        "not UTF-8",
        "nul",
        "empty",
        "list",
        "null",
        "one",
    ],
)
def test_what_is_not_a_reply_is_not_an_answer(line: bytes) -> None:
    assert not isinstance(asked(line + b"\n"), Answered)


def test_of_two_values_for_a_key_the_last_counts_and_is_checked() -> None:
    failed = b'"reply": {"error": "E", "message": "", "log": ""}'
    assert isinstance(asked(b'{"ok": true, "ok": false, ' + failed + b"}\n"), Failed)


def greeted(first: bytes, *, then: bytes = b"") -> Outcome[Changes]:
    """The outcome of a session that is sent a worker's first line, and what it answers then."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        session = bare(ours)
        session._confined = False
        theirs.sendall(first + then)
        return session.ask(State(), timeout_s=0.2)


def test_only_the_first_line_of_a_worker_may_say_that_it_is_not_contained() -> None:
    refused = encoded(Confined("No containment: not permitted"))
    assert greeted(refused) == Unconfined("No containment: not permitted")
    assert isinstance(greeted(encoded(Confined())), TimedOut)
    assert isinstance(asked(refused), Unreadable)


@pytest.mark.parametrize(
    "first", [b"\n", b"{}}\n", b'{"problem": 1}\n', b'{"ok": true}\n', b"[]\n"]
)
def test_a_first_line_of_another_form_is_not_a_worker(first: bytes) -> None:
    assert isinstance(greeted(first), Unreadable | Died)


def test_an_answer_before_the_question_is_refused() -> None:
    early = b'{"ok": true, "reply": {"changed": []}}\n'
    assert isinstance(greeted(encoded(Confined()), then=early), Unreadable)
    assert isinstance(asked(early + early), Unreadable)
    assert isinstance(asked(early), Answered)


def test_a_line_without_an_end_is_cut_off() -> None:
    outcome = asked(b" " * (sandbox.REPLY_BYTES + (4 << 20)), close=False)
    assert isinstance(outcome, Failed) and outcome.error == "ReplyTooLong"


def test_a_reply_of_the_largest_size_is_read_in_no_time() -> None:
    text = b'{"ok": true, "reply": {"changed": ["' + b"x" * (sandbox.REPLY_BYTES - 100) + b'"]}}\n'
    start = time.process_time()
    outcome = asked(text)
    assert isinstance(outcome, Answered) and len(outcome.reply.changed[0]) == sandbox.TEXT_LENGTH
    assert time.process_time() - start < 1.0


def test_a_worker_that_reads_nothing_times_out() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        long = protocol.Reference("x" * (8 << 20), "cpu", compiled=False)
        outcome = bare(ours).ask(long, timeout_s=0.3)
    assert isinstance(outcome, TimedOut)


def test_every_signal_that_ends_a_worker_has_a_name() -> None:
    assert not [number for number in range(1, 65) if "killed by" not in str(Died(-number, ""))]


def test_a_scratch_that_is_nested_too_deeply_is_removed(tmp_path: Path) -> None:
    """Deeper than a path may be long, and than Python recurses."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    # in another process: the watch over files looks at each folder's whole path
    nest = "import os\nfor _ in range(3000): os.mkdir('d'); os.chdir('d')"
    subprocess.run([sys.executable, "-c", nest], cwd=scratch, check=True)
    sandbox._remove(scratch)
    assert not scratch.exists()


# ---- what a reply says


@contextmanager
def called() -> Iterator[tuple[SharedMemory, Slots, reference.Case]]:
    """A call of softmax whose shared memory holds what the evaluator put there."""
    workload = SOFTMAX.workloads["ci"][0]
    case = reference.make_case(SOFTMAX, workload, "float32", "normal")
    shape = (workload.dims["rows"], workload.dims["cols"])
    with SharedMemory() as memory:
        block = memory.slot((output_guards.guarded_bytes(shape, "float32"),), "uint8")
        margins = output_guards.guard(memory.look(block))
        yield (
            memory,
            Slots(
                tuple(map(memory.put, case.inputs)),
                (block,),
                (memory.put(output_guards.poison(shape, "float32")),),
                tuple(map(memory.put, case.inputs)),
                (memory.put(margins),),
                (margins,),
            ),
            case,
        )


LAYOUT = mixed(type="", attributes=[], owes="", device="", input=0, strides=[1, 2])
OUTPUT = st.fixed_dictionaries(
    {"shape": st.just([32, 129]) | JSON, "dtype": st.just("float32") | JSON, "layout": LAYOUT}
)
RAN = {"returned": 1, "outputs": [], "seconds": 0.5, "changed": []}
FINDING = mixed("also", "kernel", "place", code="SX201", severity="error", message="x", count=1)


def ran(outputs: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Replies to a call, most of which have the right fields."""
    sound = {name: st.just(value) | JSON for name, value in RAN.items()}
    found = {"findings": st.lists(FINDING | JSON, max_size=3) | JSON, "trace": JSON}
    return st.fixed_dictionaries(sound | {"outputs": outputs}, optional=found)


@BATCH
@given(ran(st.lists(OUTPUT, max_size=2)) | mixed(**RAN))
def test_a_reply_to_a_call_is_refused_or_is_tensors_or_a_problem(said: dict[str, Any]) -> None:
    try:
        reply = read(Ran, said)
    except FormError as error:
        assert len(str(error)) < 1000
        return
    with called() as (memory, slots, case):
        actual = worker_reports.collect(SOFTMAX, memory, slots, reply, case)
    assert isinstance(actual, str) or [list(output.shape) for output in actual] == [[32, 129]]
    assert len(actual) < 1000
    assert 0 <= reply.seconds < float("inf")
    for finding in worker_reports.findings(reply.findings, ()):
        str(finding)


@BATCH
@given(st.lists(JSON | st.floats(), max_size=4) | JSON)
def test_times_are_finite_and_not_negative(said: Any) -> None:
    try:
        samples = worker_reports.samples(read(Timed, {"samples": said}), 2)
    except ValueError:
        return
    assert len(samples) == 2
    assert all(type(sample) is float and 0 <= sample < float("inf") for sample in samples)


@pytest.mark.parametrize("odd", [True, "1", None, -1.0, float("nan"), float("inf"), 10**400, []])
def test_a_time_that_is_not_a_number_is_not_believed(odd: Any) -> None:
    with pytest.raises(FormError):
        read(Timed, {"samples": [1.0, odd]})


# ---- a build


class Reply:
    """A session whose worker replies with this and has left these bytes in the shared memory."""

    def __init__(self, data: dict[str, Any], left: bytes) -> None:
        self._data, self.memory = data, SharedMemory()
        os.pwrite(self.memory.handle, left, 0)

    def ask(self, request: Request[R], *, timeout_s: float) -> Outcome[R]:
        try:
            return sandbox._outcome(request, {"ok": True, "reply": self._data})
        except FormError as error:
            return Unreadable(str(error), "")

    def log(self) -> str:
        return ""


def request() -> BuildRequest:
    candidate = Candidate("softmax", "cpu", "c++", "", "softmax")
    where = target.load(host_targets()[0])
    sizes = {"rows": 1, "cols": 1}
    asked = Build(candidate, SOFTMAX.signature, "float32", where, sizes, {})
    return BuildRequest(registry.load("cpu"), asked)


def built(reply: dict[str, Any], left: bytes, folder: Path) -> Built:
    session = Reply(reply, left)
    with session.memory:
        return answered(session, ArtifactCache(folder / "cache"))


def answered(session: Reply, cache: ArtifactCache) -> Built:
    builders = build._Builders(StageLimits(), cache)
    with patch.object(builders, "_open", lambda request: session):
        return builders._build(request(), "key")


RESOURCES = mixed("agprs", "sgprs", "spills", "more", kernel="k", registers=8, threads=32)
ARTIFACT = mixed("path", path="a.so", kind="cubin", log="", resources=[]) | st.fixed_dictionaries(
    {
        "path": st.just("a.so"),
        "kind": st.just("cubin"),
        "log": st.just(""),
        "resources": st.lists(RESOURCES, max_size=2),
    }
)
NAMES = st.sampled_from(
    [
        "a.so",
        "./a.so",
        "a.so/b",
        "artifact.json",
        "artifact.json/x",
        "..",
        "../out",
        "/tmp/out",
        "",
        ".",
        "a\0b",
        "x" * 300,
        "d/" * 40 + "x",
        "a/../../out",
        "\udc80",
    ]
)
SIZES = st.integers(-2, 20) | ODD
FILES = st.lists(st.tuples(NAMES | st.text(), SIZES).map(list) | JSON, max_size=4)
SOUND = st.lists(st.sampled_from([["a.so", 4], ["d/b", 3], ["artifact.json", 2]]), max_size=3)


@BATCH
@given(reply=mixed("seconds", files=[["a.so", 4]]), files=FILES | SOUND, artifact=ARTIFACT)
def test_any_build_ends_in_an_artifact_or_a_failure_and_leaves_nothing_else(
    reply: dict[str, Any], files: list[Any], artifact: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "one"
    try:
        one = built(
            {"files": files, "artifact": artifact, "seconds": 1.0} | reply, b"abcdefgh", folder
        )
        if isinstance(one.outcome, Artifact):
            assert one.outcome.path.is_relative_to(folder / "cache")
            assert one.outcome.path.read_bytes()[:4] in (b"abcd", b"") or len(files) > 1
            json.dumps(one.outcome.to_json(), ensure_ascii=False)
        else:
            assert one.outcome.verdict is Verdict.BUILD_FAILED
        assert {path.name for path in tmp_path.iterdir()} <= {"one"}
        if folder.exists():
            assert {path.name for path in folder.iterdir()} == {"cache"}
            assert not list((folder / "cache").glob("**/.building-*"))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ([["a.so", 1 << 40]], "bytes are not there"),
        ([["a.so", 9]], "bytes are not there"),
        ([["../a.so", 1]], "not a file of the build's folder"),
        ([["/tmp/a.so", 1]], "not a file of the build's folder"),
        ([["d/" * 40 + "a", 1]], "not a file of the build's folder"),
        ([["a.so", True]], "True is not an integer"),
        ([["a.so", -1]], "has the size -1"),
        ([[f"{number}", 0] for number in range(build.MOST_FILES + 1)], "at most"),
        ([["b.so", 1]], "its artifact is not among them"),
        ([["a.so", 1], ["a.so/b", 1]], "cannot be read"),
        ([["a.so", 1], ["a\0b", 1]], "null byte"),
    ],
)
def test_files_that_no_build_leaves_are_refused(
    files: list[Any], told: str, tmp_path: Path
) -> None:
    artifact: JsonObject = {"path": "a.so", "kind": "cubin", "log": "", "resources": []}
    artifact |= {"code": "", "code_bytes": None}
    outcome = built(
        {"files": files, "artifact": artifact, "seconds": 1.0}, b"abcdefgh", tmp_path
    ).outcome
    assert isinstance(outcome, Failure) and outcome.verdict is Verdict.BUILD_FAILED
    assert told in str(outcome)


def test_a_sparse_arena_is_not_read_whole(tmp_path: Path) -> None:
    """A file of a terabyte costs its worker nothing."""
    artifact: JsonObject = {"path": "a.so", "kind": "cubin", "log": "", "resources": []}
    artifact |= {"code": "", "code_bytes": None}
    files = [["a.so", 1 << 40]]
    session = Reply({"files": files, "artifact": artifact, "seconds": 1.0}, b"")
    with session.memory:
        os.ftruncate(session.memory.handle, 1 << 40)
        found = answered(session, ArtifactCache(tmp_path))
    assert isinstance(found.outcome, Failure)


@BATCH
@given(mixed(path="a", kind="cubin", log="", resources=[]) | JSON)
def test_an_artifact_is_read_or_a_value_error(data: Any) -> None:
    try:
        kept = Artifact.from_json(data)
    except ValueError:
        return
    assert Artifact.from_json(kept.to_json()) == kept


# ---- the shared memory


def test_a_worker_cannot_forbid_the_evaluator_to_write_or_to_grow() -> None:
    import fcntl

    with SharedMemory() as memory:
        for seal in (fcntl.F_SEAL_GROW, fcntl.F_SEAL_WRITE):
            with pytest.raises(PermissionError):
                fcntl.fcntl(memory.handle, fcntl.F_ADD_SEALS, seal)
        with pytest.raises(PermissionError):
            os.ftruncate(memory.handle, 0) if memory.slot((9,), "float32") else None


# ---- all of it, with a kernel that answers in its worker's place

HOSTILE = """
import gc, json, random, socket

def relu(x):
    [connection] = [one for one in gc.get_objects()
                    if isinstance(one, socket.socket) and one.fileno() > 2]
    while True:
        try:
            connection.sendall(reply(list(x.shape)))
            connection.recv(1 << 20)
        except OSError:
            return x

def odd():
    return random.choice([float("nan"), -1, 1 << 70, 10 ** 400, True, "", "\\ud800", "x" * 100000,
                          None, [], {}, [[[]]], {"a": [1]}, 1.5, [1.0] * 3, 0])

def reply(shape):
    output = {"shape": shape, "dtype": "float32", "layout": {}}
    told = {"returned": 1, "seconds": 0.001, "outputs": [output], "changed": [], "findings": []}
    for name in random.sample(sorted(told), random.randrange(3)):
        told[name] = random.choice([odd(), [odd()]])
    other = random.choice([{"samples": odd()}, {"method": odd()}, odd(),
                           {"error": odd(), "message": odd(), "log": odd()}])
    line = json.dumps({"ok": random.choice([True, True, True, False, 1]),
                       "reply": random.choice([told, told, other])}).encode()
    return random.choice([line, line, line, line[:-1], b"[" * 50000, bytes(random.randbytes(50)),
                          line + b"\\n" + line]) + b"\\n"
"""


def test_a_kernel_that_answers_for_its_worker_never_passes(tmp_path: Path) -> None:
    op, backend = ops.load("relu"), registry.load("cpu")
    options = TrialOptions(StageLimits(run_s=5.0), QUICK.plan)
    where, sizes = target.load(host_targets()[0]), list(op.workloads["ci"])
    kernel = Candidate("relu", "cpu", "numba", HOSTILE, "relu", style="return")
    verdicts: list[Verdict] = []
    while len(verdicts) < 10:
        results = evaluate(kernel, op, backend, where, sizes, folder=tmp_path, options=options)
        assert isinstance(results, list), results
        verdicts += [result.verdict for result in results]
        assert all(result.detail.encode() for result in results)
    assert not {Verdict.PASSED, Verdict.UNAVAILABLE} & set(verdicts)
