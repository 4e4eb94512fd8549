"""Models with different counts of tasks and samples, and samples that nobody timed."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path

import pytest

from portkern.agent.attempt import UNTIMED, Status, score, why_unscored
from portkern.cli.verbs import compare as verb
from portkern.experiment.compare.comparison import ModelComparison, compare
from portkern.experiment.compare.page import words
from portkern.experiment.compare.result import SampleScope
from portkern.experiment.compare.sample import Sample
from portkern.experiment.compare.sweep import Sweep
from portkern.records.jsonl import LineFile
from tests import report_records


def row(model: str, op: str, index: int, status: str = "passed", **more: object) -> Sample:
    evidence = "measured" if status == "passed" else ""
    given = {"backend": "cpu", "target": "x86_64", "evidence": evidence, **more}
    return Sample.model_validate(
        {"model": model, "op": op, "index": index, "status": status, **given}
    )


def timed(model: str, op: str, index: int, speedup: float | None, **more: object) -> Sample:
    us = 100 / speedup if speedup else None
    share = speedup / 10 if speedup else None
    baseline = "eager" if speedup else ""
    found = {"speedup": speedup, "us": us, "efficiency": share, "baseline": baseline, **more}
    return row(model, op, index, "passed", **found)


def board(comparison: ModelComparison) -> dict[str, dict[str, str]]:
    table = words.board(comparison, "measured", interval=False)
    assert table is not None
    return {one[0]: dict(zip(table.head, one, strict=True)) for one in table.rows}


def written(folder: Path, name: str, counts: Mapping[str, list[bool]]) -> str:
    """A result file of KernelBench's."""
    results = {
        problem: [
            {
                "sample_id": at,
                "compiled": True,
                "correctness": right,
                "metadata": {"hardware": "NVIDIA H100"},
                "runtime": 0.5 if right else -1.0,
                "runtime_stats": {},
            }
            for at, right in enumerate(several)
        ]
        for problem, several in counts.items()
    }
    (folder / f"{name}.json").write_text(json.dumps(results))
    return str(folder / f"{name}.json")


UNEQUAL = {
    "five of some, two of one": (
        {"1": [False] * 4 + [True], "2": [False] * 5, "3": [True, False], "4": [True] * 5},
        {"1": [True] * 5, "2": [True] * 5},
        2,
    ),
    "one sample of one": ({"1": [True], "2": [False] * 3}, {"1": [True] * 3}, 1),
    "equal": ({"1": [True] * 3, "2": [False] * 3}, {"1": [True] * 3, "2": [False] * 3}, 3),
}


@pytest.mark.parametrize("name", UNEQUAL)
def test_counts_stand_beside_each_model_and_the_headline_is_of_what_all_have(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, k = UNEQUAL[name]
    files = [written(tmp_path, "gpt", first), written(tmp_path, "opus", second)]
    about = ["track=false", "run=it", f"reports={tmp_path}"]
    assert verb.main([f"results=[{','.join(files)}]", *about]) == 0
    said = capsys.readouterr().out
    rows, _ = LineFile(tmp_path / "it" / "samples.jsonl", Sample.from_json).read()
    found = board(compare(rows))
    assert next(iter(found)) == "gpt"  # which has all tasks
    unequal = len(first) != len(second)
    of = f"{len(second)} of {len(first)}" if unequal else str(len(first))
    assert (found["gpt"]["tasks"], found["opus"]["tasks"]) == (str(len(first)), of)
    assert f"pass@{k}" in found["gpt"] and "none" not in found["gpt"].values()
    assert found["gpt"]["cheats"] == found["opus"]["cheats"] == "not looked for"
    assert f"pass@{k}" in said and ("Models have different tasks" in said) == unequal


def test_models_without_a_task_in_common_are_told_so() -> None:
    rows = [row("a", "relu", 0), row("b", "gelu", 0)]
    assert any("No task is one of all 2 models" in note for note in compare(rows).notes)


def test_what_was_not_timed_is_missing_in_all_numbers_alike() -> None:
    quiet = [timed("a", op, i, 2.0) for op in ("relu", "gelu", "sum") for i in range(4)]
    noisy = [
        one.model_copy(update={"speedup": None, "us": None, "efficiency": None})
        if one.index % 2
        else one
        for one in quiet
    ]
    for metric, p in (("fast", 1.0), ("speedup_geometric", None), ("efficiency", None)):
        values = []
        for rows in (quiet, noisy):
            figure = compare(rows).figure(SampleScope("a", "measured"), metric, 1, p)
            assert figure is not None and figure.estimate is not None, metric
            values.append(figure.estimate.value)
        assert values[0] == pytest.approx(values[1]), metric
    figure = compare(noisy).figure(SampleScope("a", "measured"), "fast", 1, 1.0)
    assert figure is not None and "6 of 12 correct samples" in figure.reason
    assert "missing" in figure.reason


def test_a_task_of_which_no_time_is_known_is_missing_and_one_that_failed_is_not() -> None:
    rows = [
        *(timed("a", "relu", i, 2.0) for i in range(2)),
        *(timed("a", "gelu", i, None) for i in range(2)),
        *(row("a", "sum", i, "wrong") for i in range(2)),
    ]
    figure = compare(rows).figure(SampleScope("a", "measured"), "fast", 1, 1.0)
    assert figure is not None and figure.estimate is not None
    assert figure.estimate.value == pytest.approx(0.5) and figure.tasks == 2


@pytest.mark.parametrize("seed", range(6))
def test_portability_has_one_value_on_the_leaderboard_and_at_the_cascades_end(seed: int) -> None:
    draw = random.Random(seed)
    rows = []
    for op in ("relu", "gelu", "sum", "softmax"):
        for target in ("x86_64", "x86_64_avx512", "opencl_generic"):
            for i in range(3):
                kind = draw.random()
                place = {"target": target, "device": "CPU"}
                if kind < 0.3:
                    rows.append(row("a", op, i, "wrong", target=target))
                else:
                    speedup = None if kind < 0.4 else draw.uniform(0.5, 3)
                    rows.append(timed("a", op, i, speedup, **place))
    comparison = compare(rows)
    for cascade in comparison.cascades:
        figure = comparison.figure(SampleScope("a", "measured"), f"pp_{cascade.kind}")
        assert figure is not None
        value = figure.estimate.value if figure.estimate else None
        assert cascade.value == (None if value is None else pytest.approx(value))
        if value is not None:
            assert cascade.steps[-1].portability == pytest.approx(value)


def test_siblings_are_scored_on_all_workloads_or_not_at_all() -> None:
    records = [report_records.make() for _ in range(3)]
    whole = {"a": 2.0, "b": 2.0, "c": 2.0}
    assert not why_unscored(records, whole) and score(Status.PASSED, whole) == pytest.approx(2.0)
    assert why_unscored(records, {"a": 9.0}).startswith("not scored: 2 of 3 workloads")
    assert not why_unscored(records, {})  # where nothing is timed
    assert score(Status.PASSED, {}) == UNTIMED


def test_only_what_can_be_timed_is_timed_once_more() -> None:
    assert Sweep.untimed(timed("a", "relu", 0, None))
    assert not Sweep.untimed(timed("a", "relu", 0, 1.5))
    assert not Sweep.untimed(row("a", "relu", 0, "wrong"))
    assert not Sweep.untimed(row("a", "relu", 0, evidence="emulated"))
