"""Experiments that compare arms on the same tasks find the differences that there are, and no
others."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from portkern.agent.attempt import Attempt, Status
from portkern.agent.llm.calls import ModelRequest
from portkern.agent.log import Log
from portkern.experiment import contrast, statistics
from portkern.experiment.contrast import Contrast, ContrastMeasure
from portkern.experiment.ending import endings
from portkern.experiment.refusal import Refusal, refusal_of
from portkern.guard.rules import RULES, Rule
from tests.scripted import Answer, kernel
from tests.test_experiment import MODELLED, QUICK, Script, patient, read, run

pytestmark = pytest.mark.usefixtures("torch_ahead")

__all__ = ["patient"]  # a fixture of all tests here, too
SHARE, RATIO = ContrastMeasure("share", "share"), ContrastMeasure("ratio", "ratio", ratio=True)
#: As many as three comparisons need to be shown.
OPS = ["relu", "gelu", "softmax", "add", "sum", "rmsnorm", "layernorm"]

# ---- statistics


@given(st.lists(st.floats(-3, 3), min_size=2, max_size=6))
def test_sign_flips_count_the_flips_that_differ_as_much(values: list[float]) -> None:
    flips = [
        abs(sum(s * v for s, v in zip(signs, values, strict=True)))
        for signs in itertools.product((1, -1), repeat=len(values))
    ]
    seen = abs(sum(values))
    expected = sum(flip >= seen * (1 - 1e-9) for flip in flips) / len(flips)
    assert statistics.sign_flips(values) == pytest.approx(expected)


def test_of_many_tasks_signs_are_drawn_and_the_drawn_p_is_near_the_exact_one() -> None:
    values = list(np.random.default_rng(3).normal(0.35, 1, size=14))
    flips = np.array(list(itertools.product((1, -1), repeat=14))) @ np.array(values)
    exact = float(np.mean(np.abs(flips) >= abs(sum(values)) * (1 - 1e-9)))
    assert statistics.sign_flips(values) == pytest.approx(exact, abs=0.02)


def test_holm_has_its_published_values_and_keeps_their_order() -> None:
    assert statistics.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert statistics.holm([]) == []


def test_equal_arms_are_told_apart_no_more_often_than_promised() -> None:
    """There are 200 experiments with ten tasks and three comparisons each, in which nothing
    differs."""
    random = np.random.default_rng(0)
    shown = 0
    for _ in range(200):
        noise = random.normal(size=(3, 10))
        made = [Contrast(SHARE, "a", "b", tuple(row)) for row in noise.tolist()]
        shown += any(one.shown for one in contrast.corrected(made))
    assert shown <= 20  # 10 are expected; more than 20 would come once in 500 times


@pytest.mark.parametrize("count", [1, 3, 24])
def test_with_fewer_tasks_than_needed_nothing_is_shown_and_with_as_many_it_is(count: int) -> None:
    def shown(tasks: int) -> bool:
        made = [Contrast(SHARE, "a", "b", (1.0,) * tasks)] * count
        return any(one.shown for one in contrast.corrected(made))

    least = contrast.tasks_needed(count)
    assert shown(least)
    assert not shown(least - 1)


def test_a_difference_is_told_in_its_own_unit_or_not_at_all() -> None:
    def row(measure: ContrastMeasure, *pairs: float) -> tuple[str, ...]:
        return contrast.table(contrast.corrected([Contrast(measure, "a", "b", pairs)])).rows[0]

    assert row(SHARE, *[0.5] * 6)[3:] == ("+50 [50, 50]", "0.031", "0.031", "a is better")
    assert row(RATIO, *[float(np.log(0.5))] * 6)[3] == "0.50× [0.50, 0.50]"
    assert row(RATIO, *[-1.0] * 6)[-1] == "a is worse"
    assert row(RATIO)[2:] == ("0", "not timed", "–", "–", "not timed")
    assert row(SHARE, 1.0)[-1] == "one task does not tell"
    assert row(SHARE, 1.0, -1.0)[-1] == "no difference shown"


# ---- arms that differ by construction


def worth(by_arm: Mapping[str, str | float]) -> dict[str, Answer]:
    """Answers by job; every kernel of an arm and an op is worth the same."""

    def answer(op: str, value: str | float) -> Answer:
        return lambda request, count: kernel(value, op, about=f"number {count}")

    return {f"{op}-{arm}": answer(op, v) for op in OPS for arm, v in by_arm.items()}


def ask(tmp_path: Path, name: str, *more: str, ops: list[str] = OPS) -> dict[str, Any]:
    return run(tmp_path, f"name={name}", f"ops=[{','.join(ops)}]", *MODELLED, *more)


def verdicts(told: Mapping[str, Any], part: str = "contrasts") -> dict[tuple[str, ...], str]:
    return {
        (one["arm"], one["than"], one["measure"]): one["verdict"] for one in told["results"][part]
    }


@pytest.mark.full
def test_a_profile_that_helps_is_found_to_help(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Script(monkeypatch, worth({"prompt": 1.0, "profile": 2.0}))
    told = ask(tmp_path, "profiling", "arms=[prompt,profile]", "turns=1")
    found = verdicts(told)
    assert found["profile", "prompt", "speedup"] == "profile is better"
    assert found["profile", "prompt", "solved"] == "no difference shown"
    [speedup] = [one for one in told["results"]["contrasts"] if one["measure"] == "speedup"]
    assert speedup["ratio"]["value"] == pytest.approx(2.0)
    assert "a difference is shown in speedup 2.00× [2.00, 2.00]." in told["answer"]
    assert "No model wrote" not in str(told["notes"])


@pytest.mark.full
def test_knowledge_that_does_nothing_is_not_found_to_help(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Script(monkeypatch, worth({"off": 1.2, "kb": 1.2, "bm25": "wrong"}))
    told = ask(tmp_path, "knowledge", "arms=[off,kb,bm25]", "turns=1", ops=OPS[:3])
    assert set(verdicts(told).values()) == {"no difference shown", "not timed"}
    assert told["answer"].count("no difference shown") == 2
    assert "speedup not timed" in told["answer"]  # bm25 has nothing that was timed: it is not 0
    assert "3 tasks cannot show a difference in 5 comparisons" in told["notes"][0]
    page = (tmp_path / "it" / "experiment.md").read_text()
    assert "| bm25 | shipped kernels that are alike, looked up by words | 3 | 3 |" in page
    assert "| not timed |" in page


@pytest.mark.full
def test_arms_see_what_their_names_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Script(monkeypatch, worth({"plain": 1.0, "prompt": 1.0, "profile": 1.0}))
    ask(tmp_path, "profiling", "turns=2", ops=["relu"])

    def second(arm: str) -> str:
        lines = (tmp_path / "it" / f"relu-{arm}-0" / "calls.jsonl").read_text().splitlines()
        return str(json.loads(lines[1])["messages"])

    plain, prompt, profile = map(second, ("plain", "prompt", "profile"))
    assert "Hints:" not in plain and "Hints:" not in profile
    assert "int" in prompt and len(prompt) > len(plain) + 500  # hints, and other kernels
    plans = {job.arm: plan for job, plan in _planned("name=profiling")}
    assert plans["profile"].axes["feedback"]["counters"] == "any"
    assert plans["prompt"].axes["feedback"]["counters"] == "none"
    budgets = {plan.budget.attempts for plan in plans.values()}
    assert budgets == {10}


def _planned(*more: str) -> list[tuple[Any, Any]]:
    asked = read(*more, "op=relu", *MODELLED)
    return list(zip(asked.jobs, asked.plans, strict=True))


def test_hints_decide_a_run() -> None:
    plans = {job.arm: plan.decisive for job, plan in _planned("name=profiling")}
    assert plans["plain"]["hints"] is False
    assert "hints" not in plans["prompt"]


# ---- a loop on several targets

PLACES = ["backends=[cpu,triton]", "targets=[x86_64,sm_90]"]
ELSEWHERE = [one for one in MODELLED if not one.startswith(("target=", "backend="))]


@pytest.mark.full
def test_a_loop_that_gains_in_one_place_alone_is_found_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ops = [*OPS, "silu_mul", "bias_gelu"]

    def written(op: str, where: str, value: str | float) -> Answer:
        if where == "cpu.x86_64":
            return lambda request, count: kernel(value, op, about=f"number {count}")
        body = f"import triton\n# worth {value}\ndef {op}(): pass\n"
        return lambda request, count: f"```python\n{body}# number {count}\n```"

    worths: dict[tuple[str, str], str | float] = {
        ("cpu.x86_64", "samples"): "wrong",
        ("cpu.x86_64", "loop"): 1.5,
        ("triton.sm_90", "samples"): 1.5,
        ("triton.sm_90", "loop"): 1.5,
    }
    Script(
        monkeypatch,
        {
            f"{op}-{where}-{arm}": written(op, where, value)
            for op in ops
            for (where, arm), value in worths.items()
        },
    )
    told = run(tmp_path, "name=transfer", f"ops=[{','.join(ops)}]", "turns=1", *PLACES, *ELSEWHERE)
    found = {
        (one["where"], one["than"], one["measure"]): one["verdict"]
        for one in told["results"]["contrasts"]
    }
    assert found["cpu.x86_64", "samples", "solved"] == "loop is better"
    assert found["triton.sm_90", "samples", "solved"] == "no difference shown"
    assert found["cpu.x86_64", "samples", "speedup"] == "not timed"
    across = verdicts(told, "across")
    assert across["triton.sm_90", "cpu.x86_64", "solved"] == "triton.sm_90 is worse"
    assert "The gain differs from that on cpu.x86_64 on triton.sm_90 (solved)." in told["answer"]


def test_each_place_has_the_same_tasks_and_budget() -> None:
    asked = read("name=transfer", "ops=[relu,sum]", "turns=4", *PLACES, *ELSEWHERE)
    assert len(asked.jobs) == 2 * 2 * 2
    assert {job.name for job in asked.jobs} >= {
        "relu-cpu.x86_64-loop-0",
        "sum-triton.sm_90-samples-0",
    }
    assert {plan.budget.attempts for plan in asked.plans} == {4}
    assert {(p.task.backend.name, p.task.target.name) for p in asked.plans} == {
        ("cpu", "x86_64"),
        ("triton", "sm_90"),
    }


# ---- cheats


def refused(status: str, detail: str, *records: str) -> Attempt:
    return Attempt(
        id="0.0", slot=0, number=0, op="relu", target="x86_64", backend="cpu",
        status=Status(status), detail=detail, records=records,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("status", "detail", "group", "kind", "cheat"),
    [
        ("rejected", "relu.cpp:3: G301 lets a framework's operator do the work: at::relu(x)",
         "leaves the work to others", "G301 lets a framework's operator do the work", True),
        ("rejected", "relu.cpp:3: G402 runs code when it is loaded: int x = f(G101);",
         "breaks the contract", "G402 runs code when it is loaded", False),
        ("rejected", "relu.cpp:3: G401 relaxes floating point: x:4: G101 y\n"
         "my relu.cpp:9: G204 reaches for the evaluator's own code: z",
         "reaches for the evaluator", "G204 reaches for the evaluator's own code", True),
        ("rejected", "aten::relu did the work; torch_ops=allow accepts it",
         "leaves the work to others", "a library or framework works", True),
        ("rejected", "it launched no kernel, expected at least one",
         "leaves the work to others", "launches no kernel", True),
        ("suspicious", "it took 0.3 us, 12 times less than 'copy' (4 TB/s)\nmore",
         "is not believed", "it took … us, … times less than … …", True),
    ],
)  # fmt: skip
def test_a_refusal_is_told_by_its_kind(
    status: str, detail: str, group: str, kind: str, cheat: bool
) -> None:
    assert refusal_of(refused(status, detail, "record")) == Refusal(group, kind, cheat)


@pytest.mark.parametrize("status", ["wrong", "build_failed", "passed", "no_code"])
def test_what_failed_honestly_is_not_a_cheat(status: str) -> None:
    assert refusal_of(refused(status, "relu.cpp:3: G301 lets", "record")) is None


def test_who_does_not_keep_the_users_own_constraints_does_not_cheat() -> None:
    assert refusal_of(refused("rejected", "it uses tl.dot, which must_not_use names")) is None


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_a_cheat_breaks_a_rule_about_the_machine_the_evaluator_or_the_work(rule: Rule) -> None:
    hit = f"relu.cpp:1: {rule.id} {rule.title}: x"
    log = Log()
    log.add([refused("rejected", hit, "record")])
    [end] = endings(log, frozenset())
    assert bool(end.cheat) == rule.id.startswith(("G1", "G2", "G3"))


def author(worth: str | float) -> Answer:
    """An author of kernels for whatever operator it is asked for."""

    def answer(request: ModelRequest, count: int) -> str:
        [op] = set(re.findall(r"The entry is named (\w+)\.", str(request.messages)))
        return kernel(worth, op, about=str(count))

    return answer


@pytest.mark.full
def test_a_model_that_cheats_is_told_from_one_that_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ops = OPS[:6]

    Script(monkeypatch, {"bad": author("rejected"), "good": author(1.0)})
    arms = "arms=[openai/bad,openai/good]"
    places = ["backends=[cpu]", "targets=[x86_64]"]
    given = [one for one in ELSEWHERE if not one.startswith("models")]
    told = run(tmp_path, "name=cheating", f"ops=[{','.join(ops)}]", "n=1", arms, *places, *given)
    bad, good = (told["results"]["arms"][f"openai/{name}"] for name in ("bad", "good"))
    assert (bad["samples"], bad["cheats"], good["cheats"]) == (6, 6, 0)
    assert good["rate"]["ci95"][1] == pytest.approx(0.3903, abs=1e-3)  # Wilson's for 0 of 6
    assert verdicts(told)["openai/bad", "openai/good", "cheats"] == "openai/bad is worse"
    assert "A difference is shown between openai/bad and openai/good." in told["answer"]


# ---- the author without a model


@pytest.mark.drawn
def test_without_a_model_the_report_says_what_it_cannot_show(tmp_path: Path) -> None:
    told = run(tmp_path, "name=knowledge", "ops=[relu]", "arms=[off,kb]", "turns=1", *QUICK)
    assert "the catalogue's author turns knobs and reads no prompt" in told["notes"][0]
    said = set(verdicts(told).values())
    # a figure of times is missing where the machine was too busy to take any
    assert "one task does not tell" in said <= {"one task does not tell", "not timed"}
    assert "no difference shown" in told["answer"]


@pytest.mark.drawn
def test_honest_kernels_are_not_accused(tmp_path: Path) -> None:
    given = [one for one in QUICK if not one.startswith(("target=", "backend="))]
    told = run(tmp_path, "name=cheating", "ops=[relu,sum]", "n=2", "backends=[cpu]", *given)
    assert told["results"]["arms"]["the catalogue"]["cheats"] == 0
    assert "honest kernels are accused" in told["notes"][0]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["name=transfer", "op=relu", "target=x86_64"], "in several places; use targets="),
        (["name=search", "op=relu", "backends=[cpu]"], "choose it with backend="),
        (["name=transfer", "op=relu", "backends=[cpu]", "targets=[sm_90]"],
         "No target of sm_90 is one that cpu compiles for"),
        (["name=profiling", "op=relu", "hints=false"], "for one of plain, prompt, profile set"),
        (["name=knowledge", "op=relu", "arms=[kp]"], "No arm 'kp'; available: bm25, embed, kb"),
    ],
)  # fmt: skip
def test_questions_that_make_no_sense(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from portkern.cli import main

    assert main.run(["experiment", *argv, f"reports={tmp_path}"]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
