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
from benchmarks.compare_study import LEAST, MARKS, MOST, SCENARIOS, K, Scenario
from portkern.experiment.compare.comparison import SampleScope, compare
from portkern.experiment.compare.design import Design
from portkern.experiment.statistics import least_p

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


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.name)
def test_true_values_are_those_of_a_sweep_without_end(scenario: Scenario) -> None:
    endless = replace(scenario, ops=300, n=K, places=1)
    sweep = compare_study.drawn(endless, np.random.default_rng(7))
    found, true = compare_study.estimates(sweep).numbers, compare_study.truths(endless)
    assert found.keys() == true.keys() and len(found) == 15
    for name, estimate in found.items():
        low, high = estimate.ends
        assert abs(estimate.value - true[name]) < 2 * (high - low), name  # eight standard errors


@pytest.mark.parametrize("scenario", [SCENARIOS[1], SCENARIOS[4]], ids=lambda one: one.name)
def test_the_study_has_the_numbers_of_the_comparison(scenario: Scenario) -> None:
    sweep = compare_study.drawn(replace(scenario, ops=8), np.random.default_rng([3, 4]))
    ours, theirs = compare_study.estimates(sweep), compare(compare_study.samples(sweep), ks=[1, K])
    columns = {
        "pass@1": ("pass", 1, None),
        f"pass@{K}": ("pass", K, None),
        "fast_1": ("fast", 1, 1.0),
        "speedup (geometric)": ("speedup_geometric", 1, None),
        "speedup (of correct ones)": ("speedup_correct_geometric", 1, None),
        "speedup (arithmetic)": ("speedup_arithmetic", 1, None),
    }
    for name, (metric, k, p) in columns.items():
        for model in compare_study.MODELS:
            figure = theirs.figure(SampleScope(model, "measured"), metric, k, p)
            assert figure and figure.estimate
            own = ours.numbers[f"{name}, {model}"]
            assert (own.value, *own.ends) == pytest.approx(
                (figure.estimate.value, *figure.estimate.ends)
            )
    for one in theirs.differences:
        known = {"pass": "pass@1", "fast": "fast_1"}.get(one.metric, "speedup (geometric)")
        better = bool(one.estimate and one.estimate.value > (one.metric == "speedup_geometric"))
        assert ours.shown[f"{one.metric}@{one.k}"] == (one.shown and better)
        if one.k == 1 and one.estimate:
            own = ours.numbers[f"{known}, difference"]
            assert (own.value, *own.ends) == pytest.approx((one.estimate.value, *one.estimate.ends))


def test_a_sweep_is_equal_for_an_equal_seed() -> None:
    one, other = (
        compare_study.drawn(SCENARIOS[1], np.random.default_rng([3, 4])) for _ in range(2)
    )
    assert (one.right == other.right).all() and (one.logs == other.logs).all()


def test_intervals_of_a_fresh_study_hold_the_true_values() -> None:
    found = compare_study.study(SCENARIOS[0], sweeps=40, seed=12345)["numbers"]
    low = {name: one["coverage"] for name, one in found.items() if one["coverage"] < 0.85}
    assert not low


@pytest.mark.parametrize("scenario", SCENARIOS[:5], ids=lambda one: one.name)
def test_a_plan_foretells_how_often_the_study_shows_a_difference(
    scenario: Scenario, document: Any
) -> None:
    strong, weak = scenario.first, scenario.second
    design = Design(
        strong.passed - weak.passed,
        weak.passed,
        spread=sum(1 / (one.a + one.b + 1) for one in (strong, weak)) / 2,
        alike=compare_study.ALIKE,
        places=scenario.places,
        tests=4,
    )
    [found] = [one for one in document["scenarios"] if one["name"] == scenario.name]
    expected = design.chance(scenario.ops, scenario.n)
    assert expected == pytest.approx(found["shown"]["pass@1"], abs=0.1)


def test_a_plan_for_a_small_difference_takes_no_room_for_each_sign() -> None:
    assert least_p(10**12) == least_p(30) == 1 / 10_000
    assert 40_000 < (Design(0.01, 0.4, spread=0.25, alike=0.6, tests=4).fewest_ops(1) or 0) < 80_000
    assert Design(1e-6, 0.4, spread=0.25, alike=0.6, tests=4).fewest_ops(1) is None


def test_a_plan_finds_the_fewest_operators_and_the_least_difference() -> None:
    design = Design(0.1, 0.4, spread=0.25, alike=0.6, tests=4)
    ops = design.fewest_ops(10)
    assert ops and design.chance(ops, 10) >= 0.8 > design.chance(ops - 1, 10)
    least = design.least_difference(40, 10)
    assert least and replace(design, wanted=least).chance(40, 10) == pytest.approx(0.8, abs=0.01)
    assert design.chance(40, 20) > design.chance(40, 10) > design.chance(20, 10)
    assert replace(design, tests=12).chance(8, 1000) == 0  # 8 operators and 12 tests show nothing
    assert replace(design, tests=12).least_difference(8, 1000) is None
    # However many samples there are, operators differ.
    assert design.chance(8, 10**6) < 0.5
