"""`portkern generate` from the command line to the kernel, with real compilers and HTTP."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from portkern.agent.attempt import Attempt
from portkern.agent.log import Log
from portkern.agent.outcome import why_untimed
from portkern.cli import main
from tests.llm_server import MODEL, Say, Server, refuse
from tests.report_records import records

pytestmark = pytest.mark.usefixtures("torch_ahead")

GOOD = """\
extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n) {
  // %s
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] < 0 ? scalar_t(0.0f) : x[i];
  return 0;
}
"""
WRONG = GOOD.replace("? scalar_t(0.0f)", "? x[i]")
QUICK = [
    "op=relu",
    "target=x86_64",
    "backend=cpu",
    "workloads=ci",
    "final=[]",
    "rounds=2",
    "budget_s=0",
    "track=false",
    "cache=false",
]


def code(source: str, tag: str = "cpp") -> str:
    return f"Here it is.\n```{tag}\n{source}```\n"


def generate(reports: Path, *given: str) -> int:
    return main.run(["generate", *QUICK, f"reports={reports}", *given])


def served(server: Server, *given: str) -> list[str]:
    return [
        f"models.coder.model={MODEL}",
        f"models.coder.api_base={server.url}",
        "models.coder.backoff_s=0.01",
        *given,
    ]


def attempts(folder: Path) -> list[Attempt]:
    return list(Log.read(folder / "attempts.jsonl"))


def summary(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "summary.json").read_text()))


@pytest.mark.full
def test_replies_of_every_kind_end_in_attempts_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script: list[Say | str] = [
        "I am sorry.",
        "I am sorry again.",  # asked twice
        code("", "cpp"),
        code("def relu(x):\n    return x\n", "python"),
        *[Say(code(GOOD % "cut")[:60], finish="length")] * 2,
        code("int relu() { return nonsense; }\n"),
        code(WRONG % "w"),
        refuse(429, retry_after="0.01"),
        code(GOOD % "a"),  # waits, and is told nothing of it
        code(GOOD % "a"),
        code(GOOD % "b"),
    ]
    with Server(script) as server:
        given = served(server, "strategy=best_of_n", "strategy.n=8", "proposer=direct")
        assert generate(tmp_path, *given, "inflight=1", "run=all") == 0
    folder = tmp_path / "all"
    statuses = [str(attempt.status) for attempt in attempts(folder)]
    assert statuses == [
        "no_code",
        "no_code",
        "no_code",
        "build_failed",
        "wrong",
        "passed",
        "duplicate",
        "passed",
    ]
    told = [attempt.detail for attempt in attempts(folder)]
    assert told[0] == "the reply holds no code block"
    assert told[1] == "the reply holds python code, expected c++"
    assert "cut off at max_tokens" in told[2]
    broken = attempts(folder)[3].feedback[0]
    assert "nonsense" in broken.text
    assert (folder / "best.cpp").read_text() in (GOOD % "a", GOOD % "b")
    out = capsys.readouterr().out
    assert "sizes" not in out.partition("best:")[0]
    assert "calls; tokens:" in out and "price: unknown" in out
    page = (folder / "attempts.html").read_text()
    assert "build failed" in page and "★" in page
    assert summary(folder)["statuses"]["passed"] == 2


@pytest.mark.full
def test_two_runs_from_one_recording_are_identical_with_the_server_gone(tmp_path: Path) -> None:
    def answer(asked: Mapping[str, Any], count: int) -> str:
        return code((WRONG if count % 3 == 1 else GOOD) % f"try {count}")

    shape = ["strategy=evolutionary", "proposer=evolve", "strategy.init=2", "budget.attempts=4"]
    with Server(answer) as server:
        given = served(server, *shape)
        assert generate(tmp_path, *given, "run=first") == 0
        asked = len(server.requests)
    recording = f"replay={tmp_path / 'first'}"
    for name in ("second", "third"):
        assert generate(tmp_path, *given, recording, f"run={name}") == 0
    files = ("attempts.jsonl", "calls.jsonl")
    for file in files:
        second, third = ((tmp_path / name / file).read_bytes() for name in ("second", "third"))
        assert second == third
    first = (tmp_path / "first" / "attempts.jsonl").read_bytes()
    assert (tmp_path / "second" / "attempts.jsonl").read_bytes() == first
    assert asked == len((tmp_path / "first" / "calls.jsonl").read_text().splitlines())


@pytest.mark.full
def test_a_run_that_was_killed_goes_on_and_pays_nothing_twice(tmp_path: Path) -> None:
    def answer(asked: Mapping[str, Any], count: int) -> Say:
        return Say(code(GOOD % f"try {count}"), delay_s=0.3)

    with Server(answer) as server:
        given = served(
            server,
            "strategy=refine",
            "proposer=direct",
            "strategy.turns=4",
            "run=killed",
            f"reports={tmp_path}",
        )
        argv = [sys.executable, "-m", "portkern.cli.main", "generate", *QUICK, *given]
        child = subprocess.Popen(
            [sys.executable, "-c", "from portkern.cli.main import main; main()", *argv[3:]],
            start_new_session=True,
            stdout=subprocess.DEVNULL,
        )
        log = tmp_path / "killed" / "attempts.jsonl"
        while not log.exists() or len(log.read_text().splitlines()) < 2:
            assert child.poll() is None
            time.sleep(0.05)
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        before = log.read_text().splitlines()
        assert generate(tmp_path, *given) == 0
        asked = len(server.requests)
    after = log.read_text().splitlines()
    assert after[: len(before)] == before and len(after) == 4
    calls = (tmp_path / "killed" / "calls.jsonl").read_text().splitlines()
    assert len(calls) == 4
    assert asked <= 5  # the call that was out when it was killed is lost
    digests = [attempt.digest for attempt in attempts(tmp_path / "killed")]
    records = (tmp_path / "killed" / "records.jsonl").read_text().splitlines()
    evaluated = [(r["source_hash"], r["workload"]["name"]) for r in map(json.loads, records)]
    assert len(evaluated) == len(set(evaluated)) and {one for one, _ in evaluated} == set(digests)


@pytest.mark.full
def test_a_run_translates_what_another_one_found_and_goes_on_with_that_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = ["strategy=single", "language=numba", "run=first"]
    assert generate(tmp_path, *one) == 0
    donor = (tmp_path / "first" / "best.py").read_text()
    with Server(lambda asked, count: code(GOOD % count)) as server:
        given = served(
            server,
            "strategy=best_of_n",
            "proposer=translate",
            "run=second",
            f"proposer.donor={tmp_path / 'first'}",
        )
        for count in (1, 2):
            assert generate(tmp_path, *given, "strategy.n=2", f"budget.attempts={count}") == 0
    found = attempts(tmp_path / "second")
    assert [one.donor for one in found] == ["cpu/numba of first 0.0"] * 2
    assert all(donor.strip() in prompt for prompt in server.prompts)
    (earlier,) = attempts(tmp_path / "first")
    decided = json.loads((tmp_path / "second" / "run.json").read_text())
    assert decided["donor"] == earlier.digest
    better = earlier.model_copy(
        update={"id": "1.0", "slot": 1, "digest": "other", "source": f"{donor}# better\n"}
    )
    Log(tmp_path / "first" / "attempts.jsonl").add([better])
    ended = summary(tmp_path / "first") | {"best": "1.0"}
    (tmp_path / "first" / "summary.json").write_text(json.dumps(ended))
    capsys.readouterr()
    assert generate(tmp_path, *given, "strategy.n=2") == 2
    assert "holds a run with other donor; use run=NAME" in capsys.readouterr().err


@pytest.mark.drawn
def test_a_run_whose_model_goes_down_stops_and_goes_on_as_if_it_had_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paid: list[int] = []
    down: list[int] = []  # by seed, as two requests at once come in either order
    third = threading.Event()

    def answer(asked: Mapping[str, Any], count: int) -> Say | str:
        if asked["seed"] in down:
            third.wait(60)
            return refuse(503, "overloaded")
        paid.append(asked["seed"])
        if len(paid) == 3:
            third.set()
        return code(GOOD % f"try <{asked['seed']}>")

    with Server(answer) as server:
        given = served(
            server,
            "strategy=best_of_n",
            "strategy.n=5",
            "proposer=direct",
            "inflight=2",
            "models.coder.retries=2",
        )
        assert generate(tmp_path, *given, "run=whole") == 0
        whole = attempts(tmp_path / "whole")
        down += [seed for seed in paid if f"<{seed}>" in whole[3].source]
        paid.clear()
        third.clear()
        assert generate(tmp_path, *given, "run=cut") == 3
        told = summary(tmp_path / "cut")["stopped"]
        assert told.startswith("No model answered call '3/coder#1' in 3 requests: ")
        assert f"{MODEL}: ServiceUnavailableError 503: overloaded (3 times); the same" in told
        assert f"ended by: {told}" in capsys.readouterr().out
        assert [attempt.id for attempt in attempts(tmp_path / "cut")] == ["0.0", "1.0", "2.0"]
        assert (tmp_path / "cut" / "best.cpp").is_file()
        down.clear()
        assert generate(tmp_path, *given, "run=cut") == 0
    assert "3 attempts are there already" in capsys.readouterr().out
    assert len(paid) == len(set(paid)) == 5
    cut = attempts(tmp_path / "cut")
    assert [(one.id, one.digest, one.status, one.calls, one.cost) for one in cut] == [
        (one.id, one.digest, one.status, one.calls, one.cost) for one in whole
    ]
    spent = [summary(tmp_path / name)["cost"] for name in ("whole", "cut")]
    assert spent[0]["tokens_out"] == spent[1]["tokens_out"]


@pytest.mark.full
def test_what_was_out_when_a_model_went_down_is_not_paid_again(tmp_path: Path) -> None:
    asked_for: list[int] = []  # seeds, which a run of the same settings has again

    def away(asked: Mapping[str, Any], count: int) -> Say:
        asked_for.append(asked["seed"])
        first = count > 0 and asked_for.count(asked_for[0]) == 2 and asked["seed"] == asked_for[0]
        return refuse(503) if first else Say(code(GOOD % asked["seed"]), delay_s=0.5)

    with Server(away) as server:
        alone = served(server, "strategy=single", "proposer=direct", "cache=false", "run=alone")
        assert generate(tmp_path, *alone) == 0  # its slot is the first of the others, too
        given = served(
            server,
            "strategy=best_of_n",
            "strategy.n=2",
            "proposer=direct",
            "inflight=2",
            "models.coder.retries=0",
            "cache=false",
            "run=cut",
        )
        assert generate(tmp_path, *given) == 3
        assert not attempts(tmp_path / "cut")
        assert generate(tmp_path, *given) == 0
        assert len(server.requests) == 1 + 3
    assert len(attempts(tmp_path / "cut")) == 2


@pytest.mark.full
def test_a_prompt_that_its_model_does_not_take_costs_its_attempt_alone(tmp_path: Path) -> None:
    script: list[Say | str] = [
        refuse(400, "This model's maximum context length is 9"),
        code(GOOD % "a"),
    ]
    with Server(script) as server:
        given = served(server, "strategy=best_of_n", "strategy.n=2", "proposer=direct", "run=one")
        assert generate(tmp_path, *given, "inflight=1") == 0
    assert [str(attempt.status) for attempt in attempts(tmp_path / "one")] == ["no_code", "passed"]


@pytest.mark.full
def test_without_a_model_the_catalogue_is_the_author_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["strategy.ideas=1", "budget.attempts=3", "run=own", "final=heldout"]
    assert generate(tmp_path, *given) == 0
    out = capsys.readouterr().out
    assert "No model is asked: the author is the catalogue" in out
    made = attempts(tmp_path / "own")
    assert made[0].idea == "as it ships"
    assert made[1].idea.startswith(("PARALLEL_FROM: 65536 → ", "STREAM_FROM: 4194304 → "))
    told = summary(tmp_path / "own")
    assert set(told["final"]) == {"passed"}
    assert told["cost"]["calls"] == 0
    assert "heldout" not in (tmp_path / "own" / "attempts.jsonl").read_text()


@pytest.mark.full
def test_a_multirun_makes_a_run_of_each_combination(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["-m", "strategy=single,best_of_n", "op=relu,add", "budget.attempts=1", "json=true"]
    assert generate(tmp_path, *given) == 0
    document = json.loads(capsys.readouterr().out)
    jobs = [(one["op"], one["axes"]["strategy"]["kind"]) for one in document["jobs"]]
    assert sorted(jobs) == [
        ("add", "best_of_n"),
        ("add", "single"),
        ("relu", "best_of_n"),
        ("relu", "single"),
    ]
    assert len(list(tmp_path.iterdir())) == 4


@pytest.mark.full
def test_a_run_whose_model_does_not_answer_ends_with_3_and_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Server([refuse(401, "bad key")]) as server:
        given = served(server, "strategy=best_of_n", "proposer=direct", "run=dead", "inflight=1")
        assert generate(tmp_path, *given) == 3
        assert len(server.requests) == 1
    assert "bad key" in capsys.readouterr().out


def test_wrong_kernels_alone_end_with_1(tmp_path: Path) -> None:
    with Server(lambda asked, count: code(WRONG % count)) as server:
        given = served(server, "strategy=best_of_n", "strategy.n=2", "proposer=direct", "run=bad")
        assert generate(tmp_path, *given) == 1
    assert summary(tmp_path / "bad")["best"] is None


@pytest.mark.full
def test_fresh_puts_the_earlier_run_aside(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["strategy=single", "run=one"]
    assert generate(tmp_path, *given) == 0
    assert generate(tmp_path, *given, "fresh=true", "seed=1") == 0
    assert (tmp_path / "one.1" / "attempts.jsonl").is_file()
    assert "the earlier run is in" in capsys.readouterr().err


@pytest.mark.full
@pytest.mark.filterwarnings("default")  # of libraries below MLflow
def test_a_run_is_in_mlflow_with_its_curve_and_a_trace_of_each_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip("mlflow")
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    with Server(lambda asked, count: code(GOOD % count)) as server:
        given = served(server, "strategy=best_of_n", "strategy.n=2", "proposer=direct", "run=seen")
        assert generate(tmp_path, *given, "track=true") == 0
    assert os.environ["MLFLOW_TRACKING_URI"] == uri
    elsewhere = f"sqlite:///{tmp_path / 'other.db'}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", elsewhere)
    assert mlflow.get_tracking_uri() == elsewhere  # not where the run's traces went
    client = mlflow.MlflowClient(uri)
    experiment = client.get_experiment_by_name("portkern generate")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.data.params["op"] == "relu" and run.data.metrics["attempts"] == 2
    assert len(client.get_metric_history(run.info.run_id, "best_so_far")) == 2
    traces = client.search_traces(locations=[experiment.experiment_id])
    assert len(traces) == 2
    spans = [span for trace in traces for span in trace.data.spans if span.name == "coder"]
    assert "You write c++ kernels" in json.dumps(spans[0].inputs)
    assert "Here it is." in json.dumps(spans[0].outputs)


def test_times_that_are_too_noisy_are_not_said_to_be_missing() -> None:
    measured = next(record for record in records() if record.timing)
    assert measured.timing
    noisy = measured.model_copy(
        update={"timing": measured.timing.model_copy(update={"noisy": True})}
    )
    assert not noisy.comparable and "too noisy" in why_untimed([noisy])
    emulated = measured.model_copy(update={"timing": None})
    assert "nothing here to time it on" in why_untimed([emulated])
