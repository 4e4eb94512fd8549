"""The loop of a generation run: what decides its course, what it costs, and how it ends."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from portkern.agent.attempt import Attempt, Status
from portkern.agent.axes import Reply
from portkern.agent.llm.calls import ModelRequest
from portkern.agent.log import Log
from portkern.agent.run import GenerationRun
from portkern.cli.verbs.generate import plan_of, read
from portkern.errors import ConfigError, MachineUnfit, ModelDown, ModelError
from portkern.records.record import Record
from portkern.spec.candidate import Candidate
from tests.scripted import MODEL, ScriptedBench, ScriptedModels, by_prompt, in_turn, kernel, play

EVOLVING = (
    "strategy=evolutionary",
    "proposer=evolve",
    "strategy.population=3",
    "strategy.init=2",
    "strategy.islands=2",
    "strategy.barrier=false",
    "budget.attempts=14",
    "memory=last",
)
CRFM = ("preset=crfm", "budget.attempts=24")


def varied(request: ModelRequest, count: int) -> str:
    """A kernel whose worth follows from the call's seed alone."""
    rng = random.Random(request.params["seed"])
    return kernel(
        rng.choice(["wrong", "build_failed", f"{rng.uniform(0.5, 3):.3f}"]), about=str(rng.random())
    )


class Slow(ScriptedModels):
    """Answers take a time that depends on nothing."""

    most_s = 0.02

    async def answer(self, request: ModelRequest) -> Reply:
        await asyncio.sleep(random.uniform(0, self.most_s))
        return await super().answer(request)


def lines(folder: Path) -> list[str]:
    return (folder / "attempts.jsonl").read_text().splitlines()


# ---- the course of a run


def test_neither_slow_models_nor_their_order_change_the_course_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def played(name: str) -> list[str]:
        play(tmp_path / name, varied, *EVOLVING, "inflight=4")
        return lines(tmp_path / name)

    quick = played("quick")
    monkeypatch.setattr("tests.scripted.ScriptedModels", Slow)
    assert played("slow") == played("slower") == quick


def test_attempts_are_committed_in_the_order_in_which_they_were_asked_for(tmp_path: Path) -> None:
    played = play(tmp_path, varied, *EVOLVING, "inflight=4")
    slots = [attempt.slot for attempt in played.attempts]
    assert slots == sorted(slots)
    assert [one.id for one in Log.read(tmp_path / "attempts.jsonl")] == [
        attempt.id for attempt in played.attempts
    ]


class Cut(Exception):
    pass


@pytest.mark.parametrize(
    ("how", "after"),
    [(EVOLVING, 1), (EVOLVING, 4), (EVOLVING, 9), (CRFM, 1), (CRFM, 2)],
    ids=["evolving-1", "evolving-4", "evolving-9", "crfm-1", "crfm-2"],
)
def test_a_run_that_was_cut_goes_on_as_if_it_had_not_been(
    how: Sequence[str], after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(request: ModelRequest, count: int) -> str:
        if request.prompt.startswith("ideas"):
            return f'["tile {request.params["seed"]}", "unroll {request.params["seed"]}"]'
        return varied(request, count)

    whole = play(tmp_path / "whole", answer, *how, "inflight=3")
    asked: list[str] = []

    def counted(request: ModelRequest, count: int) -> str:
        asked.append(request.id)
        return answer(request, count)

    add, committed = Log.add, 0

    def cut(log: Log, attempts: Sequence[Attempt]) -> None:
        nonlocal committed
        committed += 1
        if committed > after:
            raise Cut
        add(log, attempts)

    monkeypatch.setattr(Log, "add", cut)
    with pytest.raises(Cut):
        play(tmp_path / "cut", counted, *how, "inflight=3")
    monkeypatch.setattr(Log, "add", add)
    again = play(tmp_path / "cut", counted, *how, "inflight=3")
    assert lines(tmp_path / "cut") == lines(tmp_path / "whole")
    assert len(asked) == len(set(asked)) == len(whole.calls)  # nothing is paid twice
    evaluated = again.run.bench
    assert isinstance(evaluated, ScriptedBench)


def anything(request: ModelRequest, count: int) -> str:
    """An answer to any prompt that follows from the request alone."""
    prompt, seed = request.prompt.partition("@")[0], request.params["seed"]
    if prompt == "ideas":
        return f'["tile {seed}", "unroll {seed}"]'
    if prompt == "tool_agent":
        said = sum(message.role == "assistant" for message in request.messages)
        wanted = [f'{{"tool": "write"}}\n{varied(request, count)}', '{"tool": "try"}']
        return [*wanted, '{"tool": "done"}'][min(said, 2)]
    if prompt in ("plan", "macro") or prompt.startswith("critic"):
        fields = ("plan", "problem", "why", "fix", "method", "instructions", "reason")
        works = {"works": bool(seed % 2), "plausible": True}
        return json.dumps(works | {name: f"{name} {seed}" for name in fields})
    return varied(request, count)


@pytest.mark.sampled("share")
@pytest.mark.parametrize(
    "how",
    [
        ["strategy=best_of_n", "proposer=direct", "strategy.n=6"],
        ["strategy=best_of_n", "proposer=tool_agent", "strategy.n=3"],
        ["preset=crfm"],
        ["preset=stark"],
        ["preset=cudaforge"],
        ["preset=ai_cuda_engineer"],
        ["source=", "preset=kernelagent_opt"],  # a given kernel's time is never the same twice
    ],
    ids=lambda how: how[-1] if len(how) == 1 else how[1],
)
@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.9])
def test_whoever_asks_a_model_that_is_down_the_run_stops_and_goes_on_from_there(
    how: list[str], share: float, tmp_path: Path
) -> None:
    how = [*how, "budget.attempts=12", "inflight=3"]
    whole = play(tmp_path / "whole", anything, *how)
    asked: list[str] = []

    def down(request: ModelRequest, count: int) -> str:
        if count >= int(share * len(whole.calls)):
            raise ModelDown("nobody is there")
        return counted(request, count)

    def counted(request: ModelRequest, count: int) -> str:
        asked.append(request.id)
        return anything(request, count)

    cut = play(tmp_path / "cut", down, *how)
    assert (cut.stopped, cut.run.down) == ("nobody is there", True)
    assert cut.attempts == whole.attempts[: len(cut.attempts)] != whole.attempts
    again = play(tmp_path / "cut", counted, *how)
    assert lines(tmp_path / "cut") == lines(tmp_path / "whole")
    assert (again.stopped, again.run.down) == (whole.stopped, False)
    assert len(asked) == len(set(asked)) == len(whole.calls)  # nothing is paid twice


def test_how_long_a_model_is_waited_for_may_change_within_a_run(tmp_path: Path) -> None:
    given = ["strategy=best_of_n", "proposer=direct", "strategy.n=2"]
    play(tmp_path, varied, *given)
    longer = ["models.coder.timeout_s=900", "models.coder.retries=9", "models.coder.tokens=99999"]
    assert len(play(tmp_path, varied, *given, *longer).attempts) == 2
    with pytest.raises(ConfigError, match="other models; use run=NAME"):
        play(tmp_path, varied, *given, "models.coder.max_tokens=9")


def test_a_run_with_other_settings_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    play(tmp_path, varied, *EVOLVING)
    with pytest.raises(ConfigError, match="other seed; use run=NAME"):
        play(tmp_path, varied, *EVOLVING, "seed=1")
    more = play(tmp_path, varied, *EVOLVING, "budget.attempts=16")  # a budget may grow
    assert len(more.attempts) == 16


def test_equal_candidates_are_evaluated_once_and_are_one_attempt(tmp_path: Path) -> None:
    played = play(
        tmp_path,
        in_turn(kernel(2.0)),
        "strategy=best_of_n",
        "strategy.n=5",
        "proposer=direct",
        "inflight=5",
    )
    assert [str(attempt.status) for attempt in played.attempts] == ["passed", *["duplicate"] * 4]
    assert played.attempts[1].detail == "the same kernel as attempt 0.0"
    bench = played.run.bench
    assert isinstance(bench, ScriptedBench)
    assert len(bench.evaluated) == 1


# ---- what it costs


@pytest.mark.parametrize("most", [1, 3, 7])
@pytest.mark.parametrize("preset", ["crfm", "cuda_llm", "kernelfalcon", "evoengineer_full"])
def test_attempts_never_exceed_their_budget(most: int, preset: str, tmp_path: Path) -> None:
    def answer(request: ModelRequest, count: int) -> str:
        ideas = f'["a {request.id}", "b {request.id}", "c {request.id}"]'
        return ideas if request.prompt.startswith("ideas") else kernel("wrong", about=request.id)

    played = play(tmp_path, answer, f"preset={preset}", f"budget.attempts={most}", "inflight=3")
    assert len(played.attempts) == most
    assert f"{most} attempts were made" in played.stopped


def test_a_spent_budget_of_tokens_ends_a_run_and_leaves_whole_slots(tmp_path: Path) -> None:
    class Costly(ScriptedModels):
        async def answer(self, request: ModelRequest) -> Reply:
            with self.meter.reserve(tokens=100) as held:
                held.settle(tokens=100, usd=None)
                return await super().answer(request)

    import tests.scripted

    given = ["strategy=best_of_n", "proposer=direct", "budget.tokens=350", "strategy.n=20"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tests.scripted, "ScriptedModels", Costly)
        played = play(tmp_path, varied, *given)
    assert "budget.tokens=350" in played.stopped
    assert len(played.attempts) == 3
    assert played.run.meter.spent.tokens <= 350


def test_what_each_attempt_cost_is_the_cost_of_its_calls(tmp_path: Path) -> None:
    fix = '{"problem": "p", "fix": "f", "why": "w", "method": "m", "plan": "q"}'
    played = play(
        tmp_path,
        by_prompt({"direct": [kernel(1.1), kernel(1.2)], "critic_bottleneck": [fix]}),
        "preset=cudaforge",
        "budget.attempts=2",
    )
    assert [attempt.calls for attempt in played.attempts] == [
        ("0/coder#1", "0.0.critic/critic#1"),
        ("1/coder#1", "1.0.critic/critic#1"),
    ]
    assert [attempt.cost.tokens_out for attempt in played.attempts] == [10, 10]
    assert played.attempts[0].cost.usd is None  # nobody knows the price


# ---- how it ends


def test_a_model_that_never_returns_code_ends_in_attempts_without_code(tmp_path: Path) -> None:
    played = play(
        tmp_path,
        in_turn("I would rather not."),
        "strategy=refine",
        "proposer=direct",
        "budget.attempts=3",
    )
    assert [attempt.status for attempt in played.attempts] == [Status.NO_CODE] * 3
    assert played.attempts[0].detail == "the reply holds no code block"
    assert len(played.attempts[0].calls) == 2  # it was asked twice


def test_an_error_after_which_no_call_succeeds_ends_the_run(tmp_path: Path) -> None:
    class Dead(ScriptedModels):
        async def answer(self, request: ModelRequest) -> Reply:
            self.dead = "no such key; set the environment variable KEY"
            raise ModelError(self.dead, final=True)

    import tests.scripted

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tests.scripted, "ScriptedModels", Dead)
        played = play(tmp_path, varied, "strategy=best_of_n", "proposer=direct", "strategy.n=50")
    assert len(played.attempts) == 1
    assert played.stopped == "no such key; set the environment variable KEY"


def test_a_machine_that_cannot_evaluate_stops_the_run_and_costs_it_no_attempt(
    tmp_path: Path,
) -> None:
    """The same run goes on when the machine does, and ends as one that was never stopped."""

    class Short(ScriptedBench):
        def evaluate(self, candidate: Candidate) -> list[Record]:
            if len(getattr(self, "evaluated", [])) == 1:
                raise MachineUnfit("the machine starts no process")
            return super().evaluate(candidate)

    import tests.scripted

    chosen = ("strategy=best_of_n", "proposer=direct", "budget.attempts=3")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tests.scripted, "ScriptedBench", Short)
        with pytest.raises(MachineUnfit):
            play(tmp_path / "stopped", varied, *chosen)
    again = play(tmp_path / "stopped", varied, *chosen)
    whole = play(tmp_path / "whole", varied, *chosen)
    assert [a.digest for a in again.attempts] == [a.digest for a in whole.attempts]
    assert len(again.calls) == len(whole.calls)  # no reply is paid twice


def test_what_breaks_a_constraint_is_rejected_and_not_evaluated(tmp_path: Path) -> None:
    rules = tmp_path / "constraints.yaml"
    rules.write_text(
        "never: [{pattern: goto, why: we cannot read it}]\nresources: {registers: 8}\n"
    )
    replies = [kernel(2.0, about="x").replace("{}", "{ goto a; }"), kernel(1.5)]
    played = play(
        tmp_path / "run",
        in_turn(*replies),
        "strategy=refine",
        "proposer=direct",
        "budget.attempts=2",
        f"constraints={rules}",
    )
    first, second = played.attempts
    assert first.status is Status.REJECTED and "we cannot read it" in first.detail
    assert not first.records
    assert "must not contain: goto (we cannot read it)" in played.text(0)
    assert second.status in (Status.PASSED, Status.REJECTED)  # by what the record says it uses


@pytest.mark.full
def test_the_device_is_busy_while_models_write(tmp_path: Path) -> None:
    """A model takes 1 s, a kernel 0.6 s of the device, four are in flight (here: a tenth)."""
    spans: list[tuple[float, float]] = []

    class Timed(ScriptedBench):
        def evaluate(self, candidate: Candidate) -> list[Record]:
            start = time.perf_counter()
            time.sleep(0.06)
            spans.append((start, time.perf_counter()))
            return super().evaluate(candidate)

    class Writing(ScriptedModels):
        async def answer(self, request: ModelRequest) -> Reply:
            await asyncio.sleep(0.1)
            return await super().answer(request)

    import tests.scripted

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tests.scripted, "ScriptedModels", Writing)
        patch.setattr(tests.scripted, "ScriptedBench", Timed)
        play(
            tmp_path,
            varied,
            "strategy=best_of_n",
            "proposer=direct",
            "strategy.n=40",
            "inflight=4",
            "budget.attempts=40",
        )
    busy = sum(end - start for start, end in spans)
    assert busy / (spans[-1][1] - spans[0][0]) >= 0.8


# ---- what does not go together


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["strategy=bandit", "proposer=direct"], "proposer.actions="),
        (["strategy=bandit", "proposer=direct", "proposer.actions=menu/six"], "feedback.counters="),
        (["strategy=best_of_n", "proposer=contrastive", "strategy.n=1"], "two measured kernels"),
        (["strategy=evolutionary", "proposer=direct"], "proposer=evolve"),
        (["strategy=evolutionary", "proposer=evolve", "strategy.population=1"], "two parents"),
        (["strategy=branching", "proposer=direct"], "proposer=ideas_then_code"),
        (["strategy=mcts_graph", "proposer=direct"], "proposer.actions="),
        (["strategy=mcts_graph", "proposer=direct", "proposer.actions=graph"], "memory=graph"),
        (["strategy=single", "proposer=direct", "models.coder.model="], "models.coder.model="),
        (["strategy=single", "proposer=direct", "proposer.actions=menu/sex"], "did you mean 'six'"),
        (["strategy.turns=0", "strategy=refine", "proposer=direct"], "strategy.turns=0"),
        (["proposer=direct", "strategy=single", "proposer.askss=2"], "did you mean 'asks'"),
        (["budget.atempts=3"], "did you mean 'attempts'"),
        (["budget.tokens=many"], "expected a number"),
        (["inflight=0"], "Got inflight=0, expected a number from 1 to 1000"),
        (["strategy=refin"], "No strategy 'refin'; did you mean 'refine'?"),
        (["preset=crfn"], "No preset 'crfn'; did you mean 'crfm'?"),
        (["target=gfx942", "backend=cuda"], "does not compile for gfx942"),
        (["workloads=huge"], "No workload set 'huge'"),
        (["constraints=none.yaml"], "Cannot read none.yaml"),
        (["approve=ideas", "proposer=direct", "strategy=single"], "proposer=ideas_then_code"),
        (["approve=all"], "No approve mode 'all'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_does_not_go_together_is_said_with_the_way_out(
    given: list[str], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as raised:
        play(tmp_path, varied, *given)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_group_chosen_beside_a_preset_is_its_own_again() -> None:
    options = read(["op=relu", "preset=crfm", "strategy=beam", "strategy.width=3"])
    assert options.strategy["kind"] == "beam"
    assert options.strategy["width"] == 3
    assert "ideas" not in options.strategy
    assert options.proposer["kind"] == "ideas_then_code"


def test_a_role_without_a_model_has_the_coders(tmp_path: Path) -> None:
    plan = plan_of(
        read(
            [
                "op=relu",
                "target=x86_64",
                "preset=stark",
                f"models.coder.model={MODEL}",
                "models.critic.model=openai/other",
                "models.critic.temperature=0",
            ]
        )
    )
    run = GenerationRun(plan, tmp_path)
    assert run.models.role("planner").model == MODEL
    assert run.models.role("planner").temperature == 0.8
    assert run.models.role("critic").model == "openai/other"
    assert run.models.role("critic").temperature == 0.0
