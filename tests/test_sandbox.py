"""Workers are separate processes that can be asked, outlived and killed."""

from __future__ import annotations

import re
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from portkern import ops
from portkern.errors import PortkernError
from portkern.evaluator import build
from portkern.evaluator.artifact_cache import ArtifactCache
from portkern.evaluator.build import StageLimits
from portkern.evaluator.trial import Trial, TrialOptions
from portkern.evaluator.workers import Contestant
from portkern.matrix.selection import host_targets
from portkern.records.record import Verdict
from portkern.sandbox import session as sandbox
from portkern.sandbox.jail import JailPolicy
from portkern.sandbox.message import Failed, Request
from portkern.sandbox.session import Session
from portkern.sandbox.shared_memory import SharedMemory
from portkern.spec import registry
from portkern.spec.backend import Build, Missing, Venue
from portkern.spec.candidate import Candidate
from portkern.spec.target import load
from portkern.testing import QUICK, evaluate
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


def test_a_kernel_that_hangs_is_timed_out(artifacts: Path) -> None:
    start = time.monotonic()
    found, detail = verdict("for (volatile int i = 0;; ++i); return 0;", artifacts, run_s=1.0)
    assert found is Verdict.TIMED_OUT
    assert "longer than 1 s" in detail
    assert time.monotonic() - start < 30


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
    body = RIGHT.replace("return 0;", "static int calls; y[0] += 1e-7f * (++calls % 2); return 0;")
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
    [built] = build.build_all([request], [{}], limits=StageLimits(), cache=ArtifactCache(artifacts))
    assert not isinstance(built.outcome, build.Failure), built.outcome
    venue = CPU.venues(HOST).hardware
    assert isinstance(venue, Venue)
    return Contestant(request, built.outcome, venue)


@dataclass(frozen=True)
class Dance(Request[protocol.Done]):
    """No worker can."""


def test_an_unknown_request_is_an_answer_with_the_traceback() -> None:
    with Session(("torch",), {}) as session:
        outcome = session.ask(Dance(), timeout_s=30)
    assert isinstance(outcome, Failed)
    assert outcome.error == "FormError" and "Dance" in outcome.message
    assert "Traceback" in outcome.log


def test_secrets_of_the_environment_stay_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox.close_servers()  # the next server starts under the environment below
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("POCL_CACHE_DIR", "/somewhere")
    source = "import os\ndef run(x):\n    return x\nassert os.environ['POCL_CACHE_DIR']\n"
    leak = source + "raise KeyError(sorted(k for k in os.environ if 'OPENAI' in k))\n"
    with Session(("torch",), {}) as session:
        outcome = session.ask(protocol.Reference(leak, "cpu", compiled=False), timeout_s=60)
    assert isinstance(outcome, Failed)
    assert outcome.message == "[]"
    sandbox.close_servers()


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


def test_an_ended_worker_cannot_be_asked() -> None:
    with Session(("torch",), {}) as session:
        session.close()
        with pytest.raises(PortkernError, match="has ended"):
            session.ask(protocol.State(), timeout_s=1)


def test_a_worker_starts_in_a_fraction_of_a_second_once_the_server_is_warm() -> None:
    with Session(("torch",), {}):
        pass
    start = time.monotonic()
    with Session(("torch",), {}) as session:
        session.ask(protocol.State(), timeout_s=30)
    assert time.monotonic() - start < 1.0


def test_a_dead_server_is_started_again() -> None:
    server = sandbox.ForkServer(("torch",))

    def spawn() -> None:
        with SharedMemory() as memory, tempfile.TemporaryFile() as log:
            policy = JailPolicy(Path("/tmp"))
            server.spawn(policy, {}, memory=memory.handle, log=log.fileno())[2].close()

    spawn()
    assert server._process is not None
    server._process.kill()
    server._process.wait()
    spawn()
    server.close()


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
