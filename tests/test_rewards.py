"""Rewards: vectors computed by hand from the published formulas, and the law that holds for all."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portkern.errors import ConfigError, RecordError
from portkern.learn import rewards, turns
from portkern.learn.pinned import PinnedTimes
from portkern.learn.rewards import REWARDS, Ratio, Turn, Unavailable
from portkern.records.record import Evidence, Record, Speedup, Timing, Verdict
from tests.report_records import make

BAD = [verdict for verdict in Verdict if verdict.bad]
ratios = st.floats(0.01, 100)


def right(eager: float = 0, compiled: float = 0, **facts: object) -> Turn:
    return Turn(
        Verdict.PASSED,
        Ratio.exactly(eager) if eager else None,
        Ratio.exactly(compiled) if compiled else None,
        **facts,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("name", "turn", "value"),
    [
        ("kevin", right(2.0), 2.3),
        ("kevin", right(0.5), 0.8),
        ("kevin", right(), 0.3),
        ("autotriton", right(0.1), 1.0),
        ("tritonrl_plan", right(3.0), 2.0),
        ("tritonrl_plan", right(1.5), 1.5),
        ("tritonrl_code", right(3.0), 1.0),
        ("cuda_l1", right(2.5), 2.5),
        ("milestones", right(1.0), 1.0),
        ("milestones", right(1.05), 1.0),
        ("milestones", right(1.06), 2.0),
        ("milestones", right(1.06, 0.9), 2.0),
        ("milestones", right(2.0, 1.06), 3.0),
        ("kernelgym", right(1.05), 1.0),
        ("kernelgym", right(1.04), 0.5),
        ("kernelgym_ladder", right(0.9), -0.1),
        ("kernelgym_ladder", right(1.0), 0.2),
        ("kernelgym_ladder", right(1.2), 0.4),
        ("kernelgym_ladder", right(1.6), 0.6),
        ("kernelgym_ladder", right(2.0), 0.8),
        ("kernelgym_ladder", right(7.0), 1.0),
        ("kernelgym_ladder", right(7.0, decoy=True), -1.0),
        ("dr_kernel", right(2.0, coverage=0.25), 1.25),
        ("fast_p", right(1.0), 0.0),
        ("fast_p", right(1.01), 1.0),
    ],
)
def test_a_published_reward_has_its_published_value(name: str, turn: Turn, value: float) -> None:
    assert rewards.named(name)(turn) == pytest.approx(value)


@pytest.mark.parametrize(
    ("verdict", "milestones", "ladder"),
    [(Verdict.BUILD_FAILED, -1, -0.5), (Verdict.WRONG, -1, -0.3), (Verdict.CRASHED, -1, -0.3)],
)
def test_wrong_kernels_are_punished_as_published(
    verdict: Verdict, milestones: float, ladder: float
) -> None:
    assert rewards.milestones(Turn(verdict)) == milestones
    assert rewards.kernelgym_ladder(Turn(verdict)) == ladder
    assert rewards.kevin(Turn(verdict)) == 0


def test_weights_of_kernelgym_and_p_of_kernelbench_can_be_chosen() -> None:
    assert rewards.kernelgym(right(9.0), cap=3.0) == 2.0
    assert rewards.kernelgym(right(1.0, coverage=0.5), covered=0.4) == 0.7
    assert rewards.fast_p(right(), p=0) == 1
    assert rewards.fast_p(right(1.9), p=2) == 0


def test_kernelband_pays_the_share_of_time_that_a_step_saves() -> None:
    assert rewards.kernelband(right(1.0), over_parent=Ratio.exactly(4.0)) == 0.75
    assert rewards.kernelband(right(1.0), over_parent=Ratio(0.9, 1.4)) == 0
    assert rewards.kernelband(Turn(Verdict.WRONG), over_parent=Ratio.exactly(4.0)) == 0


def test_returns_of_turns_are_kevins() -> None:
    scores = [0.9, 0, 2.3, 0]
    assert rewards.discounted(scores) == pytest.approx([1.268, 0.92, 2.3, 0])
    assert rewards.discounted(scores, how="max") == pytest.approx([0.9, 0.92, 2.3, 0])
    assert rewards.discounted([]) == []


def test_advantages_of_groups_are_as_published() -> None:
    third = 1 / math.sqrt(3)
    assert rewards.smoothed([1, 1, 1, 9]) == pytest.approx([-third] * 3 + [1.5])
    assert rewards.smoothed([2, 2]) == [0, 0]
    assert rewards.bucketed([[1, 2], [2, 2], [9, 9]]) == 2
    assert rewards.centred([2, 0, 1, 1], weight=0.1) == pytest.approx([0.1, -0.1, 0, 0])
    assert rewards.centred([1, 0, 1, 1]) == pytest.approx([0.25, -0.75, 0.25, 0.25])
    assert rewards.leave_one_out([3, 0, 0]) == pytest.approx([3, -1.5, -1.5])
    assert rewards.leave_one_out([5]) == [0]


@pytest.mark.parametrize("name", REWARDS)
@given(low=ratios, spread=st.floats(1, 3), coverage=st.floats(0, 1))
def test_only_a_lawful_kernel_whose_time_is_known_is_rewarded(
    name: str, low: float, spread: float, coverage: float
) -> None:
    reward, ratio = rewards.named(name), Ratio(low, low * spread)
    best = reward(Turn(Verdict.PASSED, ratio, ratio, coverage=coverage))
    for verdict in BAD:
        assert reward(Turn(verdict, ratio, ratio)) <= min(0, best + 0.2)
    assert reward(Turn(Verdict.PASSED, ratio, ratio, noisy=True)) <= 0
    assert reward(Turn(Verdict.PASSED, ratio, ratio, decoy=True)) <= 0


@pytest.mark.parametrize("name", REWARDS)
@given(value=ratios, spread=st.floats(1, 3))
def test_more_noise_never_pays(name: str, value: float, spread: float) -> None:
    reward = rewards.named(name)
    sure = reward(right(value, value))
    unsure = Ratio(value / spread, value * spread)
    got = reward(Turn(Verdict.PASSED, unsure, unsure))
    assert got <= sure or sure < 0
    assert got >= 0 or sure < 0


def test_an_interval_about_1_is_neither_faster_nor_slower() -> None:
    turn = Turn(Verdict.PASSED, Ratio(0.97, 1.3))
    assert rewards.kernelgym_ladder(turn) == 0
    assert rewards.milestones(turn) == 1
    assert rewards.fast_p(turn) == 0


def test_rewards_add_up_and_no_weight_rewards_what_is_wrong() -> None:
    both = rewards.composed({"kevin": 1.0, "milestones": 0.5})
    assert both(right(2.0)) == pytest.approx(3.3)
    odd = rewards.composed({"kevin": 1.0, "milestones": -1.0})
    assert odd(Turn(Verdict.WRONG)) == 0
    with pytest.raises(ConfigError, match="did you mean 'kevin'"):
        rewards.composed({"kevim": 1.0})


def test_portability_pays_for_places() -> None:
    places = {"sm_90": right(), "gfx942": Turn(Verdict.WRONG)}
    assert rewards.portability(places) == 0
    assert rewards.portability(places, how="share") == 0.5
    places["gfx942"] = right()
    assert rewards.portability(places, speed=0.1) == 1
    places["x86_64"] = right(4.0)
    assert rewards.portability(places, speed=0.1) == pytest.approx(1.2)
    places["gfx942"] = Turn(Verdict.REJECTED)
    assert rewards.portability(places, how="share") == 0


@pytest.mark.parametrize("verdict", [Verdict.UNAVAILABLE, Verdict.UNSUPPORTED])
def test_what_no_machine_evaluated_has_no_reward(verdict: Verdict) -> None:
    with pytest.raises(Unavailable):
        Turn(verdict)


def timed(low: float, high: float, *, noisy: str = "") -> Record:
    timing = Timing(median_us=1, p20_us=1, p80_us=1, n=1, samples=[1.0], method="test", noisy=noisy)
    return make(timing=timing, speedup={"eager": Speedup(value=low, ci95=(low, high))})


def untimed(verdict: Verdict) -> Record:
    return make(verdict=verdict, evidence=Evidence.NONE, timing=None, speedup={}, missing="why")


def test_a_turn_is_all_workloads_of_an_attempt() -> None:
    turn = turns.turn_of([timed(1.0, 1.0), timed(4.0, 9.0)])
    assert turn.eager
    assert (turn.eager.low, turn.eager.high) == pytest.approx((2.0, 3.0))
    assert turns.turn_of([timed(1.0, 1.0), timed(4.0, 9.0, noisy="busy")]).noisy
    worse = turns.turn_of([timed(4.0, 4.0), untimed(Verdict.WRONG)])
    assert worse == Turn(Verdict.WRONG)


def test_a_workload_that_could_not_be_evaluated_leaves_no_reward_of_the_others() -> None:
    away = untimed(Verdict.UNAVAILABLE)
    with pytest.raises(Unavailable):
        turns.turn_of([timed(1.0, 1.0), away])
    with pytest.raises(Unavailable):
        turns.turn_of([])
    assert turns.turn_of([away, untimed(Verdict.WRONG)]).verdict is Verdict.WRONG


# Pinned times


def beside(own: tuple[float, float], reference: tuple[float, float], **changes: object) -> Record:
    """A record of these intervals, in microseconds."""
    like = make()
    assert like.timing is not None
    first, second = (
        like.timing.model_copy(update={"ci95_us": ends, "noisy": ""}) for ends in (own, reference)
    )
    return make(timing=first, baselines={"eager": second}, **changes)


def test_a_references_time_is_pinned_by_the_first_that_is_sure_enough(tmp_path: Path) -> None:
    pinned = PinnedTimes(tmp_path / "times.jsonl")
    first = beside((50, 50), (100, 100))
    unsure = first.model_copy(deep=True)
    unsure.baselines["eager"] = unsure.baselines["eager"].model_copy(update={"noisy": "busy"})
    assert turns.turn_of([unsure], pinned).eager is None
    ratio = turns.turn_of([first], pinned).eager
    assert ratio and ratio.low == ratio.high == pytest.approx(2)
    other_mode = beside((20, 25), (300, 300))  # the same reference in a slow process
    for again in (pinned, PinnedTimes(tmp_path / "times.jsonl")):
        ratio = turns.turn_of([other_mode], again).eager
        assert ratio and (ratio.low, ratio.high) == pytest.approx((4, 5))


@pytest.mark.parametrize(
    "changed", [{"machine": "another"}, {"driver": "1.2"}, {"harness_version": "9"}]
)
def test_a_pinned_time_is_of_one_machine_and_its_versions(
    tmp_path: Path, changed: Mapping[str, str]
) -> None:
    pinned = PinnedTimes(tmp_path / "times.jsonl")
    turns.turn_of([beside((50, 50), (100, 100))], pinned)
    elsewhere = make().environment.model_copy(update=changed).model_dump()
    ratio = turns.turn_of([beside((50, 50), (200, 200), environment=elsewhere)], pinned).eager
    assert ratio and ratio.low == pytest.approx(4)


def test_a_workload_without_a_time_leaves_no_ratio_to_pay_for(tmp_path: Path) -> None:
    pinned = PinnedTimes(tmp_path / "times.jsonl")
    known, untimed = (
        beside((50, 50), (100, 100)),
        make(timing=None, speedup={}, baselines={}, evidence=Evidence.VERIFIED, missing="no clock"),
    )
    assert turns.turn_of([known, untimed], pinned).eager is None


@pytest.mark.parametrize("line", ["{}", "nonsense", '{"schema": 2}'])
def test_a_file_of_times_that_cannot_be_read_says_where(tmp_path: Path, line: str) -> None:
    file = tmp_path / "times.jsonl"
    file.write_text(line + "\n")
    with pytest.raises(RecordError, match=f"{file}:1"):
        PinnedTimes(file)
