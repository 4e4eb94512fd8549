"""How `portkern generate` behaves to whoever gives the command: options as the docs write them,
what it says and when, and what it charges."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import tests.scripted
from portkern.agent import pace
from portkern.agent.llm.calls import ModelRequest
from portkern.agent.run import GenerationRun
from portkern.cli import main
from portkern.cli.heartbeat import Heartbeat
from portkern.cli.verbs.generate import plan_of, read
from portkern.records.record import Record, Verdict
from portkern.spec.candidate import Candidate
from tests.llm_server import Say, Server
from tests.scripted import ScriptedBench, kernel, play
from tests.test_generate import GOOD, QUICK, code, generate, served

pytestmark = pytest.mark.usefixtures("torch_ahead")


def command(reports: Path, *given: str) -> subprocess.CompletedProcess[str]:
    """Runs the command as a shell does."""
    argv = [sys.executable, "-m", "portkern.cli", "generate", *QUICK, f"reports={reports}", *given]
    return subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)


# ---- options as the docs write them


@pytest.mark.full
def test_models_and_prices_are_taken_as_mappings(tmp_path: Path) -> None:
    """Tokens of the reply are those that the server counts; the price is what they cost."""
    with Server([code(GOOD % "a")]) as server:
        ran = command(
            tmp_path,
            "strategy=single",
            "proposer=direct",
            "budget.usd=1",
            "run=one",
            f"models={{coder: {{model: openai/x, api_base: '{server.url}', temperature: 0}}}}",
            "prices={openai/x: {input: 1, output: 2}}",
        )
    assert ran.returncode == 0, ran.stderr
    assert server.requests[0].body["temperature"] == 0
    cost = json.loads((tmp_path / "one" / "summary.json").read_text())["cost"]
    assert cost["usd"] == pytest.approx((cost["tokens_in"] + 2 * cost["tokens_out"]) / 1e6)


def plan(*given: str) -> Any:
    return plan_of(read([*QUICK, *given]))


def test_a_mapping_adds_to_what_single_keys_say() -> None:
    made = plan(
        "models={coder: {model: openai/x}, critic: openai/y}",
        "models.coder.temperature=0",
        "budget={attempts: 3, usd: 2}",
        "prices={openai/x: {input: 1, output: 2}}",
    )
    assert made.models == {"coder": {"model": "openai/x", "temperature": 0}, "critic": "openai/y"}
    assert (made.budget.attempts, made.budget.usd) == (3, 2)
    assert made.prices == {"openai/x": {"input": 1, "output": 2}}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("models=openai/x", "Got models='openai/x', expected a mapping: 'models={coder: "),
        ("models={coder: 3}", "Got 3 for models.coder, expected a model's litellm id"),
        ("models={coder: {modl: x}}", "asks a model, and none is named"),
        ("prices=3", "Got prices=3, expected a mapping: 'prices={openai/x: "),
        ("prices={openai/x: 3}", "Got 3 as the price of 'openai/x'"),
        ("budget=3", "Got budget=3, expected a mapping"),
        ("budget={attempt: 3}", "No option of budget 'attempt'; did you mean 'attempts'?"),
    ],
)
def test_a_mapping_that_is_none_is_told_in_one_line(
    given: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [*QUICK, f"reports={tmp_path}", "strategy=single", "proposer=direct", given]
    if not given.startswith("models"):
        options.append("models.coder.model=openai/x")
    assert main.run(["generate", *options]) == 2
    told = capsys.readouterr().err
    assert said in told and told.count("\n") == 1


# ---- what it says, and when


def varied(_: ModelRequest, number: int) -> str:
    return kernel(1.0 + number / 100, about=str(number))


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_silence_is_broken_by_what_is_being_done_and_since_when() -> None:
    clock, told = Clock(), list[str]()
    beating = Heartbeat("reading", tell=told.append, clock=clock)
    clock.now = 5
    beating.at("a kernel runs on ci/small, 1 of 2 workloads")
    beating.beat()
    assert not told
    clock.now = 10
    beating.beat()
    assert told == ["  … a kernel runs on ci/small, 1 of 2 workloads, 5 s"]
    clock.now = 29
    beating.beat()
    assert len(told) == 1  # less often while nothing is said
    clock.now = 30
    beating.beat()
    assert len(told) == 2
    beating.said()
    clock.now = 39
    beating.beat()
    assert len(told) == 2
    clock.now = 40
    assert beating.beat() == 20
    assert len(told) == 3


@pytest.mark.full
def test_whoever_waits_for_a_slot_is_told_of_each_workload_of_each_kernel(tmp_path: Path) -> None:
    said: list[str] = []
    run = GenerationRun(plan("strategy=single", "budget.attempts=1"), tmp_path / "run")
    run.watch = said.append
    run.execute()
    assert said[0].startswith("building a kernel in c++")
    several = [text for text in said if text.startswith("a kernel runs on ci/")]
    assert [text.rpartition(", ")[2] for text in several] == [
        "1 of 2 workloads",
        "2 of 2 workloads",
    ]


@pytest.mark.drawn
def test_the_first_lines_come_at_once_and_none_is_awaited_longer_than_20_s(tmp_path: Path) -> None:
    """The output goes to a pipe, and each line is there when it is written."""
    with Server([Say(code(GOOD % "a"), delay_s=25)]) as server:
        given = [*QUICK, "strategy=single", "proposer=direct", f"reports={tmp_path}", "run=slow"]
        argv = [sys.executable, "-m", "portkern.cli", "generate", *given, *served(server)]
        start, silence, last = time.monotonic(), 0.0, time.monotonic()
        with subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as command:
            assert command.stdout is not None
            lines = []
            for line in command.stdout:
                silence, last = max(silence, time.monotonic() - last), time.monotonic()
                lines.append((line, last - start))
    assert lines[0][1] < 20 and silence < 25, lines
    assert any("models write" in line for line, _ in lines)
    assert any(line.startswith("Duration: about") for line, _ in lines)


# ---- how long it takes


class Paced(ScriptedBench):
    """Each kernel takes as long to build and to evaluate as the class says."""

    build_takes_s, evaluate_takes_s = 0.02, 0.1

    def build(self, candidate: Candidate) -> float:
        time.sleep(self.build_takes_s)
        self.build_s += self.build_takes_s
        return self.build_takes_s

    def evaluate(self, candidate: Candidate) -> list[Record]:
        time.sleep(self.evaluate_takes_s)
        self.device_s += self.evaluate_takes_s
        return super().evaluate(candidate)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PORTKERN_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.parametrize("attempts", [2, 8])
@pytest.mark.parametrize("evaluate_s", [0.02, 0.1])
def test_a_run_takes_between_half_and_twice_as_long_as_it_says(
    attempts: int, evaluate_s: float, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tests.scripted, "ScriptedBench", Paced)
    monkeypatch.setattr(Paced, "evaluate_takes_s", evaluate_s)
    given = ("strategy=best_of_n", f"strategy.n={attempts}", "proposer=direct")
    played = play(tmp_path / "first", varied, *given, f"budget.attempts={attempts}", "inflight=1")
    pace.learn(played.run)
    again = GenerationRun(played.run.plan, tmp_path / "second")
    said = pace.expected_s(again)
    took = played.run.bench.device_s
    assert said is not None and took / 2 < said < 2 * took + 0.1


@pytest.mark.full
def test_the_kernel_to_beat_is_measured_where_nothing_is_known(cache: Path, tmp_path: Path) -> None:
    """Once: the next run of this kind knows."""
    made = plan("budget.attempts=10")
    first = GenerationRun(made, tmp_path / "first")
    said = pace.expected_s(first)
    assert said is not None and first.meter.spent.device_s > 0
    assert not (tmp_path / "first" / "records.jsonl").exists()  # it is not an attempt of the run
    second = GenerationRun(made, tmp_path / "second")
    assert pace.expected_s(second) == pytest.approx(said) and second.meter.spent.device_s == 0
    limited = GenerationRun(plan("budget.attempts=10", "budget.wall_s=0.5"), tmp_path / "third")
    assert pace.expected_s(limited) == 0.5


def test_durations_are_said_in_the_unit_that_people_would_use() -> None:
    assert [pace.words(s) for s in (0.2, 42, 89, 600, 7200)] == [
        "5 s",
        "45 s",
        "90 s",
        "10 min",
        "2.0 h",
    ]


# ---- what cannot be timed, or not be judged


@pytest.mark.parametrize(
    ("given", "sets"),
    [
        (("target=mi300x", "backend=hip"), ["ci"]),
        (("target=mi300x", "backend=hip", "workloads=[ci,typical]"), ["ci", "typical"]),
        (("target=x86_64",), ["ci", "typical"]),
        (("target=x86_64", "workloads=typical"), ["typical"]),
    ],
)
def test_small_sizes_are_the_default_where_nothing_can_be_timed(
    given: Sequence[str], sets: Sequence[str]
) -> None:
    assert list(plan_of(read(["op=relu", *given])).task.workloads) == sets


def test_no_model_is_asked_where_nothing_can_be_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Server([]) as server:
        options = served(server, "target=mi300x", "backend=hip", "venue=hardware")
        options += ["strategy=single", "proposer=direct"]
        assert main.run(["generate", *QUICK, f"reports={tmp_path}", *options]) == 3
    assert not server.requests
    told = capsys.readouterr().err
    assert "No hip kernel for mi300x can be judged here: " in told and told.count("\n") == 1


def test_what_nobody_here_can_judge_is_not_counted(tmp_path: Path) -> None:
    def answer(request: ModelRequest, number: int) -> str:
        return kernel("unavailable" if number % 2 == 0 else 1.0 + number, about=str(number))

    chosen = ("strategy=best_of_n", "strategy.n=50", "proposer=direct", "budget.attempts=3")
    played = play(tmp_path / "some", answer, *chosen)
    statuses = [str(attempt.status) for attempt in played.attempts]
    assert statuses == ["unavailable", "passed"] * 3
    again = play(tmp_path / "some", answer, *chosen)
    assert len(again.attempts) == 6 and len(again.calls) == len(played.calls)

    played = play(
        tmp_path / "none", lambda _, number: kernel("unavailable", about=str(number)), *chosen
    )
    assert len(played.attempts) == 6  # an author who knows nothing else comes to an end
    assert "3 attempts were made" in played.stopped


CLUSTERS = """\
__global__ void __cluster_dims__(2) f(const float* x, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] < 0 ? 0.0f : x[i];
}
extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n, cudaStream_t stream) {
  f<<<2, 1, 0, stream>>>(x, y, n);
  return (int)cudaGetLastError();
}
"""


@pytest.mark.full
def test_a_kernel_without_a_model_in_the_emulator_is_its_own_attempt_and_no_fault_of_the_machine(
    tmp_path: Path,
) -> None:
    """The run goes on with the next one, and the author is told why."""
    made = plan("target=h200", "backend=cuda", "venue=emulator", "budget.attempts=1")
    run = GenerationRun(made, tmp_path / "run")
    if run.nowhere:
        pytest.skip(run.nowhere)
    (record,) = run.bench.evaluate(made.task.candidate(CLUSTERS, author="x"))
    assert record.verdict is Verdict.UNAVAILABLE
    assert "SIMT executor" in record.detail


# ---- the last race


@pytest.mark.full
def test_the_last_race_is_replayed_byte_for_byte(tmp_path: Path) -> None:
    with Server([code(GOOD % "a"), code(GOOD % "b")]) as server:
        given = served(server, "strategy=best_of_n", "strategy.n=2", "proposer=direct", "run=one")
        assert generate(tmp_path / "first", *given, "inflight=1") == 0
    replayed = [f"replay={tmp_path / 'first' / 'one'}", "inflight=1", *given]
    for folder in ("second", "third"):
        assert generate(tmp_path / folder, *replayed) == 0
    files = [tmp_path / folder / "one" for folder in ("first", "second", "third")]
    races = [(folder / "race.jsonl").read_bytes() for folder in files]
    assert races[0] == races[1] == races[2]
    raced = [json.loads(line) for line in races[0].splitlines()]
    assert len(raced) == 2 * 3 and {one["author"] for one in raced} >= {"catalogue"}
    ends = [json.loads((folder / "summary.json").read_text()) for folder in files]
    for key in ("best", "speedups", "gain", "why_no_gain", "passed_over"):
        assert ends[0][key] == ends[1][key] == ends[2][key]
    assert ends[1]["seconds"]["device"] == 0
