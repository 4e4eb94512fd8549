"""`portkern compare`: what a sample is, what a sweep may spend, and that it goes on."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portkern.agent.bench import Bench
from portkern.agent.budget import GenerationBudget
from portkern.agent.llm.calls import Calls
from portkern.agent.proposer import donor
from portkern.agent.run import GenerationRun
from portkern.agent.task import Task
from portkern.cli import heartbeat, main
from portkern.cli.verbs import compare as verb
from portkern.cli.verbs import generate
from portkern.errors import BudgetSpent, ConfigError, MachineUnfit, PortkernError
from portkern.experiment.compare import sweep as sweeps
from portkern.experiment.compare.forecast import Forecast
from portkern.experiment.compare.ledger import FILE as LEDGER
from portkern.experiment.compare.ledger import Ledger, LedgerEntry
from portkern.experiment.compare.sample import Sample
from portkern.experiment.compare.suite import expand
from portkern.experiment.compare.task import folder_name
from portkern.records.jsonl import LineFile
from portkern.records.record import Record
from portkern.spec import catalogue, registry
from portkern.spec.candidate import Candidate
from tests.llm_server import Say, Server, refuse
from tests.scripted import ScriptedBench, kernel

QUICK = ("ops=relu", "backends=cpu", "workloads=ci", "final=[heldout]", "track=false", "run=it")


class KeptBench(ScriptedBench):
    """Its records are kept as the evaluator's are."""

    def evaluate(self, candidate: Candidate) -> list[Record]:
        records = [
            one.model_copy(update={"id": f"{one.id}/{one.workload.set}"})
            for one in super().evaluate(candidate)
        ]
        self.file.append(records)
        return records


class UnfitBench(KeptBench):
    def evaluate(self, candidate: Candidate) -> list[Record]:
        raise MachineUnfit("This machine cannot evaluate kernels now: no memory")


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Callable[[type[ScriptedBench]], None]:
    """Kernels are worth what their source says, by the bench that is chosen last."""

    def choose(kind: type[ScriptedBench]) -> None:
        class Scripted(GenerationRun):
            def _bench(self, task: Task, *, folder: Path | None = None, **given: Any) -> Bench:
                real = super()._bench(task, folder=folder, **given)
                return kind(
                    task,
                    folder or self.folder,
                    real._cache,
                    self.plan.evaluation,
                    stage=self.plan.stage,
                )

        monkeypatch.setattr(sweeps, "GenerationRun", Scripted)

    choose(KeptBench)
    return choose


def models(server: Server, *names: str, **options: object) -> str:
    more = "".join(f", {key}: {value}" for key, value in {"retries": 1, **options}.items())
    each = (f"{n}: {{model: openai/{n}, api_base: '{server.url}'{more}}}" for n in names)
    return f"models={{{', '.join(each)}}}"


def compare(
    folder: Path,
    server: Server,
    *overrides: str,
    names: tuple[str, ...] = ("a", "b"),
    code: int = 0,
) -> list[Sample]:
    given = {one.partition("=")[0]: one for one in (*QUICK, "n=3", *overrides)}
    assert verb.main([models(server, *names), *given.values(), f"reports={folder}"]) == code
    return rows(folder)


def rows(folder: Path) -> list[Sample]:
    return LineFile(folder / "it" / "samples.jsonl", Sample.from_json).read()[0]


def worth(body: Mapping[str, Any], number: int) -> str:
    """Each seed has a kernel of its own; the model ``b`` is never right."""
    return kernel("wrong" if body["model"] == "b" else 1.5, about=f"seed {body['seed']}")


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(worth) as running:
        yield running


# ---- a sample


@pytest.mark.full
def test_a_row_says_who_wrote_what_for_how_much_and_how_it_ended(
    tmp_path: Path, server: Server, scripted: object
) -> None:
    prices = "prices={openai/a: {input: 1000, output: 1000}, openai/b: {input: 0, output: 0}}"
    found = compare(tmp_path, server, prices)
    assert [(row.index, row.model, str(row.status)) for row in found] == [
        (index, *model) for index in range(3) for model in (("a", "passed"), ("b", "wrong"))
    ]
    first = found[0]
    assert (first.op, first.backend, first.language, first.dtype) == (
        "relu",
        "cpu",
        "c++",
        "float32",
    )
    assert first.evidence == "measured"
    assert (first.speedup, first.baseline, first.heldout) == (1.5, "eager", True)
    assert found[1].speedup is None and found[1].heldout is None
    (call,) = Calls(tmp_path / "it" / first.path / "calls.jsonl")
    assert (first.tokens_in, first.tokens_out) == (call.tokens_in, call.tokens_out)
    assert first.usd == pytest.approx((first.tokens_in + first.tokens_out) / 1000)  # type: ignore[operator]
    assert found[1].usd == 0
    assert len({row.path for row in found}) == 6


@pytest.mark.parametrize("reply", ["I would tile it.", "", "```python\nprint(1)\n```", None])
def test_one_sample_is_one_request_whatever_comes_back(
    reply: str | None, tmp_path: Path, scripted: object
) -> None:
    with Server(lambda body, number: Say(reply)) as server:
        found = compare(tmp_path, server)
    assert len(server.requests) == 6
    assert {str(row.status) for row in found} == {"no_code"}


def _message(**message: object) -> Say:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", **message}}
    usage = {"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 18}
    return Say(body={"id": "1", "object": "chat.completion", "created": 1, "model": "a",
                     "choices": [choice], "usage": usage})  # fmt: skip


def test_what_kept_a_model_from_answering_is_counted_by_itself_and_told_with_its_remedy(
    tmp_path: Path, scripted: object, capsys: pytest.CaptureFixture[str]
) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "run", "arguments": "{}"}}
    script: list[Say | str] = [
        Say("I would tile it,", finish="length"),
        _message(content=[{"type": "refusal", "refusal": "I cannot help with that."}]),
        _message(content=[{"type": "thinking", "thinking": "Let me think about it."}]),
        _message(content=None, tool_calls=[call]),
        kernel(1.5, about="right"),
        "I would tile it.",
    ]
    with Server(script) as running:
        found = compare(tmp_path, running, "n=6", "concurrency=1", names=("a",))
    obstacles = {row.obstacle for row in found}
    assert obstacles == {"cut", "refused", "reasoning", "tools", ""}
    ended = Counter(str(row.status) for row in found if not row.obstacle)
    assert ended == {"passed": 1, "no_code": 1}  # words alone are the model's own failure
    page = (tmp_path / "it" / "compare.md").read_text(encoding="utf-8")
    for told in (page.replace("\\", ""), capsys.readouterr().out):
        assert "1 of 6 replies (17 %) were cut off at max" in told
        assert "raise settings.a.max" in told


def test_a_request_that_was_not_served_is_repeated_and_is_still_one_sample(
    tmp_path: Path, scripted: object
) -> None:
    def answer(body: Mapping[str, Any], number: int) -> Say | str:
        return refuse(503, retry_after="0") if number == 0 else worth(body, number)

    with Server(answer) as server:
        found = compare(tmp_path, server, "n=1", names=("a",))
    assert len(server.requests) == 2
    assert [str(row.status) for row in found] == ["passed"]


def test_samples_differ_in_their_seed_and_models_are_asked_the_same(
    tmp_path: Path, server: Server, scripted: object
) -> None:
    compare(tmp_path, server)
    seeds = {name: [] for name in "ab"}  # type: dict[str, list[int]]
    for request in server.requests:
        seeds[request.body["model"]].append(request.body["seed"])
    assert sorted(seeds["a"]) == sorted(seeds["b"])
    assert len(set(seeds["a"])) == 3
    assert len({json.dumps(request.body["messages"]) for request in server.requests}) == 1
    assert {request.body["temperature"] for request in server.requests} == {0.7}


def test_a_model_may_have_settings_of_its_own(
    tmp_path: Path, server: Server, scripted: object
) -> None:
    compare(
        tmp_path,
        server,
        "n=1",
        "each.max_tokens=99",
        "settings.b.temperature=0.25",
        "sanitize=none",
    )
    asked = {request.body["model"]: request.body for request in server.requests}
    assert {body["max_tokens"] for body in asked.values()} == {99}
    assert (asked["a"]["temperature"], asked["b"]["temperature"]) == (0.0, 0.25)


def test_a_donor_is_shown_and_is_in_the_row(
    tmp_path: Path, server: Server, scripted: object
) -> None:
    found = compare(tmp_path, server, "donor=cuda", "n=1")
    assert {row.donor for row in found} == {"cuda"}
    (shipped,) = catalogue.candidates("relu", registry.load("cuda"))
    shipped = donor.whole(shipped)
    assert all(shipped.source.strip() in request.prompt for request in server.requests)


def test_of_a_preset_that_loops_a_sample_is_a_run(
    tmp_path: Path, server: Server, scripted: object
) -> None:
    found = compare(tmp_path, server, "preset=caesar", "attempts=2", "n=1")
    assert Counter(request.body["model"] for request in server.requests) == {"a": 2, "b": 2}
    assert {row.model: str(row.status) for row in found} == {"a": "passed", "b": "wrong"}


@pytest.mark.parametrize(
    ("worth", "cheat"),
    [
        ("suspicious", "suspicious it is"),
        ("rejected", "a library or framework works"),
        ("wrong", ""),
    ],
)
def test_a_cheat_is_in_the_words_of_the_evaluator(
    worth: str, cheat: str, tmp_path: Path, scripted: object
) -> None:
    def answer(body: Mapping[str, Any], number: int) -> str:
        return kernel(worth, about=f"{number}")

    with Server(answer) as server:
        assert {row.cheat for row in compare(tmp_path, server, "n=1")} == {cheat}


# ---- a sweep goes on


@pytest.mark.full
def test_a_sweep_that_is_done_asks_nothing_again_and_more_samples_are_added(
    tmp_path: Path, server: Server, scripted: object
) -> None:
    before = compare(tmp_path, server, "n=2")
    assert compare(tmp_path, server, "n=2") == before
    assert len(server.requests) == 4
    after = compare(tmp_path, server, "n=3", "ops=[relu,gelu]")
    assert len(server.requests) == len(after) == 12
    assert [row for row in after if row.op == "relu" and row.index < 2] == before


def test_what_was_not_timed_is_evaluated_once_more_and_nobody_is_asked(
    tmp_path: Path, server: Server, scripted: object
) -> None:
    compare(tmp_path, server, "n=2")
    asked = len(server.requests)
    file = tmp_path / "it" / "samples.jsonl"
    kept = [
        one.model_copy(update={"speedup": None, "efficiency": None, "us": None})
        if one.index == 0
        else one
        for one in rows(tmp_path)
    ]
    file.write_text("".join(f"{one.to_json()}\n" for one in kept))
    again = compare(tmp_path, server, "n=2", "retime=true")
    assert len(server.requests) == asked
    assert [one.speedup for one in again if one.correct] == [1.5, 1.5]


def test_timing_anew_removes_no_file_that_a_link_of_the_folder_leads_to(
    tmp_path: Path, server: Server, scripted: object
) -> None:
    compare(tmp_path, server, "n=2")
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    for number, file in enumerate([*(tmp_path / "it").rglob("records.jsonl")]):
        place = file.parent
        place.rename(theirs / str(number))
        place.symlink_to(theirs / str(number))
    before = sorted(theirs.rglob("*.jsonl"))
    file = tmp_path / "it" / "samples.jsonl"
    untimed = {"speedup": None, "efficiency": None, "us": None}
    kept = [one.model_copy(update=untimed).to_json() for one in rows(tmp_path)]
    file.write_text("".join(f"{one}\n" for one in kept))
    with pytest.raises(ConfigError, match="expected a path within"):
        compare(tmp_path, server, "n=2", "retime=true")
    assert before and sorted(theirs.rglob("*.jsonl")) == before


def test_a_model_that_is_down_leaves_the_others_alone_and_the_same_command_goes_on(
    tmp_path: Path, scripted: object, capsys: pytest.CaptureFixture[str]
) -> None:
    down = True

    def answer(body: Mapping[str, Any], number: int) -> Say | str:
        if body["model"] == "b" and down and served["b"] == 2:
            return refuse(503, retry_after="0")
        served[body["model"]] += 1
        return worth(body, number)

    served: Counter[str] = Counter()
    with Server(answer) as server:
        found = compare(tmp_path, server, "n=6", "concurrency=1", code=1)
        assert Counter(row.model for row in found if row.evaluated) == {"a": 6, "b": 2}
        missing = [row for row in found if not row.evaluated]
        assert {(row.model, row.index) for row in missing} == {("b", k) for k in range(2, 6)}
        assert all("503" in row.detail for row in missing)
        assert "note: b writes no more: " in capsys.readouterr().out
        down = False
        assert all(row.evaluated for row in compare(tmp_path, server, "n=6", "concurrency=1"))
    assert served == {"a": 6, "b": 6}


def test_a_fault_of_the_machine_is_not_a_failure_of_a_model(
    tmp_path: Path, server: Server, scripted: Callable[[type[ScriptedBench]], None]
) -> None:
    scripted(UnfitBench)
    found = compare(tmp_path, server, "n=4", "concurrency=1", code=3)
    assert not any(row.evaluated for row in found)
    assert all("no memory" in row.detail for row in found)
    paid = len(server.requests)
    assert paid <= 2  # it does not pay for what nobody can evaluate
    scripted(KeptBench)
    assert all(row.evaluated for row in compare(tmp_path, server, "n=4", "concurrency=1"))
    assert len(server.requests) == 8  # and what was paid is evaluated


def test_a_sweep_that_asks_otherwise_by_the_same_name_is_refused(
    tmp_path: Path, server: Server, scripted: object
) -> None:
    compare(tmp_path, server, "n=1")
    with pytest.raises(ConfigError, match="holds a sweep that asked otherwise for task relu"):
        compare(tmp_path, server, "n=1", "rounds=3", "torch_ops=allow")
    with pytest.raises(ConfigError, match="asked otherwise for model b"):
        compare(tmp_path, server, "n=1", "settings.b.top_p=0.5")


# ---- budgets


@pytest.mark.full
def test_a_budget_of_tokens_is_never_exceeded_and_ends_both_models_alike(
    tmp_path: Path, scripted: object, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(body: Mapping[str, Any], number: int) -> Say:
        return Say(worth(body, number), tokens_in=900, tokens_out=100)

    with Server(answer) as server:
        for limit in (20_000, 20_000, 30_000):
            given = (f"budget.tokens={limit}", "each.max_tokens=1000", "n=24", "concurrency=2")
            found = compare(tmp_path, server, *given, code=1)
            told = capsys.readouterr().out
            assert f"note: budget.tokens={limit}" in told and "were not asked for" in told
            assert 1000 * len(server.requests) <= limit
            counts = Counter(row.model for row in found if row.evaluated)
            assert abs(counts["a"] - counts["b"]) <= 10
        assert 1000 * len(server.requests) > 22_000


def test_a_plan_says_what_a_sweep_can_show_and_costs_and_asks_nothing(
    tmp_path: Path, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    prices = "prices={openai/a: {input: 10, output: 10}, openai/b: {input: 1, output: 1}}"
    asked = ("plan", models(server, "a", "b"), *QUICK, f"reports={tmp_path}", "json=true")
    found = {}
    for more in ((prices,), (prices, "reply=100"), (prices, "n=20"), ()):
        assert verb.main([*asked, *more]) == 0
        found[more] = json.loads(capsys.readouterr().out)
    most, short, twice, unpriced = found.values()
    assert (most["tests"], most["asked"]["ops"], most["asked"]["samples"]) == (4, 1, 10)
    assert most["asked"]["chance"] == 0  # one operator shows nothing
    # Ten samples of two models, 8192 tokens each at 10 and at 1 USD per million, and prompts.
    assert most["asked"]["usd_at_most"] > 10 * 8192 * 11e-6
    assert short["asked"]["usd_at_most"] < 0.5 * most["asked"]["usd_at_most"]
    assert twice["asked"]["usd_at_most"] == pytest.approx(2 * most["asked"]["usd_at_most"])
    assert unpriced["asked"]["usd_at_most"] is None
    assert unpriced["asked"]["tokens_at_most"] > 163_840
    assert not server.requests and not list(tmp_path.iterdir())


def test_a_budget_of_usd_needs_prices_and_is_kept(
    tmp_path: Path, server: Server, scripted: object
) -> None:
    with pytest.raises(ConfigError, match="No price of 'openai/a' is known"):
        compare(tmp_path, server, "budget.usd=1")
    prices = "prices={openai/a: {input: 10, output: 10}, openai/b: {input: 1, output: 1}}"
    found = compare(tmp_path, server, prices, "budget.usd=0.2", "n=30", code=1)
    assert 0 < sum(row.usd or 0 for row in found) <= 0.2


@given(st.data())
def test_what_is_charged_stays_within_the_budget_whoever_is_killed_when(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("ledger") / LEDGER
    limit = data.draw(st.integers(0, 60))
    charged = 0
    for _ in range(data.draw(st.integers(1, 4))):  # processes, each of which is killed
        ledger = Ledger(GenerationBudget(tokens=limit), path)
        for most in data.draw(st.lists(st.integers(1, 20), max_size=6)):
            try:
                held = ledger.reserve(tokens=most, usd=None)
            except BudgetSpent:
                continue
            used = data.draw(st.integers(0, most))
            charged += used
            if data.draw(st.booleans()):  # else nobody hears of it before the end
                held.settle(tokens=used, usd=None)
        assert charged <= limit


def test_a_request_that_was_out_when_its_process_ended_counts_as_the_most_it_can_have_been(
    tmp_path: Path,
) -> None:
    ledger = Ledger(GenerationBudget(usd=1.0), tmp_path / LEDGER)
    ledger.reserve(tokens=10, usd=0.25).settle(tokens=5, usd=0.125)
    ledger.reserve(tokens=10, usd=0.25)
    again = Ledger(GenerationBudget(usd=1.0), tmp_path / LEDGER)
    assert (again.lost, again.spent.tokens, again.spent.usd) == (1, 15, 0.375)


# ---- what cannot be asked


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["models=[openai/a,openai/a]"], "models= has 'openai/a' twice"),
        (["models={a: {model: openai/a}, a: openai/b}"], "models= has 'a' twice"),
        (
            ["models={b: o/b:7, 'a:{': {api_base: 'x,y: z'}, \"a:{\": [o/b:7]}"],
            "models= has 'a:{' twice",
        ),
        (["models="], "Got models='', expected models such as"),
        (["models=[openai/]"], "No provider of the model 'openai/' is known"),
        (["models=[nobody/x]"], "No provider of the model 'nobody/x' is known"),
        (["models=[]"], "expected models such as"),
        (["models={a: 3}"], "Got 3 as model 'a', expected a litellm id or its options"),
        (["models={a: {model: openai/a, fallbacks: [openai/b]}}"], "would answer in its name"),
        (["models={a: {model: openai/a, temprature: 1}}"], "did you mean 'temperature'?"),
        (["models=[openai/a]", "ops=relo"], "No op 'relo'; did you mean 'relu'?"),
        (["models=[openai/a]", "op=relu"], "portkern compare has ops= for it"),
        (["models=[openai/a]", "models.coder.top_p=1"], "is each.top_p="),
        (["models=[openai/a]", "backends=cua"], "No backend 'cua'; did you mean 'cuda'?"),
        (["models=[openai/a]", "preset=oneshot"], "No preset 'oneshot'"),
        (["models=[openai/a]", "settings.c.top_p=1"], "No model 'c'"),
        (["models=[openai/a]", "settings.openai/a.tp=1"], "No setting of openai/a 'tp'"),
        (["models=[openai/a]", "budget.attempts=3"], "attempts"),
        (["models=[openai/a]", "proposer=catalogue"], "there is nothing to compare"),
        (["plan", "models=[openai/a]", "rate=0.95"], "Got rate=0.95 and wanted=0.1"),
        (["models=[openai/a]", "n=0"], "Got n=0, expected a number from 1"),
        (["models=[openai/a]", "modells=[b]"], "No option 'modells'; did you mean 'models'?"),
    ],
)
def test_a_question_that_makes_no_sense_is_one_line(
    overrides: list[str], message: str, tmp_path: Path
) -> None:
    given = {one.partition("=")[0]: one for one in (*QUICK, *overrides, f"reports={tmp_path}")}
    with pytest.raises(ConfigError) as raised:
        verb.main(list(given.values()))
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
    assert not list(tmp_path.rglob("calls.jsonl"))


def test_a_key_that_is_missing_is_told_before_anything_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    with pytest.raises(PortkernError, match="NO_SUCH_KEY"):
        verb.main(
            [
                *QUICK,
                f"reports={tmp_path}",
                "models={a: {model: openai/a, api_key_env: NO_SUCH_KEY}}",
            ]
        )


def test_where_nothing_runs_a_task_is_left_out_and_said(
    tmp_path: Path, server: Server, scripted: object, capsys: pytest.CaptureFixture[str]
) -> None:
    found = compare(
        tmp_path, server, "ops=[relu,argmax]", "n=1", "dtypes=[float32,int8]", "venue=best"
    )
    assert {(row.op, row.dtype) for row in found} == {("relu", "float32"), ("argmax", "float32")}
    assert "left out: relu in int8 by cpu: relu has no int8 form" in capsys.readouterr().out


def test_experiment_name_models_is_the_same(
    tmp_path: Path, server: Server, scripted: object
) -> None:
    given = ["experiment", "name=models", models(server, "a"), *QUICK, "n=1", f"reports={tmp_path}"]
    assert main.run(given) == 0
    assert [row.model for row in rows(tmp_path)] == ["a"]


def test_a_terminal_is_told_how_much_and_how_long_before_anything_is_asked(
    tmp_path: Path, server: Server, scripted: object, capsys: pytest.CaptureFixture[str]
) -> None:
    compare(tmp_path, server, "budget.tokens=1000000")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "2 models × 1 task × 3 samples = 6, by kernelbench_oneshot"
    assert "budget: tokens 1000000" in lines
    assert any(re.match(r"about \d+ \w+ for 6 samples", line) for line in lines)
    first, last = ([line for line in lines if line.startswith(f"[{k}/6] ")] for k in (0, 6))
    assert re.fullmatch(r"\[0/6\] 0 tokens, 0\.0000 USD; about \d+ \w+ left", first[0])
    assert "left" not in last[0]


def test_whoever_waits_for_the_first_sample_is_told_what_is_being_done(
    tmp_path: Path,
    scripted: object,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(heartbeat, "FIRST_S", 0.1)
    with Server([Say(kernel(1.5), delay_s=1)]) as server:
        compare(tmp_path, server, "n=1", names=("a",))
    told = capsys.readouterr().err
    assert re.search(r"… a, relu-float32-cpp-\w+: models write, \d+ s", told)


class SlowBench(KeptBench):
    """Each kernel takes half a second."""

    def evaluate(self, candidate: Candidate) -> list[Record]:
        time.sleep(0.5)
        self.device_s += 0.5
        return super().evaluate(candidate)


@pytest.mark.full
def test_a_sweep_says_how_long_it_takes_by_what_such_samples_took_before(
    tmp_path: Path,
    scripted: Callable[[type[ScriptedBench]], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PORTKERN_CACHE_DIR", str(tmp_path / "cache"))
    scripted(SlowBench)
    expected: list[float] = []

    class Told(sweeps.Sweep):
        async def run(self) -> None:
            expected.append(self.forecast.total_s)
            await super().run()

    monkeypatch.setattr(verb, "Sweep", Told)
    server = Server(worth)
    with server:
        compare(tmp_path / "first", server, "heldout=false")
        compare(tmp_path / "second", server, "heldout=false", "n=4")
    assert expected[0] > 8  # nothing was known
    assert 2 <= expected[1] <= 8  # eight samples of half a second each


def test_what_is_left_is_told_by_what_has_ended_and_how_much_the_rest_weighs() -> None:
    forecast = Forecast({"quick": 1.0, "slow": 9.0}, total_s=40.0)
    assert forecast.left_s(10.0, [], ["quick", "slow"]) == 30
    assert forecast.left_s(50.0, [], ["quick", "slow"]) == 0
    assert forecast.left_s(4.0, ["quick", "quick"], ["slow", "quick"]) == 20


def test_results_that_are_there_are_compared_without_a_model(
    tmp_path: Path, server: Server, scripted: object, capsys: pytest.CaptureFixture[str]
) -> None:
    before = compare(tmp_path, server, "n=1")
    asked = len(server.requests)
    capsys.readouterr()
    given = [f"results={tmp_path / 'it'}", "track=false", f"reports={tmp_path}", "run=again"]
    assert verb.main([*given, "json=true"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["models"] == ["a", "b"] and len(server.requests) == asked
    assert (tmp_path / "again" / "compare.html").exists()
    assert LineFile(tmp_path / "again" / "samples.jsonl", Sample.from_json).read()[0] == before
    with pytest.raises(ConfigError, match="Got models= and results="):
        verb.main([*given, "models=[openai/a]"])


# ---- operators and folders


def test_a_folder_of_operators_is_a_suite_in_the_order_of_its_numbers(tmp_path: Path) -> None:
    level = tmp_path / "kernelbench" / "level1"
    level.mkdir(parents=True)
    for name in ("10_a.py", "2_b.py", "table.json", "notes.md", "_own.py"):
        (level / name).write_text("")
    found = expand([str(level), "relu"])
    assert [(op.stem, op.suite, op.named) for op in found] == [
        ("2_b", "kernelbench/level1", False),
        ("10_a", "kernelbench/level1", False),
        ("relu", "", True),
    ]
    assert [op.stem for op in expand([f"{tmp_path}/kernelbench/*/2_*.py"])] == ["2_b"]
    with pytest.raises(ConfigError, match="No operator in"):
        expand([f"{level}/9_*.py"])


@given(st.lists(st.text(min_size=1, max_size=12), min_size=2, max_size=2, unique=True))
def test_no_two_models_share_a_folder(names: list[str]) -> None:
    first, second = map(folder_name, names)
    assert first != second and "/" not in first


def test_runs_of_a_multirun_over_models_have_folders_of_their_own() -> None:
    given = ["op=relu", "backend=cpu", "preset=kernelbench_oneshot"]
    jobs = [[*given, f"models.coder.model={name}"] for name in ("openai/a", "openai/b")]
    runs = generate._runs(jobs)
    assert len(set(runs)) == 2 and all(run.startswith("generate-relu-") for run in runs)
    assert generate._runs(jobs[:1]) == ["-".join(runs[0].split("-")[:-2])]


# ---- kill -9


def _decided(row: Sample) -> tuple[object, ...]:
    """The parts of a sample that do not depend on the clock."""
    return (
        *(row.model, row.op, row.backend, row.index, row.seed, str(row.status), row.evidence),
        *(row.heldout, row.cheat, row.digest, row.tokens_in, row.tokens_out, row.path),
    )


def _written(body: Mapping[str, Any], number: int) -> Say:
    """A right kernel, a wrong one, or words, by model and seed."""
    op = "gelu" if "gelu" in body["messages"][-1]["content"].partition("\n\n")[0] else "relu"
    drawn = random.Random(f"{body['model']} {body['seed']} {op}").random()
    (shipped,) = catalogue.candidates(op, registry.load("triton"))
    text = "I would tile it."
    if drawn < 0.8:
        body_of = shipped.source
        if drawn < 0.4:
            body_of = (
                body_of.replace(f"def {op}(", f"def _{op}(") + f"\n\ndef {op}(x, y):\n    pass\n"
            )
        text = f"```python\n{body_of}\n```"
    return Say(text, delay_s=0.3)


@pytest.mark.full
def test_a_sweep_that_is_killed_five_times_ends_like_one_that_was_let_alone(tmp_path: Path) -> None:
    chance = random.Random(int(os.environ.get("PORTKERN_CHAOS_SEED", "0")))
    given = ("backends=triton", "ops=relu", "heldout=false", "track=false", "run=it", "n=3")
    log = (tmp_path / "told.txt").open("wb")
    with log, Server(_written) as server:

        def begin(folder: str) -> subprocess.Popen[bytes]:
            command = [sys.executable, "-m", "portkern.cli", "compare", models(server, "a", "b")]
            return subprocess.Popen(
                [*command, *given, f"reports={tmp_path / folder}"],
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

        alone = begin("alone")
        assert alone.wait(timeout=300) == 0, (tmp_path / "told.txt").read_text()
        asked = len(server.requests)
        assert asked == 6
        for k in range(5):
            process = begin("killed")
            _wait(process, lambda: len(server.requests) >= asked + k + 1)  # noqa: B023
            time.sleep(chance.uniform(0, 1.5))
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        last = begin("killed")
        assert last.wait(timeout=300) == 0, (tmp_path / "told.txt").read_text()
    before, after = rows(tmp_path / "alone"), rows(tmp_path / "killed")
    assert list(map(_decided, after)) == list(map(_decided, before))
    assert {str(row.status) for row in before} >= {"passed", "no_code"}
    entries = LineFile(tmp_path / "killed" / "it" / LEDGER, LedgerEntry.from_json).read()[0]
    lost = {one.number for one in entries} - {one.number for one in entries if one.settled}
    # What was out when a process was killed is all that is asked twice.
    assert len(server.requests) - asked <= 6 + len(lost)
    for row in after:
        calls = list(Calls(tmp_path / "killed" / "it" / row.path / "calls.jsonl"))
        assert len(calls) == 1


def _wait(process: subprocess.Popen[bytes], until: Callable[[], bool]) -> None:
    """Or until it has ended."""
    end = time.monotonic() + 120
    while not until() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.02)
