"""Faults of machines during a run: processes that are killed, disks and memory that are full,
compilers that never end, tracking servers that are gone, devices that are out of order."""

from __future__ import annotations

import errno
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from fnmatch import fnmatch
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psutil
import pytest

from portkern import ops
from portkern.cells.run import Matrix
from portkern.cells.selection import SelectedCell, Selection, host_targets
from portkern.errors import BuildError, BuildTimeout, StorageError
from portkern.evaluator import build, device_health, host_memory
from portkern.evaluator.artifact_cache import ArtifactCache
from portkern.evaluator.build import Built, Failure, StageLimits
from portkern.evaluator.device_health import Devices
from portkern.evaluator.result import Result
from portkern.evaluator.trial import Trial, TrialOptions
from portkern.evaluator.workers import Contestant, Opened
from portkern.records.record import RecordFile, Verdict
from portkern.sandbox import session as sandbox
from portkern.sandbox.jail import JailPolicy, limits, owner
from portkern.sandbox.session import Died, Session
from portkern.spec import registry, target
from portkern.spec.backend import Build, Missing, Venue
from portkern.spec.candidate import Candidate
from portkern.spec.op import Workload
from portkern.testing import QUICK, evaluate
from portkern.toolchain.run_tool import run_tool
from portkern.worker import protocol

from .kernels import RIGHT, relu

CPU = registry.load("cpu")
HOST = target.load(host_targets()[0])
OP = ops.load("relu")
SMALL, LARGE = OP.workloads["ci"][:2]
ROOT = Path(__file__).resolve().parents[1]
SLOW = "usleep(150000); " + RIGHT
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root mounts a file system")


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("artifacts")


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Path]:
    """A disk of a megabyte."""
    disk = tmp_path / "disk"
    disk.mkdir()
    argv = ["mount", "-t", "tmpfs", "-o", "size=1m,nr_inodes=200,mode=0777", "tmpfs", str(disk)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no mounts here: {done.stderr.strip()}")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def fill(disk: Path, *, leave: int = 0) -> Path:
    """All but ``leave`` bytes of it."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError as error:
            assert error.errno == errno.ENOSPC
        file.truncate(max(0, filler.stat().st_size - leave))
    return filler


def contestant(body: str, folder: Path, **venue: Any) -> Contestant:
    request = Build(relu(body), OP.signature, "float32", HOST, dict(SMALL.dims), {})
    [built] = build.build_all(
        [build.BuildRequest(CPU, request)], [{}], limits=StageLimits(), cache=ArtifactCache(folder)
    )
    assert not isinstance(built.outcome, Failure), built.outcome
    where = CPU.venues(HOST).hardware
    assert isinstance(where, Venue)
    return Contestant(built.request, built.outcome, replace(where, **venue))


def cells(*bodies: str) -> list[SelectedCell]:
    asked = Selection(["relu"], [HOST.name], ["cpu"], ["ci"], ["float32"]).cells()
    native = [cell for cell in asked if cell.language == "c++"]
    return [replace(cell, candidate=relu(body)) for body in bodies for cell in native]


def matrix(asked: list[SelectedCell], folder: Path, cache: Path | None = None) -> Matrix:
    builds = ArtifactCache(cache or folder / "artifacts")
    return Matrix(asked, "test", RecordFile(folder / "records.jsonl"), builds, QUICK)


def soon(action: Callable[[], object], *, after_s: float) -> threading.Timer:
    timer = threading.Timer(after_s, action)
    timer.start()
    return timer


# ---- processes that are killed


def kill_server(preload: tuple[str, ...] = CPU.preload) -> None:
    process = sandbox.server(preload)._process
    if process is not None:
        process.kill()


@pytest.mark.full
def test_a_kernel_whose_fork_server_is_killed_is_run_again(artifacts: Path) -> None:
    with Trial(OP, "float32", [contestant(SLOW, artifacts)], QUICK) as trial:
        sandbox.layers()
        timer = soon(kill_server, after_s=3.0)
        [result] = trial.run(SMALL)
        assert timer.finished.is_set()
    assert result.verdict is Verdict.PASSED, result.detail


@pytest.mark.full
def test_a_kernel_that_loses_two_servers_is_crashed_and_the_next_is_evaluated(
    artifacts: Path,
) -> None:
    """A server that dies under every attempt dies of the kernel."""
    done = threading.Event()

    def killer() -> None:
        while not done.wait(0.3):
            kill_server()

    with Trial(OP, "float32", [contestant(SLOW, artifacts)], QUICK) as trial:
        with Session(CPU.preload, {}):
            pass
        thread = threading.Thread(target=killer)
        thread.start()
        [lost] = trial.run(SMALL)
        done.set()
        thread.join()
        [found] = trial.run(LARGE)
    assert lost.verdict in (Verdict.CRASHED, Verdict.UNAVAILABLE)
    assert "fork server" in lost.detail
    assert found.verdict is Verdict.PASSED, found.detail


def test_a_build_whose_fork_server_is_killed_is_built_again(tmp_path: Path) -> None:
    with Session(CPU.preload, {}):
        pass
    request = Build(relu(RIGHT + NEVER_SOON), OP.signature, "float32", HOST, dict(SMALL.dims), {})
    timer = soon(kill_server, after_s=0.4)
    [built] = build.build_all(
        [build.BuildRequest(CPU, request)],
        [{}],
        limits=StageLimits(),
        cache=ArtifactCache(tmp_path),
    )
    assert timer.finished.is_set()
    assert not isinstance(built.outcome, Failure), built.outcome


#: Some seconds of work for a compiler.
NEVER_SOON = "".join(f" {{ std::thread t{n}([] {{}}); t{n}.join(); }}" for n in range(40))


@pytest.mark.full
def test_a_worker_that_is_killed_is_crashed_and_the_next_workload_is_evaluated(
    artifacts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Trial(OP, "float32", [contestant(SLOW, artifacts)], QUICK) as trial:
        opened = trial._workers.open(0)
        assert isinstance(opened, Opened)
        session, ask = opened.session, opened.session.ask

        def shot_while_asked(request: Any, **limits: Any) -> Any:
            if isinstance(request, protocol.Run):
                soon(lambda: os.kill(session.pid, signal.SIGKILL), after_s=0.05)
            return ask(request, **limits)

        monkeypatch.setattr(session, "ask", shot_while_asked)
        lost, found = trial.run(SMALL)[0], trial.run(LARGE)[0]
    assert (lost.verdict, lost.detail) == (Verdict.CRASHED, "the kernel was killed by SIGKILL")
    assert found.verdict is Verdict.PASSED


def test_a_worker_of_a_server_that_was_replaced_does_not_end_the_new_one() -> None:
    with Session(("torch",), {}) as old:
        kill_server(("torch",))
        with Session(("torch",), {}) as new:
            assert isinstance(old.ask(protocol.State(), timeout_s=30), Died)
            assert not isinstance(new.ask(protocol.State(), timeout_s=30), Died)


def test_a_server_that_hangs_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "REPLY_S", 1.0)
    sandbox.close_servers()
    with Session((), {}):
        process = sandbox.server(())._process
        assert process is not None
        process.send_signal(signal.SIGSTOP)
        with Session((), {}) as session:
            assert not isinstance(session.ask(protocol.State(), timeout_s=30), Died)
    assert not psutil.pid_exists(process.pid)
    sandbox.close_servers()


def test_workers_leave_no_cgroup_and_no_zombie() -> None:
    server = sandbox.server(("torch",))
    for _ in range(3):
        with Session(("torch",), {}) as session:
            session.ask(protocol.State(), timeout_s=30)
    assert server._process is not None
    pid = server._process.pid
    assert psutil.Process(pid).children() == []
    assert not list(Path("/sys/fs/cgroup").glob(f"*/portkern-*-{pid}-*"))


@pytest.mark.full
def test_a_worker_that_cannot_die_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that hangs in a driver, here in a frozen cgroup: SIGKILL waits until it thaws."""
    group = Path(f"/sys/fs/cgroup/freezer/{owner.name()}")
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no freezer here: {error}")
    session = Session((), {})
    try:
        (group / "cgroup.procs").write_text(str(session.pid))
        (group / "freezer.state").write_text("FROZEN")
        start = time.monotonic()
        session.close()
        assert time.monotonic() - start < 40
        with Session((), {}) as another:
            assert not isinstance(another.ask(protocol.State(), timeout_s=30), Died)
            start = time.monotonic()
        assert time.monotonic() - start < 5
    finally:
        (group / "freezer.state").write_text("THAWED")
        sandbox.close_servers()
        time.sleep(0.2)
        group.rmdir()


STRAY = """
import os, sys, time
from pathlib import Path
from portkern.evaluator.artifact_cache import ArtifactCache
from portkern.sandbox.session import Session, server
cache = ArtifactCache(Path(sys.argv[1]))
with Session((), {}) as session, cache.workdir() as workdir:
    print(session.scratch, workdir, session.pid, server(())._process.pid, flush=True)
    time.sleep(600)
"""


def test_what_a_killed_evaluator_leaves_is_swept_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    argv = [sys.executable, "-c", STRAY, str(tmp_path / "cache")]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=environment) as evaluator:
        assert evaluator.stdout
        scratch, workdir, worker, server = evaluator.stdout.readline().split()
        sandbox._sweep.cache_clear()
        alive = Matrix([], "test", RecordFile(tmp_path / "r"), ArtifactCache(tmp_path / "cache"))
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        try:
            alive.execute()
            with Session((), {}):
                pass
            assert Path(scratch).is_dir() and Path(workdir).is_dir()  # their evaluator lives
        finally:
            evaluator.kill()
    _gone(int(worker))
    _gone(int(server))
    sandbox._sweep.cache_clear()
    sandbox.close_servers()
    alive.execute()
    with Session((), {}):
        pass
    sandbox.close_servers()
    assert not Path(scratch).exists()
    assert not Path(workdir).exists()
    assert not list(Path("/sys/fs/cgroup").glob(f"*/portkern-*-{server}-*"))


def _gone(pid: int) -> None:
    deadline = time.monotonic() + 10
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, f"{pid} lives"
        time.sleep(0.05)


# ---- full disks


@needs_root
def test_records_on_a_full_disk_are_kept_whole_and_the_run_goes_on_later(
    tiny: Path, tmp_path: Path
) -> None:
    asked = cells(RIGHT, "return 0;", "abort();")
    filler = fill(tiny, leave=4096)
    with pytest.raises(StorageError, match=r"records\.jsonl: No space left on device; make room"):
        matrix(asked, tiny, tmp_path / "artifacts").execute()
    kept, torn = RecordFile(tiny / "records.jsonl").read()
    assert torn is None
    filler.unlink()
    records = matrix(asked, tiny, tmp_path / "artifacts").execute()
    assert len(records) == len(asked)
    assert {r.id for r in kept if r.verdict is not Verdict.CRASHED} <= {r.id for r in records}


def test_a_record_that_does_not_fit_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    """A limit on the size of files, which needs no root, ends a write in its middle, as a full disk
    does."""
    [record, *_] = matrix(cells("return nonsense;"), tmp_path).execute()
    file = RecordFile(tmp_path / "records.jsonl")
    before = file.path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 100, hard))
    try:
        with pytest.raises(StorageError, match=r"records\.jsonl: File too large; make room"):
            file.append([record])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert file.path.read_bytes() == before


@needs_root
def test_a_full_cache_is_named_and_is_not_a_fault_of_the_kernel(tiny: Path, tmp_path: Path) -> None:
    filler = fill(tiny)
    records = matrix(cells(RIGHT), tmp_path, tiny / "builds").execute()
    assert {r.verdict for r in records} == {Verdict.UNAVAILABLE}
    assert f"Cannot write {tiny}/builds" in records[0].detail
    assert "No space left on device; make room there" in records[0].detail
    filler.unlink()
    records = matrix(cells(RIGHT), tmp_path, tiny / "builds").execute()
    assert {r.verdict for r in records} == {Verdict.PASSED}
    assert not list((tiny / "builds").glob(".building-*"))


@needs_root
def test_a_disk_too_full_for_scratch_folders_is_named(tiny: Path, tmp_path: Path) -> None:
    with patch.object(tempfile, "tempdir", str(tiny)):
        number = 0
        try:
            while True:  # until there are no inodes left
                (tiny / f"inode-{number}").mkdir()
                number += 1
        except OSError:
            records = matrix(cells(RIGHT), tmp_path).execute()
    assert {r.verdict for r in records} == {Verdict.UNAVAILABLE}
    assert f"Cannot write {tiny}" in records[0].detail


@pytest.mark.full
@needs_root
def test_the_command_ends_with_one_line_on_a_full_disk(tiny: Path, tmp_path: Path) -> None:
    fill(tiny, leave=4096)
    done = portkern(tiny, tmp_path)
    assert done.returncode == 3, done.stderr
    assert "portkern: error: Cannot write " in done.stderr
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


def portkern(reports: Path, tmp_path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    argv = [
        sys.executable,
        "-m",
        "portkern.cli",
        "matrix",
        "ops=relu",
        f"targets={HOST.name}",
        "backends=cpu",
        "run=one",
        f"reports={reports}",
        "rounds=1",
        "budget_s=0",
        "json=true",
        f"track={'true' if environment else 'false'}",
    ]
    return subprocess.run(
        argv,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
        cwd=tmp_path,
    )


# ---- memory


def with_little_memory(body: str, artifacts: Path) -> Result:
    little = limits.ProcessLimits(memory_bytes=3 << 30, file_bytes=64 << 20, tasks=1024)
    with (
        patch.object(sandbox, "JailPolicy", partial(JailPolicy, limits=little)),
        Trial(OP, "float32", [contestant(body, artifacts)], QUICK) as trial,
    ):
        lost, found = trial.run(SMALL)[0], trial.run(LARGE)[0]
    assert found.verdict is Verdict.PASSED, found.detail
    return lost


@pytest.mark.full
def test_a_kernel_that_is_refused_memory_is_crashed_for_it(artifacts: Path) -> None:
    eat = "for (;;) { volatile char* eaten = new char[1 << 26]; eaten[0] = 1; } "
    result = with_little_memory(f"if (n == {SMALL.dims['n']}) {eat}" + RIGHT, artifacts)
    assert result.verdict is Verdict.CRASHED
    assert "no memory left" in result.detail


@pytest.mark.full
@pytest.mark.skipif("cgroup" not in sandbox.layers().active, reason="no cgroup counts memory here")
def test_a_kernel_that_is_killed_for_its_memory_is_crashed_for_it(artifacts: Path) -> None:
    """Shared memory is not of a process, so only the cgroup counts it."""
    body = (
        f"for (size_t size = size_t(1) << 26; n == {SMALL.dims['n']};)"
        + """
        memset(mmap(0, size, PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0), 1, size);
    """
    )
    result = with_little_memory(body + RIGHT, artifacts)
    assert result.verdict is Verdict.CRASHED
    assert result.detail.startswith("the kernel was killed for using more memory than a worker may")


def huge(elements: int) -> Workload:
    return replace(SMALL, name="huge", dims={"n": elements})


@pytest.mark.full
def test_a_workload_that_does_not_fit_is_unavailable_and_the_others_are_evaluated(
    artifacts: Path,
) -> None:
    with Trial(OP, "float32", [contestant(RIGHT, artifacts)], QUICK) as trial:
        lost, found = trial.run(huge(1 << 36))[0], trial.run(SMALL)[0]
    assert lost.verdict is Verdict.UNAVAILABLE
    assert "GiB of memory" in lost.detail and "choose a smaller workload" in lost.detail
    assert found.verdict is Verdict.PASSED


def test_memory_that_is_gone_when_inputs_are_drawn_is_not_an_abort(
    artifacts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The estimate is left out, so that torch itself is refused 2^42 bytes."""
    monkeypatch.setattr(host_memory, "lack", lambda *_, **__: "")
    with Trial(OP, "float32", [contestant(RIGHT, artifacts)], QUICK) as trial:
        lost, found = trial.run(huge(1 << 40))[0], trial.run(SMALL)[0]
    assert lost.verdict is Verdict.UNAVAILABLE
    assert "the evaluator ran out of memory: " in lost.detail
    assert found.verdict is Verdict.PASSED


# ---- compilers that never end

#: Each level instantiates two of the next: 2^60 classes.
ENDLESS = """
template <int N, long M> struct A {
    static const long v = A<N - 1, 2 * M>::v + A<N - 1, 2 * M + 1>::v;
};
template <long M> struct A<0, M> { static const long v = M; };
static long endless = A<60, 0>::v;
"""


def test_a_truncated_shared_object_is_built_again(tmp_path: Path) -> None:
    whole = contestant(RIGHT, tmp_path).artifact.path
    content = whole.read_bytes()
    for damaged in (content[: len(content) // 2], b"", content[:-1] + b"!"):
        whole.write_bytes(damaged)
        assert contestant(RIGHT, tmp_path).artifact.path == whole
        assert len(whole.read_bytes()) == len(content)


@pytest.mark.full
def test_a_compiler_that_never_ends_is_timed_out_and_the_next_build_works(tmp_path: Path) -> None:
    source = ENDLESS + relu(RIGHT).source
    never = replace(relu(RIGHT), source=source, entry="endless")  # its file's name
    requests = [
        build.BuildRequest(
            CPU, Build(candidate, OP.signature, "float32", HOST, dict(SMALL.dims), {})
        )
        for candidate in (never, relu(RIGHT))
    ]
    start = time.monotonic()
    never_built, built = build.build_all(
        requests, [{}, {}], limits=StageLimits(build_s=6.0), cache=ArtifactCache(tmp_path)
    )
    assert time.monotonic() - start < 40
    assert isinstance(never_built.outcome, Failure)
    assert never_built.outcome.verdict is Verdict.TIMED_OUT
    assert "the build took longer than 6 s" in str(never_built.outcome)
    assert not isinstance(built.outcome, Failure), built.outcome
    left = [p.info["cmdline"] or [] for p in psutil.process_iter(["cmdline"])]
    assert not [argv for argv in left if any("endless.unit.cpp" in word for word in argv)]


@pytest.mark.parametrize("program", ["cc1plus", "*g++*"])
def test_a_compiler_that_is_killed_is_asked_again(program: str, tmp_path: Path) -> None:
    source = relu(RIGHT + NEVER_SOON).source.replace("int relu(", "int shot(")
    slow = replace(relu(RIGHT), source=source, entry="shot")  # its file's name
    request = Build(slow, OP.signature, "float32", HOST, dict(SMALL.dims), {})
    shot = threading.Event()

    def shoot() -> None:
        deadline = time.monotonic() + 60
        while not shot.is_set() and time.monotonic() < deadline:
            for process in psutil.process_iter(["name", "cmdline"]):
                argv = str(process.info["cmdline"])
                if fnmatch(process.info["name"], program) and "shot.unit.cpp" in argv:
                    process.kill()
                    shot.set()
                    break

    watcher = threading.Thread(target=shoot)
    watcher.start()
    [built] = build.build_all(
        [build.BuildRequest(CPU, request)],
        [{}],
        limits=StageLimits(),
        cache=ArtifactCache(tmp_path),
    )
    watcher.join()
    assert shot.is_set()
    assert not isinstance(built.outcome, Failure), built.outcome


@pytest.mark.parametrize("program", ["cc1plus", "as", "ld"])
def test_what_a_compiler_says_of_its_killed_program_is_known(program: str, tmp_path: Path) -> None:
    (tmp_path / program).write_text("#!/bin/sh\nkill -9 $$\n")
    (tmp_path / program).chmod(0o755)
    source = tmp_path / "empty.cpp"
    source.write_text("int nothing;\n")
    with pytest.raises(BuildError) as told:
        run_tool(
            ["g++", "-B", tmp_path, "-shared", source, "-o", "empty.so"], whose="own", timeout_s=30
        )
    assert build.tool_was_killed(str(told.value), told.value.log), told.value.log


def test_what_a_shell_says_of_its_killed_program_is_known() -> None:
    with pytest.raises(BuildError) as told:
        run_tool(["sh", "-c", "sh -c 'kill -9 $$'; exit $?"], whose="own", timeout_s=30)
    assert build.tool_was_killed(str(told.value), told.value.log), told.value.log


def test_what_triton_says_when_ptxas_was_killed_as_it_asked_for_its_version_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    knobs = pytest.importorskip("triton.knobs")
    monkeypatch.setattr(knobs.NvidiaTool, "from_path", lambda path: None)
    with pytest.raises(RuntimeError) as told:
        _ = knobs.nvidia.ptxas
    assert build.tool_was_killed(str(told.value), "")


def test_a_tool_is_over_when_its_own_process_is(tmp_path: Path) -> None:
    """A child in a session of its own holds on to the tool's output, and is not waited for."""
    start = time.monotonic()
    said = run_tool(["sh", "-c", "setsid sleep 20 & echo built"], whose="own", timeout_s=15)
    assert said == "built\n"
    with pytest.raises(BuildTimeout, match="sh ran longer than 1 s"):
        run_tool(["sh", "-c", "setsid sleep 20 & sleep 60"], whose="own", timeout_s=1)
    assert time.monotonic() - start < 10


# ---- a tracking server that is gone


class Dying(BaseHTTPRequestHandler):
    """Answers like MLflow until it is asked for the third time."""

    asked = 0

    def do_GET(self) -> None:
        type(self).asked += 1
        if self.asked > 2:
            self.connection.close()
            raise ConnectionAbortedError
        body = b'{"experiment": {"experiment_id": "1", "name": "relu"}}'
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, format: str, *args: object) -> None:
        pass


class Quiet(HTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        pass


@pytest.fixture(params=["gone", "dying"])
def tracking_uri(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "gone":
        with socket.socket() as taken:  # bound and not listening
            taken.bind(("127.0.0.1", 0))
            yield f"http://127.0.0.1:{taken.getsockname()[1]}"
        return
    with Quiet(("127.0.0.1", 0), Dying) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.full
def test_a_run_outlives_its_tracking_server(tracking_uri: str, tmp_path: Path) -> None:
    pytest.importorskip("mlflow", reason="extra [tracking] is not installed")
    done = portkern(tmp_path, tmp_path, MLFLOW_TRACKING_URI=tracking_uri)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("not tracked in MLflow") == 1
    assert "the same command again" in done.stderr
    records, _ = RecordFile(tmp_path / "one" / "records.jsonl").read()
    assert {record.verdict for record in records} == {Verdict.PASSED}


# ---- devices that are out of order


def test_a_sound_device_passes_its_check() -> None:
    assert device_health.device_fault("cpu") == ""


def test_a_device_that_is_not_there_fails_its_check() -> None:
    assert device_health.device_fault("cuda:77")
    assert device_health.device_fault("cpu", timeout_s=0.0) == "no answer within 0 s"


def test_after_a_crash_on_a_bad_device_nobody_is_accused(
    artifacts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel aborts; its device is then found to be none. The kernel that was right, and the
    next of the same device, are not evaluated; those of another are."""
    monkeypatch.setattr(device_health, "PAUSE_S", 0.0)
    bad = partial(contestant, folder=artifacts, baseline="cuda:77")
    kernels = [bad("abort();"), bad(RIGHT), contestant(RIGHT, artifacts)]
    devices = Devices()
    with Trial(OP, "float32", kernels, QUICK, devices) as trial:
        crashed, untold, elsewhere = trial.run(SMALL)
        assert trial.run(LARGE)[0].verdict is Verdict.UNAVAILABLE
    assert crashed.verdict is Verdict.CRASHED
    assert untold.verdict is Verdict.UNAVAILABLE
    assert "the health check of cuda:77 failed after a crash or a time-out: " in untold.detail
    assert "reset the device" in untold.detail
    assert elsewhere.verdict is Verdict.PASSED
    with Trial(OP, "float32", [bad(RIGHT)], QUICK, devices) as trial:
        assert trial.run(SMALL)[0].verdict is Verdict.UNAVAILABLE


def test_an_unevaluated_cell_is_evaluated_when_the_run_goes_on(tmp_path: Path) -> None:
    asked = cells(RIGHT)
    first = matrix(asked, tmp_path)
    devices = Devices()
    devices._problems["cpu"] = "the health check of cpu failed"
    first._devices = devices
    assert {r.verdict for r in first.execute()} == {Verdict.UNAVAILABLE}
    assert {r.verdict for r in matrix(asked, tmp_path).execute()} == {Verdict.PASSED}


def test_a_kernel_that_crashed_gets_a_new_process_though_its_worker_lives(artifacts: Path) -> None:
    """Entries that return an error, as after an illegal access, leave the worker alive."""
    body = f"static int before; if (n == {SMALL.dims['n']}) before = 1; if (before) return 7; "
    with Trial(OP, "float32", [contestant(body + RIGHT, artifacts)], QUICK) as trial:
        lost, found = trial.run(SMALL)[0], trial.run(LARGE)[0]
    assert lost.verdict is Verdict.CRASHED
    assert found.verdict is Verdict.PASSED, found.detail


CUDA_RELU = """
__global__ void kernel(const scalar_t* x, scalar_t* y, int64_t n) {{
    int64_t i = blockIdx.x * 256ll + threadIdx.x;
    {body}
    if (i < n) y[i] = x[i] < scalar_t(0) ? scalar_t(0) : x[i];
}}
extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n, cudaStream_t stream) {{
    kernel<<<(n + 255) / 256, 256, 0, stream>>>(x, y, n);
    return (int)cudaGetLastError();
}}
"""
TRITON_RELU = """
import triton
import triton.language as tl


@triton.jit
def kernel(x, y, n, BLOCK: tl.constexpr):
    offset = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    {body}
    value = tl.load(x + offset, mask=offset < n)
    tl.store(y + offset, tl.where(value < 0, 0.0, value), mask=offset < n)


def relu(x, y):
    kernel[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256)
"""
GPU_FAULTS = {
    "cuda": (
        CUDA_RELU,
        {
            "illegal access": "y[i + (1ll << 40)] = x[0];",
            "hang": "for (volatile scalar_t* seen = y; seen[0] == seen[0];) __threadfence();",
        },
    ),
    "triton": (
        TRITON_RELU,
        {
            "illegal access": "tl.store(y + offset.to(tl.int64) + (1 << 40), 1.0)",
            "hang": "while tl.load(x + n, volatile=True) == tl.load(x + n, volatile=True):\n"
            "        pass",
        },
    ),
}


@pytest.mark.parametrize("fault", ["illegal access", "hang"])
@pytest.mark.parametrize("name", GPU_FAULTS)
def test_a_gpu_fault_is_one_kernels_and_the_next_passes(
    name: str, fault: str, tmp_path: Path
) -> None:
    backend = registry.load(name)
    gpus = [t for t in map(target.load, host_targets()) if t.is_gpu and backend.supports(t)]
    where = gpus[0] if gpus else target.load("sm_90")
    venue, ready = backend.venues(where).hardware, backend.probe(where)
    for state in (venue, ready):
        if isinstance(state, Missing):
            pytest.skip(str(state))
    template, faults = GPU_FAULTS[name]
    language = next(iter(backend.languages.values()))
    bad, good = (
        Candidate("relu", name, language, template.format(body=body), "relu")
        for body in (faults[fault], "")
    )
    options = TrialOptions(StageLimits(run_s=20.0), QUICK.plan)
    lost, found = (
        evaluate(one, OP, backend, where, [SMALL], folder=tmp_path, options=options)
        for one in (bad, good)
    )
    assert not isinstance(lost, Built) and not isinstance(found, Built)
    expected = Verdict.CRASHED if fault == "illegal access" else Verdict.TIMED_OUT
    assert lost[0].verdict is expected, lost[0].detail
    assert found[0].verdict is Verdict.PASSED, found[0].detail
