"""Samples into medians and ratios with honest intervals."""

from __future__ import annotations

import random
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portkern.evaluator import inputs, statistics
from portkern.evaluator.clock_check import TimedRound
from portkern.evaluator.interleaved_timing import InterleavedTiming
from portkern.evaluator.statistics import (
    KEPT,
    TimingPlan,
    floor_us,
    median_ci,
    modes,
    noise,
    noisy,
    observations,
    roofline,
    speedup,
    speedup_of_rounds,
    summarize,
)
from portkern.evaluator.timed_draws import TimedInputs
from portkern.records.record import Speedup
from portkern.spec.target import load


def test_a_summary_keeps_order_statistics_of_many_samples() -> None:
    timing = summarize([list(range(10_000))], "clock")
    assert (timing.n, len(timing.samples), timing.samples[0], timing.samples[-1]) == (
        10_000,
        KEPT,
        0,
        9999,
    )
    assert timing.median_us == pytest.approx(4999.5)


@given(st.lists(st.floats(0.1, 1e6), min_size=1, max_size=300))
def test_quantiles_are_ordered_and_within_the_samples(samples: list[float]) -> None:
    timing = summarize([samples], "clock")
    assert min(samples) <= timing.p20_us <= timing.median_us <= timing.p80_us <= max(samples)


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 1000))
def test_the_interval_holds_the_true_ratio(seed: int) -> None:
    rng = np.random.default_rng(seed)
    kernel, baseline = rng.normal(10, 0.3, 60), rng.normal(20, 0.6, 60)
    ratio = speedup(kernel.tolist(), baseline.tolist())
    low, high = ratio.ci95
    assert low <= ratio.value <= high
    assert 1.9 < low < high < 2.1


@pytest.mark.parametrize("n", [2, 3, 10, 11])
def test_the_interval_is_that_of_medians_of_samples_that_were_drawn(
    n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How often each median comes up, among those of 100 000 samples with replacement."""
    monkeypatch.setattr(statistics, "RESAMPLES", 100_000)
    chance = np.random.default_rng(1)
    values = chance.permutation(2.0 ** np.arange(n))
    drawn = np.median(chance.choice(values, size=(100_000, n)), axis=1)
    without = statistics._resampled_medians(values, chance)
    for median in np.unique(drawn):
        assert np.mean(without == median) == pytest.approx(np.mean(drawn == median), abs=0.01)
    assert set(without) <= {(a + b) / 2 for a in values for b in values}


def test_a_time_is_noisy_when_an_interval_says_little_of_its_ends() -> None:
    steady, wild = summarize([[10.0, 10.1] * 20], "clock"), summarize([[1.0, 10.0] * 5], "clock")
    narrow, wide = (Speedup(value=2.0, ci95=ends) for ends in ((1.9, 2.1), (1.65, 143.6)))
    assert noisy(steady, {"eager": narrow}) == ""
    assert "its speedup over eager, 1.65 to 144" in noisy(steady, {"eager": wide})
    assert "its median, 1 to 10 µs" in noisy(wild, {"eager": narrow})
    assert noisy(steady, {"eager": Speedup(value=0.0, ci95=(0.0, 0.0))}) == ""
    undefined = Speedup.model_construct(value=1.0, ci95=(float("nan"), float("nan")))
    assert noisy(steady, {"eager": undefined})


def test_equal_samples_give_a_point() -> None:
    assert speedup([5.0, 5.0], [10.0, 10.0]).ci95 == (2.0, 2.0)


def test_a_round_has_a_few_calls_and_no_more_than_fit_its_time_and_memory() -> None:
    plan = TimingPlan(burst_s=0.01, most=16, round_bytes=1 << 20)
    assert [plan.calls(us, 1) for us in (0.0, 2000.0, 1e7)] == [16, 7, 2]
    assert [plan.calls(0.0, size) for size in (1 << 18, 1 << 19, 1 << 30)] == [3, 1, 1]
    assert [plan.calls(0.0, 1, stage_us) for stage_us in (1e2, 4e3, 1e6)] == [16, 2, 1]


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 1000), st.integers(30, 300))
def test_the_median_is_nearly_always_in_its_interval(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    inside = 0
    for _ in range(100):
        low, high = median_ci(rng.exponential(1.0, n).tolist())
        inside += low <= np.log(2) <= high
    assert inside >= 85


def test_rounds_go_on_until_the_median_is_known() -> None:
    rng = np.random.default_rng(1)
    plan = TimingPlan(half_width=0.01)
    assert not plan.enough([1.0, 1.1])
    assert not plan.enough(rng.normal(100, 10, 50).tolist())
    assert plan.enough(rng.normal(100, 10, 5000).tolist())


def test_noise_is_what_one_thing_timed_twice_differs_by() -> None:
    assert noise([[1.0], [2.0], [1.0], [2.0]]) == pytest.approx(1.0)
    assert noise([[3.0, 3.0], [3.0]]) == 0.0
    assert noise([[1.0]]) is None
    summary = summarize([[1.0], [1.1]], "clock", {"clock_mhz": (1980, 1980)})
    assert summary.rounds == 2
    assert summary.noise == pytest.approx(0.1)
    assert summary.conditions == {"clock_mhz": (1980, 1980)}


def test_a_mean_that_was_told_for_each_call_is_one_observation() -> None:
    assert observations([[2.0] * 100, [3.0] * 100, [1.0, 2.0]]) == [2.0, 3.0, 1.0, 2.0]
    assert summarize([[2.0] * 100, [3.0] * 100], "batches").n == 2


def test_the_roofline_takes_the_slower_of_memory_and_arithmetic() -> None:
    h200 = load("h200")
    copy = roofline(h200, nbytes=4_800_000_000, flops=1.0, dtype="float32", median_us=1250)
    assert copy.fraction == pytest.approx(0.8)
    assert copy.basis == "datasheet memory 4800 GB/s"
    product = roofline(h200, nbytes=1, flops=66.9e12, dtype="float32", median_us=2e6)
    assert product.fraction == pytest.approx(0.5)
    assert product.basis == "datasheet float32 66.9 TFLOP/s"


def test_without_a_peak_there_is_no_fraction() -> None:
    bound = roofline(load("x86_64"), nbytes=1, flops=1.0, dtype="float32", median_us=1.0)
    assert bound.fraction is None


def test_no_call_is_faster_than_its_inputs_can_be_read_or_its_arithmetic_done() -> None:
    h200 = load("h200")
    reading, why = floor_us(h200, read_bytes=4_800_000_000, flops=1.0)
    assert reading == pytest.approx(1000)
    assert why == "reading its inputs takes 1e+03 µs at h200's peak"
    computing, why = floor_us(h200, read_bytes=1, flops=1978.9e12)
    assert computing == pytest.approx(1e6)
    assert why.startswith("its arithmetic")


def test_a_cpus_inputs_may_come_from_its_caches() -> None:
    assert floor_us(load("x86_64"), read_bytes=1 << 30, flops=1.0)[0] == 0


def test_rounds_that_do_not_count_end_after_any_call_of_a_round_that_does() -> None:
    """Two calls were all they had, and a kernel was safe from the third on."""
    looked_at: set[int] = set()

    def lap(
        key: object, session: object, made: object, calls: int, look: Any, counted: bool
    ) -> TimedRound:
        assert not counted
        look()
        return TimedRound([1.0] * calls, wall_s=1.0)

    def look(turn: int, calls: Sequence[int], whole: bool) -> None:
        # What is odd in part may be so where nobody looks.
        assert whole == (turn % 2 == 1 and turn < 20)
        looked_at.update(calls)

    timing: Any = SimpleNamespace(
        lost={},
        bases=[("normal", ()), (inputs.IN_PART, ())],
        plan=TimingPlan(rounds=20),
        _lap=lap,
        _look=look,
    )
    chosen, session = random.Random(0), SimpleNamespace()
    for turn in range(200):
        made = TimedInputs((turn,), base=turn % 2)
        InterleavedTiming._untimed_round(timing, 0, session, turn, made, chosen, 5)  # type: ignore[arg-type]
    assert looked_at == {0, 1, 2, 3, 4}


def rounds_of(
    chance: np.random.Generator, *, between: float, within: float, count: int = 6
) -> list[list[float]]:
    """The rounds of a call that takes 10 µs in the long run; each round delays all its calls."""
    return [
        list(10 * np.exp(chance.normal(0, between) + chance.normal(0, within, 24)))
        for _ in range(count)
    ]


@pytest.mark.parametrize("count", [2, 3, 6])
@pytest.mark.parametrize(("between", "within"), [(0.0, 0.1), (0.05, 0.02), (0.2, 0.1)])
def test_of_forty_runs_nearly_all_intervals_of_rounds_contain_the_truth(
    between: float, within: float, count: int
) -> None:
    chance = np.random.default_rng(47)
    held = {"rounds": 0, "calls": 0}
    for _ in range(40):
        mine, theirs = (
            rounds_of(chance, between=between, within=within, count=count) for _ in range(2)
        )
        of_rounds = speedup_of_rounds(mine, theirs).ci95
        of_calls = speedup(observations(mine), observations(theirs)).ci95
        held["rounds"] += of_rounds[0] <= 1 <= of_rounds[1]
        held["calls"] += of_calls[0] <= 1 <= of_calls[1]
    assert (36 if count > 3 else 34) <= held["rounds"] <= 40
    assert held["calls"] < 30 or not between, "calls of a round were taken for independent"


def test_a_baseline_of_two_modes_is_named_and_its_interval_has_both() -> None:
    chance = np.random.default_rng(1)
    slow, fast, mine = (
        [[us * x for x in lap] for lap in rounds_of(chance, between=0.01, within=0.02)]
        for us in (9.7, 4.2, 30.0)
    )
    assert modes(slow, fast) == "takes 96.6 µs in one process and 42.1 µs in another"
    both = speedup_of_rounds(mine, slow, fast)
    assert both.ci95[0] < 0.15 < 0.32 < both.ci95[1]
    assert both.value == pytest.approx(0.14, rel=0.05)
    assert modes(slow, rounds_of(chance, between=0.0, within=0.02)) != ""
    same = [[1.02 * x for x in lap] for lap in slow]
    assert modes(slow, same) == "" == modes(slow, ())
    assert speedup_of_rounds(mine, slow, same).value == pytest.approx(0.33, rel=0.05)
