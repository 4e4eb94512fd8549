"""The study of the intervals of `portkern compare`: its truths, its results, and its page."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest

from benchmarks import compare_study
from benchmarks._script import RESULTS
from benchmarks.compare_study import LEAST, MARKS, MOST, SCENARIOS, K
from portkern.experiment.compare.comparison import compare

DOCS = Path(__file__).parents[1] / "docs" / "compare.md"
HELD = ("pass@1", f"pass@{K}", "fast_1", "speedup (geometric)")


@pytest.fixture(scope="module")
def document() -> Any:
    return json.loads((RESULTS / compare_study.RESULTS).read_text(encoding="utf-8"))


def told(document: Any) -> list[tuple[str, str, float]]:
    """Scenario, number and coverage of those that are held to the goal."""
    return [
        (one["name"], name, known["coverage"])
        for one in document["scenarios"]
        for name, known in one["numbers"].items()
        if name.partition(",")[0] in HELD
    ]


def test_intervals_hold_the_true_values_as_often_as_they_say(document: Any) -> None:
    assert document["sweeps"] >= 200
    assert [one["name"] for one in document["scenarios"]] == [one.name for one in SCENARIOS]
    found: dict[str, list[float]] = defaultdict(list)
    for scenario, name, coverage in told(document):
        found[name].append(coverage)
        found[scenario].append(coverage)
    off = {key: fmean(several) for key, several in found.items()}
    assert {key for key, mean in off.items() if not LEAST <= mean <= MOST} == set()


def test_no_single_number_is_further_off_than_chance(document: Any) -> None:
    """Of so many numbers over so few sweeps some are, by chance, a point or two beyond."""
    sweeps = document["sweeps"]
    off = [
        (scenario, name, coverage)
        for scenario, name, coverage in told(document)
        for ends in [binomtest(round(coverage * sweeps), sweeps).proportion_ci(0.998)]
        if ends.high < 0.95 or ends.low > MOST
    ]
    assert off == []


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
