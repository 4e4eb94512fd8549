"""Workers are separate processes that can be asked, outlived and killed."""

from __future__ import annotations

import ast
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from portkern import ops
from portkern.cells.selection import host_targets
from portkern.evaluator import build
from portkern.evaluator.artifact_cache import ArtifactCache
from portkern.evaluator.build import StageLimits
from portkern.evaluator.trial import Trial, TrialOptions
from portkern.evaluator.workers import Contestant
from portkern.records.record import Verdict
from portkern.sandbox import environment
from portkern.sandbox import session as sandbox
from portkern.sandbox.jail import JailPolicy
from portkern.sandbox.message import Failed, Request
from portkern.sandbox.session import Died, Session
from portkern.sandbox.shared_memory import SharedMemory
from portkern.spec import registry
from portkern.spec.backend import Build, Missing, Venue
from portkern.spec.candidate import Candidate
from portkern.spec.target import load
from portkern.testing import QUICK, evaluate
from portkern.toolchain import host
from portkern.toolchain.run_tool import cache_root
from portkern.worker import protocol

from .kernels import RIGHT, relu

CPU = registry.load("cpu")
HOST = load(host_targets()[0])


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("artifacts")


def verdict(body: str, artifacts: Path, *, run_s: float = 60.0) -> tuple[Verdict, str]:
    op = ops.load("relu")
    options = TrialOptions(limits=StageLimits(run_s=run_s), plan=QUICK.plan)
    results = evaluate(
        relu(body), op, CPU, HOST, list(op.workloads["ci"][:1]), folder=artifacts, options=options
    )
    assert isinstance(results, list), results
    return results[0].verdict, results[0].detail


def test_a_right_kernel_passes_and_is_timed_beside_the_baseline(artifacts: Path) -> None:
    assert verdict(RIGHT, artifacts) == (Verdict.PASSED, "")


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("abort();", "killed by SIGABRT"),
        ("*(volatile int*)8 = 1; return 0;", "killed by SIGSEGV"),
        ("_exit(0);", "exited with status 0 instead of answering"),
        ("exit(3);", "exited with status 3 instead of answering"),
        ("return 7;", "relu returned 7, expected 0"),
        ("kill(getpid(), 9); return 0;", "killed by SIGKILL"),
    ],
)
def test_a_kernel_that_ends_its_process_is_a_crash(body: str, told: str, artifacts: Path) -> None:
    found, detail = verdict(body, artifacts)
    assert found is Verdict.CRASHED
    assert told in detail


def test_a_commands_servers_end_with_it_and_those_before_it_go_on() -> None:
    before = sandbox.server(())
    with sandbox.servers_of_own():
        assert sandbox.server(()) is before
        own = sandbox.server(("json",))
        assert own.begin()
    assert not own.begin() and sandbox.server(("json",)) is not own
    assert sandbox.server(()) is before
    sandbox.close_servers(sandbox.server(("json",)))


def test_a_kernel_that_hangs_is_timed_out(artifacts: Path) -> None:
    start = time.monotonic()
    found, detail = verdict("for (volatile int i = 0;; ++i); return 0;", artifacts, run_s=1.0)
    assert found is Verdict.TIMED_OUT
    assert "longer than 1 s" in detail
    assert time.monotonic() - start < 30


@pytest.mark.full
def test_children_of_a_kernel_die_with_it(artifacts: Path) -> None:
    """The kernel leaves a process behind that would sleep for an hour."""
    left = 'if (fork() == 0) { execlp("sleep", "portkern-orphan", "3600", (char*)0); } ' + RIGHT
    verdict(left, artifacts)
    sandbox.close_servers()
    time.sleep(0.2)
    commands = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
    assert not [command for command in commands if "portkern-orphan" in command]


def test_a_crash_at_one_size_leaves_the_other_sizes_evaluated(artifacts: Path) -> None:
    op = ops.load("relu")
    body = "if (n == 1000) abort(); " + RIGHT
    results = evaluate(relu(body), op, CPU, HOST, list(op.workloads["ci"]), folder=artifacts)
    assert isinstance(results, list)
    assert [r.verdict for r in results] == [Verdict.CRASHED, Verdict.PASSED]


def test_a_crash_leaves_its_neighbours_evaluated(artifacts: Path) -> None:
    op = ops.load("relu")
    contestants = [_contestant(body, artifacts) for body in ("abort();", RIGHT, "return 0;")]
    with Trial(op, "float32", contestants, QUICK) as trial:
        results = trial.run(op.workloads["ci"][0])
    assert [r.verdict for r in results] == [Verdict.CRASHED, Verdict.PASSED, Verdict.WRONG]


def test_a_kernel_that_writes_its_input_is_wrong(artifacts: Path) -> None:
    found, detail = verdict("const_cast<scalar_t*>(x)[0] = 7; " + RIGHT, artifacts)
    assert found is Verdict.WRONG
    assert "changed its input 'x'" in detail


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("y[-1] = 7;", r"[1-4] bytes before it and 0 behind it"),
        ("y[n] = 7; y[n + 9] = 7;", r" 0 bytes before it and [1-8] behind it"),
    ],
)
def test_a_kernel_that_writes_outside_of_its_output_is_wrong(
    body: str, told: str, artifacts: Path
) -> None:
    found, detail = verdict(body + RIGHT, artifacts)
    assert found is Verdict.WRONG
    assert "outside of its output 'y'" in detail
    assert re.search(told, detail)  # some of the random bytes may have been just these


def test_a_kernel_whose_answers_vary_within_the_budget_passes_with_a_note(artifacts: Path) -> None:
    vary = (
        "static int calls; float by = 1 + 1.2e-7f * (++calls % 2); for (int64_t i = 0; i < n; ++i)"
    )
    body = RIGHT.replace("return 0;", f"{vary} y[i] *= by; return 0;")
    op = ops.load("relu")
    results = evaluate(relu(body), op, CPU, HOST, list(op.workloads["ci"][:1]), folder=artifacts)
    assert isinstance(results, list), results
    assert results[0].verdict is Verdict.PASSED, results[0].detail
    [note] = results[0].findings
    assert (note.code, note.severity) == ("nondeterministic", "note")


def test_a_kernel_that_answers_only_its_first_call_is_wrong(artifacts: Path) -> None:
    """The first two calls have equal inputs; what the first left is poisoned anew."""
    body = "static int calls; if (++calls == 2) return 0; " + RIGHT
    found, detail = verdict(body, artifacts)
    assert found is Verdict.WRONG
    assert detail.startswith("in a second call with equal inputs: ")


def _contestant(body: str, artifacts: Path) -> Contestant:
    op = ops.load("relu")
    request = Build(relu(body), op.signature, "float32", HOST, {"n": 1000}, {})
    [built] = build.build_all(
        [build.BuildRequest(CPU, request)],
        [{}],
        limits=StageLimits(),
        cache=ArtifactCache(artifacts),
    )
    assert not isinstance(built.outcome, build.Failure), built.outcome
    venue = CPU.venues(HOST).hardware
    assert isinstance(venue, Venue)
    return Contestant(built.request, built.outcome, venue)


@dataclass(frozen=True)
class Dance(Request[protocol.Done]):
    """No worker can."""


def test_an_unknown_request_is_an_answer_with_the_traceback() -> None:
    with Session(("torch",), {}) as session:
        outcome = session.ask(Dance(), timeout_s=30)
    assert isinstance(outcome, Failed)
    assert outcome.error == "FormError" and "Dance" in outcome.message
    assert "Traceback" in outcome.log


#: None of it is a setting; each begins like one, or is one that holds a key.
SECRETS = [
    "OPENAI_API_KEY", "TRITON_API_KEY", "NVIDIA_API_KEY", "PORTKERN_TOKEN", "CUDA_SECRET",
    "TORCH_PASSWORD", "PYTHON_KEYRING_BACKEND", "OMP_SOMETHING_NEW", "JAX_CREDENTIALS",
]  # fmt: skip

#: The variables set by Python where no locale is set, and by portkern, so that no library calls
#: home.
SET_BY_IMPORTS = {
    "LC_CTYPE", "DO_NOT_TRACK", "LITELLM_LOCAL_MODEL_COST_MAP", "LITELLM_MODE",
    "MLFLOW_DISABLE_TELEMETRY", "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "RAY_USAGE_STATS_ENABLED",
}  # fmt: skip


def test_a_worker_sees_exactly_the_listed_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox.close_servers()  # the next server starts under the environment below
    for name in set(os.environ) - {"PORTKERN_CACHE_DIR"}:
        monkeypatch.delenv(name)
    settings = {"PATH": os.defpath, "POCL_CACHE_DIR": "/somewhere", "OMP_NUM_THREADS": "3"}
    for name, value in [*settings.items(), *((name, "sk-secret") for name in SECRETS)]:
        monkeypatch.setenv(name, value)
    told = "import os\ndef run(x):\n    return x\nraise KeyError(sorted(os.environ))\n"
    with Session(("torch",), {"OF_THE_VENUE": "1"}) as session:
        outcome = session.ask(protocol.Reference(told, "cpu", compiled=False), timeout_s=60)
    sandbox.close_servers()
    assert isinstance(outcome, Failed)
    own = {"HOME", "TMPDIR", "PORTKERN_CACHE_DIR", "OF_THE_VENUE", *host.GPU_NUMBERING}
    shared = {*sandbox.SHORT_SPINS, *sandbox.KEPT_MEMORY}
    seen = set(ast.literal_eval(outcome.message)) - SET_BY_IMPORTS
    assert seen == own | shared | {*settings, "NUMBA_NUM_THREADS"}  # as many as OpenMP has


def test_no_variable_that_may_pass_is_named_like_a_credential() -> None:
    assert {name for name in environment.ALLOWED if not environment.may_pass(name)} == set()
    assert not any(map(environment.may_pass, SECRETS))


@pytest.mark.parametrize(
    ("openmp", "numba", "expected"),
    [("", "", ("", "")), ("3", "", ("3", "3")), ("4,2", "8", ("4,2", "4")), ("", "1", ("1", "1"))],
)
def test_numba_has_as_many_threads_as_openmp(
    openmp: str, numba: str, expected: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its kernels would change torch's number, and seem to have turned the framework's knobs."""
    given = {"OMP_NUM_THREADS": openmp, "NUMBA_NUM_THREADS": numba}
    for name, value in given.items():
        monkeypatch.setenv(name, value) if value else monkeypatch.delenv(name, raising=False)
    passed = environment.inherited()
    assert tuple(passed.get(name, "") for name in given) == expected


def test_a_worker_knows_the_evaluators_cache_though_its_home_is_elsewhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Otherwise every worker makes the emulator's runtime and headers again, for 5 to 10 s."""
    with Session(("torch",), {}):
        pass  # the server is there before the cache is elsewhere
    monkeypatch.delenv("PORTKERN_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    source = (
        "from portkern.toolchain.run_tool import cache_root\nraise KeyError(str(cache_root()))\n"
    )
    with Session(("torch",), {}) as session:
        outcome = session.ask(protocol.Reference(source, "cpu", compiled=False), timeout_s=60)
    assert isinstance(outcome, Failed)
    assert outcome.message == repr(str(cache_root()))


def test_a_session_leaves_no_scratch_and_no_process() -> None:
    with Session(("torch",), {}) as session:
        scratch, pid = session.scratch, session.pid
        assert scratch.is_dir()
        assert psutil.pid_exists(pid)
    assert not scratch.exists()
    assert not psutil.pid_exists(pid)


def test_whoever_asks_an_ended_worker_is_told_how_it_ended() -> None:
    with Session(("torch",), {}) as session:
        os.kill(session.pid, signal.SIGTERM)
        told = [session.ask(protocol.State(), timeout_s=30) for _ in range(3)]
    assert told == [Died(-signal.SIGTERM, "")] * 3
    assert session.ask(protocol.State(), timeout_s=30) == told[0]


def test_a_worker_starts_in_a_fraction_of_a_second_once_the_server_is_warm() -> None:
    with Session(("torch",), {}):
        pass
    took_s: list[float] = []
    while len(took_s) < 5 and min(took_s, default=1.0) >= 1.0:  # once, on a machine that rests
        start = time.monotonic()
        with Session(("torch",), {}) as session:
            session.ask(protocol.State(), timeout_s=30)
        took_s.append(time.monotonic() - start)
    assert min(took_s) < 1.0


@pytest.mark.full
def test_a_dead_server_is_started_again() -> None:
    server = sandbox.ForkServer(("torch",))

    def spawn() -> None:
        with SharedMemory() as memory, tempfile.TemporaryFile() as log:
            policy = JailPolicy(Path("/tmp"))
            ours, theirs = socket.socketpair()
            with ours, theirs:
                handles = [memory.handle, log.fileno(), theirs.fileno()]
                server.spawn(policy, {}, handles)[2].close()

    spawn()
    assert server._process is not None
    server._process.kill()
    server._process.wait()
    spawn()
    server.close()


def test_a_server_that_was_begun_is_the_one_that_is_used() -> None:
    server = sandbox.ForkServer(())
    assert server.begin()
    assert not server.begin()
    begun = server._process
    assert server.layers.active is not None  # waits until it can take requests
    assert server._process is begun
    server.close()
    assert not server.begin(), "it is closed"


def test_a_server_that_still_imports_is_not_waited_for_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow_module.py").write_text("import time\ntime.sleep(60)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    server = sandbox.ForkServer(("slow_module",))
    assert server.begin()
    assert server._process is not None
    pid, start = server._process.pid, time.monotonic()
    server.close()
    assert time.monotonic() - start < 40  # its module takes 60
    assert not psutil.pid_exists(pid)


def test_a_server_that_cannot_be_started_is_told_to_who_needs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = sandbox.ForkServer(())
    with monkeypatch.context() as broken:
        broken.setattr(sys, "executable", "/nowhere/python")
        assert not server.begin()
        with pytest.raises(FileNotFoundError):
            _ = server.layers
    assert server.layers is not None
    server.close()


def test_workers_look_for_garbage_though_their_server_did_not() -> None:
    code = "import gc; assert gc.isenabled() and gc.get_freeze_count() > 1000"
    # In a process of its own: main() ends where its connection does.
    run = (
        "import socket, sys\nfrom portkern.worker import forkserver\n"
        "ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
        "sys.argv = ['', str(theirs.detach()), 'json']\n"
        f"ours.shutdown(socket.SHUT_WR)\nforkserver.main()\n{code}\n"
    )
    subprocess.run([sys.executable, "-c", run], check=True, timeout=60)


@pytest.mark.parametrize(
    ("returned", "told"),
    [
        ("x[:-1]", "output 'y' is float32[999], expected float32[1000]"),
        ("x.astype('float16')", "output 'y' is float16[1000], expected float32[1000]"),
        ("(x, x)", "the kernel returned 2 outputs, expected 1"),
    ],
)
def test_outputs_of_another_form_are_told_what_was_expected(
    returned: str, told: str, artifacts: Path
) -> None:
    backend, op = registry.load("pallas"), ops.load("relu")
    source = f"def relu(x, *, interpret=False):\n    return {returned}\n"
    candidate = Candidate("relu", "pallas", "pallas", source, "relu", style="return")
    where = load("sm_90")
    state = backend.probe(where)
    if isinstance(state, Missing):
        pytest.skip(str(state))
    results = evaluate(
        candidate, op, backend, where, list(op.workloads["ci"][:1]), folder=artifacts
    )
    assert isinstance(results, list), results
    assert results[0].verdict is Verdict.WRONG
    assert told in results[0].detail


def test_a_build_is_not_a_request_to_another_backend_than_its_candidates() -> None:
    op = ops.load("relu")
    asked = Build(relu(RIGHT), op.signature, "float32", HOST, {"n": 1000}, {})
    with pytest.raises(ValueError, match="A build of cpu is not a request to opencl"):
        build.BuildRequest(registry.load("opencl"), asked)
