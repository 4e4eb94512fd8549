"""The study of the intervals of `portkern compare`: its truths, its results, and its page."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import compare_study
from benchmarks._script import RESULTS
from benchmarks.compare_study import LEAST, MARKS, MOST, SCENARIOS, K
from portkern.experiment.compare.comparison import compare

DOCS = Path(__file__).parents[1] / "docs" / "compare.md"


@pytest.fixture(scope="module")
def document() -> Any:
    return json.loads((RESULTS / compare_study.RESULTS).read_text(encoding="utf-8"))


def test_each_interval_holds_the_true_value_as_often_as_it_says(document: Any) -> None:
    assert document["sweeps"] >= 1000
    assert [one["name"] for one in document["scenarios"]] == [one.name for one in SCENARIOS]
    held = {
        (one["name"], name): known["coverage"]
        for one in document["scenarios"]
        for name, known in one["numbers"].items()
    }
    assert len(held) == len(SCENARIOS) * 15
    assert {key: held[key] for key in held if not LEAST <= held[key] <= MOST} == {}


def test_the_stronger_model_ranks_first_and_equal_ones_are_not_told_apart(document: Any) -> None:
    found = {one["name"]: one for one in document["scenarios"]}
    assert found["middling"]["stronger_first"] > 0.99
    assert found["middling"]["shown"]["any"] > 0.6
    # Of all differences of two equal models together, after the correction.
    assert found["equal"]["shown"]["any"] < 0.07


def test_the_page_has_the_table_of_the_results(document: Any) -> None:
    _, _, rest = DOCS.read_text(encoding="utf-8").partition(MARKS[0])
    assert rest.partition(MARKS[1])[0].strip().splitlines() == compare_study.table(document)


@pytest.mark.sampled()
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.name)
def test_true_values_are_those_of_a_sweep_without_end(scenario: compare_study.Scenario) -> None:
    endless = replace(scenario, ops=300, n=K, places=1)
    sweep = compare_study.samples(endless, np.random.default_rng(7))
    found = list(compare_study._numbers(compare(sweep, ks=[1, K]), endless))
    for name, estimate, truth in found:
        low, high = estimate.ends
        assert abs(estimate.value - truth) < 2 * (high - low), name  # eight standard errors
    assert len(found) == 15


def test_a_sweep_is_equal_for_an_equal_seed() -> None:
    one, other = (
        compare_study.samples(SCENARIOS[1], np.random.default_rng([3, 4])) for _ in range(2)
    )
    assert one == other


@pytest.mark.full
def test_intervals_of_a_fresh_study_hold_the_true_values() -> None:
    found = compare_study.study(SCENARIOS[0], sweeps=40, seed=12345)["numbers"]
    low = {name: one["coverage"] for name, one in found.items() if one["coverage"] < 0.85}
    assert not low
