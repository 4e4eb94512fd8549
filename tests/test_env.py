"""Environments: what is rewarded, and what has no reward."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from portkern.errors import ConfigError, WorkerError
from portkern.execution.plan import ExecutionPlan
from portkern.records.record import Evidence, Record, Verdict
from tests.report_records import make

pytest.importorskip("gymnasium", reason="the package gymnasium is not installed")

from gymnasium.utils.env_checker import check_env

from portkern.env import (
    Decisions,
    EvaluationPlace,
    KernelEnv,
    MacroEnv,
    Unavailable,
    trl_reward,
)

RELU = """Here it is.

```cpp
#include <cstdint>
extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) y[i] = x[i] > 0 || x[i] != x[i] ? x[i] : 0;
    return 0;
}
```
"""


def ended(verdict: Verdict) -> Record:
    evidence = Evidence.VERIFIED if verdict is Verdict.PASSED else Evidence.NONE
    return make(
        verdict=verdict, evidence=evidence, timing=None, speedup={}, missing="why", detail="first"
    )


def env(tmp_path: Path, verdicts: Mapping[str, Verdict] | Verdict, **options: Any) -> KernelEnv:
    """One whose attempts end so, by target."""
    made = KernelEnv("relu", reports=tmp_path, served=False, **options)

    def evaluate(plan: ExecutionPlan) -> list[Record]:
        return [
            ended(verdicts if isinstance(verdicts, Verdict) else verdicts[cell.target])
            for cell in plan.cells
        ]

    made.judge._evaluate = evaluate
    return made


@pytest.mark.parametrize("turns", [1, 4])
def test_gymnasiums_checker_passes_it(tmp_path: Path, turns: int) -> None:
    check_env(env(tmp_path, Verdict.BUILD_FAILED, turns=turns), skip_render_check=True)


def test_a_right_kernel_is_rewarded_and_a_wrong_one_is_not(tmp_path: Path) -> None:
    right = env(tmp_path, Verdict.PASSED, turns=2)
    prompt, info = right.reset(seed=1)
    assert "relu" in prompt and info["messages"][-1]["role"] == "user"
    seen, reward, terminated, truncated, info = right.step(RELU)
    assert (reward, terminated, truncated, info["right"]) == (0.3, False, False, True)
    assert right.step(RELU)[2:4] == (True, False)
    seen, reward, *_ = env(tmp_path, Verdict.WRONG).step(RELU)
    assert reward == 0
    assert "wrong at ci/" in seen and "first" in seen


def test_an_episode_ends_with_a_right_kernel_where_that_is_asked(tmp_path: Path) -> None:
    made = env(tmp_path, Verdict.PASSED, turns=4, until_right=True)
    made.reset(seed=1)
    assert made.step(RELU)[2:4] == (True, False)


def test_one_source_is_rewarded_for_being_right_everywhere(tmp_path: Path) -> None:
    places = ["cpu@x86_64", "cpu@x86_64_avx2"]
    both = {"x86_64": Verdict.PASSED, "x86_64_avx2": Verdict.PASSED}
    one = both | {"x86_64_avx2": Verdict.WRONG}
    assert env(tmp_path, both, places=places).step(RELU)[1] == 1
    assert env(tmp_path, one, places=places).step(RELU)[1] == 0


@pytest.mark.parametrize("verdict", [Verdict.UNAVAILABLE, Verdict.UNSUPPORTED])
def test_what_could_not_be_evaluated_raises_and_costs_no_turn(
    tmp_path: Path, verdict: Verdict
) -> None:
    made = env(tmp_path, verdict)
    made.reset(seed=1)
    with pytest.raises(Unavailable):
        made.step(RELU)
    assert made.turn == 0


@pytest.mark.parametrize("error", [WorkerError("no worker starts"), IndexError("nobody foresaw")])
def test_a_machine_or_an_evaluator_that_fails_raises_and_costs_no_turn(
    tmp_path: Path, error: Exception
) -> None:
    made = env(tmp_path, Verdict.PASSED)
    made.reset(seed=1)

    def evaluate(plan: ExecutionPlan) -> list[Record]:
        raise error

    made.judge._evaluate = evaluate
    with pytest.raises(Unavailable, match=str(error)):
        made.step(RELU)
    assert made.turn == 0


def test_sizes_are_drawn_by_the_seed_and_are_not_only_those_that_are_told(tmp_path: Path) -> None:
    def sizes(seed: int, **options: Any) -> list[list[str]]:
        asked: list[list[str]] = []
        made = env(tmp_path, Verdict.PASSED, turns=9, **options)

        def evaluate(plan: ExecutionPlan) -> list[Record]:
            asked.append([f"{cell.workload_set}/{cell.workload}" for cell in plan.cells])
            return [ended(Verdict.PASSED) for _ in plan.cells]

        made.judge._evaluate = evaluate
        made.reset(seed=seed)
        for _ in range(6):
            made.step(RELU)
        return asked

    assert sizes(1) == sizes(1)
    assert sizes(1) != sizes(2)
    assert len({tuple(some) for some in sizes(1)}) > 1
    assert all(one.startswith("ci/") for some in sizes(1, hidden=False) for one in some)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"places": ["cpu"]}, "BACKEND@TARGET"),
        ({"places": ["cpu@gfx942"]}, "does not compile"),
        ({"places": []}, "a place"),
        ({"reward": "kevim"}, "did you mean 'kevin'"),
        ({"reward": "kevin", "places": ["cpu@x86_64", "cpu@x86_64_avx2"]}, "expected portability"),
        ({"turns": 0}, "a turn"),
    ],
)
def test_what_cannot_be_an_environment_says_why(
    tmp_path: Path, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        KernelEnv("relu", reports=tmp_path, **options)


def test_an_episode_is_of_one_of_several_operators(tmp_path: Path) -> None:
    made = KernelEnv(["relu", "gelu", "add"], reports=tmp_path, served=False)
    seen = {made.reset(seed=seed)[1]["op"] for seed in range(12)}
    assert seen == {"relu", "gelu", "add"}
    assert made.reset(options={"op": "add"})[1]["op"] == "add"
    with pytest.raises(ConfigError, match="expected one of relu, gelu, add"):
        made.reset(options={"op": "softmax"})


def test_decisions_are_assembled_to_a_source(tmp_path: Path) -> None:
    decisions = Decisions({"bound": ("n", "n - 1")}, lambda chosen: f"i < {chosen['bound']}")
    made = MacroEnv(env(tmp_path, Verdict.PASSED), decisions)
    made.reset(seed=1)
    assert decisions.assembled([1]) == "i < n - 1"
    assert made.step(np.array([1]))[1] == 0.3
    for odd in ([2], [-1], [], [0, 0]):
        with pytest.raises(ConfigError):
            decisions.assembled(odd)


def test_a_place_is_written_as_it_is_read() -> None:
    assert str(EvaluationPlace.parse("hip@gfx942")) == "hip@gfx942"


def test_trainers_get_a_reward_for_each_reply_and_none_where_there_was_no_verdict(
    tmp_path: Path,
) -> None:
    made = KernelEnv(["relu", "gelu"], reports=tmp_path, served=False)
    sizes: list[list[str]] = []

    def evaluate(plan: ExecutionPlan) -> list[Record]:
        sizes.append([cell.workload for cell in plan.cells])
        [kernel] = plan.kernels.values()
        words = {"away": Verdict.UNAVAILABLE, "right": Verdict.PASSED}
        verdict = next((v for word, v in words.items() if word in kernel.source), Verdict.WRONG)
        return [ended(verdict) for _ in plan.cells]

    made.judge._evaluate = evaluate
    replies = [RELU.replace("n)", f"n) /* {word} */") for word in ("right", "off", "away")]
    chats = [[{"role": "assistant", "content": reply}] for reply in replies]
    reward = trl_reward(made)
    assert reward(["?"] * 3, replies) == [0.3, 0.0, None]
    assert reward(prompts=["?"] * 3, completions=chats, op=["relu"] * 3) == [0.3, 0.0, None]
    assert sizes[0] == sizes[1] == sizes[2]
    assert sizes[3] == sizes[4] == sizes[5]


@pytest.mark.full
def test_a_kernel_is_evaluated_in_truth(tmp_path: Path) -> None:
    made = KernelEnv("relu", reports=tmp_path, turns=3, served=False)
    made.reset(seed=1)
    assert made.step(RELU)[1] == 0.3
    seen, reward, *_ = made.step(RELU.replace("i < n", "i < n - 1"))
    assert (reward, "wrong" in seen) == (0, True)
    seen, reward, *_ = made.step("I cannot do this.")
    assert (reward, "build_failed" in seen) == (0, True)
    assert (tmp_path / "env" / "records.jsonl").is_file()
