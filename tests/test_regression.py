"""Changes from one run to another are told from noise."""

from __future__ import annotations

import json
import math
import random
import re
import shutil
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portkern.cli import main
from portkern.cli.verbs import regressions
from portkern.errors import ConfigError
from portkern.records.record import (
    Environment,
    Evidence,
    Record,
    RecordFile,
    Timing,
    Verdict,
    WorkloadRef,
)
from portkern.regression import document, rule
from portkern.regression.cell_change import Cause, CellChange
from portkern.regression.comparison import RunComparison
from portkern.regression.decisions import NightDecisions
from portkern.regression.nights import Night
from portkern.regression.rule import ChangeKind
from portkern.spec.backend import Missing

HERE = Environment(machine="Linux x86_64, 2 CPUs", device="CPU", harness_version="1")


def timing(us: float, **changes: Any) -> Timing:
    values = {"median_us": us, "p20_us": us, "p80_us": us, "n": 9, "samples": [us], "method": "c"}
    return Timing(**{**values, **changes})


def record(op: str = "relu", us: float = 10.0, night: int = 0, **changes: Any) -> Record:
    """Passed and measured, on a CPU."""
    values: dict[str, Any] = {
        "run": f"night-{night:02}",
        "id": f"{op}{night}",
        "time": f"2026-01-{night + 1:02}T00:00:00+00:00",
        "key": op,
        "op": op,
        "workload": WorkloadRef(set="ci", name="1000", dims={"n": 1000}, dtype="float32"),
        "backend": "cpu",
        "language": "c++",
        "target": "x86_64",
        "venue": "hardware: CPU",
        "source_hash": f"{op}-1",
        "author": "me",
        "verdict": Verdict.PASSED,
        "evidence": Evidence.MEASURED,
        "timing": timing(us),
        "baselines": {"eager": timing(20.0)},
        "environment": HERE,
    }
    return Record(**{**values, **changes})


def failed(op: str = "relu", verdict: Verdict = Verdict.WRONG, **changes: Any) -> Record:
    values: dict[str, Any] = {"verdict": verdict, "evidence": Evidence.BUILT}
    values |= {"timing": None, "baselines": {}}
    return record(op, **{**values, **changes})


def nights(
    count: int, deviation: float, ops: Sequence[str] = ("relu",), seed: int = 0
) -> list[Night]:
    random_ = random.Random(seed)
    return [
        Night.of(
            f"night-{n:02}",
            [record(op, 10 * math.exp(random_.gauss(0, deviation)), n) for op in ops],
        )
        for n in range(count)
    ]


def change(history: Sequence[Night], *records: Record, again: Sequence[Record] = ()) -> Any:
    """The change of the only cell."""
    [one] = RunComparison.of(history[-1], Night.of("after", records, again), history).cells
    return one


def after(us: float, **changes: Any) -> Record:
    return record(us=us, night=20, **changes)


# ---- the rule


@given(st.floats(0.002, 0.2), st.integers(0, 2**31))
def test_equal_runs_are_never_slower_in_more_than_a_few_of_a_hundred_cells(
    deviation: float, seed: int
) -> None:
    random_ = random.Random(seed)
    histories = [[random_.gauss(1, deviation) for _ in range(10)] for _ in range(100)]
    common = rule.spread(histories)
    verdicts = [
        rule.decide(
            one,
            random_.gauss(1, deviation),
            common,
            lambda: [random_.gauss(1, deviation) for _ in range(rule.AGAIN)],
        )[0]
        for one in histories
    ]
    assert sum(v in (ChangeKind.SLOWER, ChangeKind.FASTER) for v in verdicts) <= 5


@pytest.mark.parametrize(
    ("deviation", "slower", "least"),
    [(0.004, 1.03, 0.95), (0.01, 1.1, 0.99), (0.03, 1.2, 0.9)],
)
def test_slower_runs_are_found(deviation: float, slower: float, least: float) -> None:
    random_ = random.Random(3)
    histories = [[random_.gauss(0, deviation) for _ in range(10)] for _ in range(400)]
    common = rule.spread(histories)

    def value() -> float:
        return random_.gauss(math.log(slower), deviation)

    found = [
        rule.decide(one, value(), common, lambda: [value(), value()])[0] is ChangeKind.SLOWER
        for one in histories
    ]
    assert sum(found) >= least * len(found)


@given(st.lists(st.floats(-3, 3), min_size=0, max_size=30), st.floats(-3, 3), st.floats(0, 1))
def test_a_shift_of_everything_changes_no_verdict(
    history: list[float], value: float, common: float
) -> None:
    one = rule.decide(history, value, common, lambda: None)
    two = rule.decide([h + 4 for h in history], value + 4, common, lambda: None)
    assert one[0] is two[0] or abs(abs(one[1]) - abs(two[1])) < 1e-9
    assert math.isclose(one[1], two[1], abs_tol=1e-9)


def test_a_cell_says_what_it_would_have_seen() -> None:
    told = change(nights(10, 0.03), after(10.0))
    assert told.change is ChangeKind.UNCHANGED and "would have seen" in told.detail
    noisy = change(nights(10, 0.6), after(10.0))
    assert noisy.change is ChangeKind.TOO_NOISY and noisy.visible > 0.5


@given(st.floats(0.0, 1.0))
def test_the_least_change_is_smaller_only_where_runs_differ_little(common: float) -> None:
    least = rule.floor(common)
    assert rule.STEADY_FLOOR <= least <= rule.FLOOR
    assert least == rule.FLOOR or 0 < rule.DEVIATIONS * common <= least


def test_little_is_said_of_times_before_the_fifth_run() -> None:
    told = change(nights(4, 0.01), after(12.0))
    assert told.change is ChangeKind.INSUFFICIENT and "4 earlier times" in told.detail
    much = change(nights(4, 0.01), after(200.0), again=[after(190.0), after(210.0)])
    assert much.change is ChangeKind.SLOWER and much.moved > 15
    assert change(nights(1, 0.01), after(200.0)).change is ChangeKind.SUSPECT


def test_earlier_times_that_are_not_a_measure_and_are_counted_and_told() -> None:
    """Nights of a busy machine are runs of it, and say nothing of its times."""
    busy = timing(10.0, noisy="the machine was busy")
    history = nights(2, 0.01) + [
        Night.of(f"busy-{n}", [record(night=n, timing=busy)]) for n in (2, 3, 4)
    ]
    told = change(history, after(12.0))
    assert told.change is ChangeKind.INSUFFICIENT
    assert told.detail.startswith("2 earlier times of this machine to compare with, expected 5")
    assert "5 are there, 3 of them noisy: the machine was busy" in told.detail


# ---- runs


def test_a_suspect_is_slower_only_when_it_was_timed_again() -> None:
    history = nights(10, 0.01)
    alone = change(history, after(13.0))
    assert alone.change is ChangeKind.SUSPECT and "not timed again" in alone.detail
    slower = change(history, after(13.0), again=[after(12.8), after(13.2)])
    assert slower.change is ChangeKind.SLOWER and 0.25 < slower.moved < 0.35
    assert "nothing that is recorded changed" in slower.detail
    assert slower.cause is Cause.UNEXPLAINED
    assert (
        change(history, after(13.0), again=[after(10.0), after(10.1)]).change
        is ChangeKind.UNCHANGED
    )
    assert change(history, after(7.0), again=[after(7.1), after(7.0)]).change is ChangeKind.FASTER


@pytest.mark.parametrize("late", [{"source_hash": "other"}, {"key": "another evaluator"}])
def test_what_nobody_changed_must_move_further_to_be_slower(late: dict[str, Any]) -> None:
    history = nights(10, 0.03)
    changed, same = (change(history, after(10.0, **said)).visible for said in (late, {}))
    assert 0.05 < changed < same, "a cell says what it would have seen"
    middle = statistics.median(
        one.timing.p20_us for n in history for one in n.cells.values() if one.timing
    )
    us = middle * (1 + (changed + same) / 2)
    found = [
        change(history, after(us, **said), again=[after(us, **said)] * 2).change
        for said in (late, {})
    ]
    assert found == [ChangeKind.SLOWER, ChangeKind.UNCHANGED]


def test_a_kernel_whose_own_time_stays_is_not_slower_when_eager_got_faster() -> None:
    """Against eager it is by 30 %; so is one that is slower while everything else is faster."""
    random_ = random.Random(1)

    def timed(op: str, us: float, eager: float, pace: float, night: int) -> Record:
        mine = us * pace * math.exp(random_.gauss(0, 0.01))
        return record(op, mine, night, baselines={"eager": timing(eager * pace)})

    def all_at(night: int, pace: float, ops: Sequence[str]) -> list[Record]:
        return [timed(op, 10.0, 20.0, pace, night) for op in ops]

    others = ("add", "sum", "gelu", "softmax")
    history = [
        Night.of(f"night-{n:02}", all_at(n, math.exp(random_.gauss(0, 0.1)), ("relu", *others)))
        for n in range(8)
    ]

    def told(us: float, eager: float, pace: float) -> CellChange:
        races = [timed("relu", us, eager, 1.0, 20) for _ in range(3)]
        night = Night.of("after", [races[0], *all_at(20, pace, others)], races[1:])
        cells = RunComparison.of(history[-1], night, history).cells
        [one] = [cell for cell in cells if cell.series.op == "relu"]
        return one

    quick = told(us=10.0, eager=20 / 1.3, pace=1.0)
    assert quick.change is ChangeKind.SUSPECT
    assert "eager moved, the kernel's own time by " in quick.detail
    assert told(us=13.0, eager=20.0, pace=1.0).change is ChangeKind.SLOWER
    assert told(us=10.0, eager=20 / 1.3, pace=1 / 1.3).change is ChangeKind.SLOWER


def test_a_race_in_which_eager_took_twice_its_time_goes_by_the_kernels_own() -> None:
    random_ = random.Random(2)

    def timed(us: float, eager: float, night: int) -> Record:
        pace = math.exp(random_.gauss(0, 0.03))  # of the machine: ratios differ less than times
        mine = us * pace * math.exp(random_.gauss(0, 0.01))
        return record("relu", mine, night, baselines={"eager": timing(eager * pace)})

    history = [Night.of(f"night-{n:02}", [timed(10.0, 20.0, n)]) for n in range(8)]

    def told(*races: tuple[float, float]) -> ChangeKind:
        first, *again = [timed(us, eager, 20) for us, eager in races]
        [cell] = RunComparison.of(history[-1], Night.of("after", [first], again), history).cells
        return cell.change

    assert told((13.0, 20.0), (13.0, 20.0), (13.0, 40.0)) is ChangeKind.SLOWER
    assert told((13.0, 20.0), (10.0, 20.0), (10.0, 40.0)) is ChangeKind.UNCHANGED
    assert told((13.0, 20.0), (10.0, 10.0), (10.0, 10.0)) is ChangeKind.UNCHANGED


def test_a_cell_keeps_what_it_was_in_earlier_runs(tmp_path: Path) -> None:
    history = nights(3, 0.0)
    comparison = RunComparison.of(history[-1], Night.of("after", [after(12.0)]), history)
    [one] = comparison.cells
    assert one.recent == pytest.approx((1.0, 1.0, 1.0, 1.2))
    document.write(comparison, tmp_path)
    read = document.read(tmp_path)
    assert read is not None and read.cells[0].recent == pytest.approx(one.recent)


def test_what_else_changed_stands_beside_the_verdict() -> None:
    driver = HERE.model_copy(update={"driver": "560", "toolchain": {"c++": "g++ 13"}})
    given = {"environment": driver, "source_hash": "relu-2", "key": "other"}
    told = change(
        nights(10, 0.01), after(13.0, **given), again=[after(13.0, **given), after(13.0, **given)]
    )
    assert told.because == ("the kernel's source", "driver none → 560", "c++ none → g++ 13")
    assert told.cause is Cause.REGRESSION


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"environment": HERE.model_copy(update={"machine": "other"})}, "machine .* → other"),
        ({"venue": "hardware: GPU"}, "venue hardware: CPU → hardware: GPU"),
        ({"timing": timing(10.0, noisy="the machine was busy")}, "the machine was busy"),
    ],
)
def test_times_of_other_circumstances_are_not_compared(changes: dict[str, Any], said: str) -> None:
    told = change(nights(10, 0.01), after(30.0, **changes))
    assert told.change is ChangeKind.NOT_COMPARABLE and re.search(said, told.detail)


UNAVAILABLE: dict[str, Any] = {
    "verdict": Verdict.UNAVAILABLE,
    "evidence": Evidence.NONE,
    "timing": None,
}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (record(), failed(night=20), ChangeKind.NEW_FAILURE),
        (failed(), failed(night=20), ChangeKind.STILL_FAILING),
        (failed(), after(10.0), ChangeKind.FIXED),
        (record(), after(1.0, **UNAVAILABLE, baselines={}, missing="no GPU"), ChangeKind.LOST),
        (record(**UNAVAILABLE, baselines={}), after(10.0), ChangeKind.GAINED),
        (record(), None, ChangeKind.LOST),
        (None, after(10.0), ChangeKind.GAINED),
        (None, failed(night=20), ChangeKind.NEW_FAILURE),
        (record(**UNAVAILABLE), after(1.0, **UNAVAILABLE), None),
    ],
)
def test_verdicts_and_coverage(
    old: Record | None, new: Record | None, expected: ChangeKind | None
) -> None:
    comparison = RunComparison.of(
        Night.of("a", [old] if old else []), Night.of("b", [new] if new else []), []
    )
    assert [one.change for one in comparison.cells] == ([expected] if expected else [])
    regressed = (ChangeKind.NEW_FAILURE, ChangeKind.LOST)
    assert comparison.regressed == (expected in regressed)


def test_what_the_command_line_left_out_is_not_missed() -> None:
    before = Night.of("a", [record("relu"), record("sum"), record("sum", target="gfx942")])
    now = Night.of("b", [record("sum", night=20)])

    def left(fields: Sequence[str]) -> list[tuple[str, str]]:
        return [(one.op, one.target) for one in before.within(now, fields).cells]

    assert left(["op"]) == [("sum", "x86_64"), ("sum", "gfx942")]
    assert left(["op", "target"]) == [("sum", "x86_64")]
    assert len(left([])) == 3


OPS = [f"op{n}" for n in range(12)]
OPENCL = {"backend": "opencl", "language": "opencl", "target": "opencl_generic"}


def whole(
    night: int, *, cpu: float = 1.0, opencl: float = 1.0, eager: float = 1.0, **late: Any
) -> list[Record]:
    """Twelve kernels in C++, ``late`` differently than before, and twelve in OpenCL; times beside
    what they are usually."""
    drawn = random.Random(night)

    def us(usual: float) -> float:
        return usual * math.exp(drawn.gauss(0, 0.01))

    found = []
    for op in OPS:
        for mine, usual, other in ((10 * cpu, late, {}), (30 * opencl, {}, OPENCL)):
            beside = {"eager": timing(us(20 * eager))}
            found.append(record(op, us(mine), night, baselines=beside, **usual, **other))
    return found


def a_night(records: Sequence[Record], history: int = 10) -> RunComparison:
    """After as many equal ones; what is another is timed twice more, and stays so."""
    before = [Night.of(f"night-{n:02}", whole(n)) for n in range(history)]
    again = [one for _ in range(2) for one in records]
    return RunComparison.of(before[-1], Night.of("after", records, again), before)


def test_the_machine_was_busy_only_when_the_controls_say_so() -> None:
    """All kernels of a toolchain are slower, and neither eager nor another toolchain's are."""
    found = a_night(whole(20, cpu=1.4))
    assert found.counts == {"slower": 12, "unchanged": 12} and not found.machine
    assert {one.cause for one in found.cells if one.regressed} == {Cause.UNEXPLAINED}
    assert "the controls did not" in found.cells[0].detail


@pytest.mark.parametrize("slower", [1.4, 10.0])
def test_a_machine_of_which_all_is_slower_fails_nothing_and_is_named(slower: float) -> None:
    found = a_night(whole(20, cpu=slower, opencl=slower, eager=slower))
    assert found.counts == {"unchanged": 24}
    [line] = found.machine
    assert "Linux x86_64, 2 CPUs" in line and "controls (cpu/c++, eager, opencl/opencl)" in line


def test_a_kernel_that_is_slower_on_a_slower_machine_is_found() -> None:
    """Each beside what the controls did."""
    records = whole(20, cpu=1.5, opencl=1.5, eager=1.5)
    twice = [
        one.model_copy(update={"timing": timing(2 * one.timing.p20_us)})
        if one.timing and one.op == "op3" and one.backend == "cpu"
        else one
        for one in records
    ]
    [told] = [one for one in a_night(twice).cells if one.regressed]
    assert told.series.op == "op3" and 0.8 < (told.moved or 0) < 1.2


@pytest.mark.parametrize(
    ("late", "cause"),
    [
        ({"source_hash": "other"}, Cause.REGRESSION),
        ({"environment": HERE.model_copy(update={"toolchain": {"c++": "13"}})}, Cause.TOOLCHAIN),
        ({"environment": HERE.model_copy(update={"driver": "560"})}, Cause.TOOLCHAIN),
        ({"environment": HERE.model_copy(update={"harness_version": "2"})}, Cause.METHOD),
        ({"key": "another evaluator"}, Cause.METHOD),
    ],
)
def test_a_slowdown_is_told_with_its_cause_and_fails(late: dict[str, Any], cause: Cause) -> None:
    found = a_night(whole(20, cpu=1.3, **late))
    assert found.counts == {"slower": 12, "unchanged": 12} and found.regressed
    assert {one.cause for one in found.cells if one.regressed} == {cause}


def test_where_all_of_a_toolchain_is_slower_a_kernel_that_changed_too_is_not_blamed() -> None:
    newer: dict[str, Any] = {"environment": HERE.model_copy(update={"toolchain": {"c++": "13"}})}
    records = [
        one.model_copy(update={"source_hash": "new"}) if one.op == "op1" else one
        for one in whole(20, cpu=1.3, **newer)
    ]
    causes = {one.series.op: one.cause for one in a_night(records).cells if one.regressed}
    assert causes["op1"] is Cause.TOOLCHAIN and len(causes) == 12


def test_many_times_as_slow_on_a_night_whose_times_are_noisy_is_suspicious() -> None:
    busy = timing(200.0, noisy="busy")
    assert change(nights(10, 0.02), after(0, timing=busy)).change is ChangeKind.SUSPECT
    assert change(nights(10, 0.02), after(0, timing=timing(30.0, noisy="busy"))).change is (
        ChangeKind.NOT_COMPARABLE
    )


# ---- what a cell should be


def season(*levels: float, first: int = 0, **late: Any) -> list[Night]:
    """A night for each of ``levels``, in usual times of 10 µs."""
    return [
        Night.of(
            f"night-{n:02}",
            [record(us=10 * level * math.exp(random.Random(n).gauss(0, 0.01)), night=n, **late)],
        )
        for n, level in enumerate(levels, first)
    ]


def the_last(seasons: Sequence[Night], **options: Any) -> CellChange:
    *history, night = seasons
    [one] = RunComparison.of(history[-1], night, history, **options).cells
    return one


def test_a_slower_kernel_stays_so_until_it_is_mended() -> None:
    """The slowdown is believed on the third night in a row without further races."""
    fine, slow = [1.0] * 10, [1.3] * 15
    assert the_last(season(*fine, 1.3)).change is ChangeKind.SUSPECT
    for nights_ in (3, 8, 15):
        told = the_last(season(*fine, *slow[:nights_]))
        assert told.change is ChangeKind.SLOWER and told.regressed
        assert (told.since, told.nights, told.last_good) == ("night-10", nights_, "night-09")
    assert "since night-10, 15 nights, last good night-09" in str(told)
    mended = the_last(season(*fine, *slow, 1.0))
    assert mended.change is ChangeKind.FIXED and "slower since night-10, 15 nights" in mended.detail
    assert the_last(season(*fine, *slow, 1.0, 1.0)).change is ChangeKind.UNCHANGED
    partly = the_last(season(*fine, *slow, 1.15))
    assert partly.change is ChangeKind.SLOWER and partly.nights == 16


def test_what_a_night_does_not_show_is_not_mended() -> None:
    slow = season(*[1.0] * 10, *[1.3] * 3)
    busy = Night.of("busy", [record(night=13, timing=timing(10.0, noisy="the machine was busy"))])
    told = the_last([*slow, busy])
    assert told.change is ChangeKind.SLOWER and told.nights == 4
    assert "not seen to be mended: the machine was busy" in told.detail


@pytest.mark.parametrize("share", [1.01, 1.02])
def test_a_slow_drift_is_found_against_the_reference(share: float) -> None:
    told = the_last(season(*[1.0] * 10, *[share**n for n in range(20)]))
    assert told.change is ChangeKind.SLOWER and "since night-00" in told.detail


def test_a_faster_kernel_is_the_reference_after_three_nights() -> None:
    quick = [*[1.0] * 10, *[0.7] * 4]
    assert the_last(season(*quick)).change is ChangeKind.UNCHANGED
    told = the_last(season(*quick, *[1.0] * 3))
    assert told.change is ChangeKind.SLOWER and "rule: it is faster" in told.detail


@pytest.mark.parametrize("verdict", [Verdict.WRONG, Verdict.CRASHED])
def test_a_failure_stays_a_regression_with_its_age(verdict: Verdict) -> None:
    good = season(1.0, 1.0)
    bad = [Night.of(f"bad-{n}", [failed(night=10 + n, verdict=verdict)]) for n in range(3)]
    assert the_last([*good, bad[0]]).change is ChangeKind.NEW_FAILURE
    told = the_last([*good, *bad])
    assert told.change is ChangeKind.STILL_FAILING and told.regressed
    assert (told.since, told.nights, told.last_good) == ("bad-0", 3, "night-01")
    assert the_last([*good, *bad, *season(1.0, first=20)]).change is ChangeKind.FIXED
    never = the_last(bad)
    assert never.change is ChangeKind.STILL_FAILING and not never.regressed


def test_a_lost_backend_stays_lost() -> None:
    gone = [
        Night.of(f"gone-{n}", [record(night=10 + n, **UNAVAILABLE, baselines={})]) for n in range(9)
    ]
    told = the_last([*season(*[1.0] * 3), *gone])
    assert told.change is ChangeKind.LOST and told.regressed and told.cause is Cause.TOOLCHAIN
    assert (told.since, told.nights) == ("gone-0", 9)
    assert (
        the_last([*season(*[1.0] * 3), *gone, *season(1.0, first=25)]).change is ChangeKind.GAINED
    )


def test_a_run_of_some_cells_hides_no_loss_and_is_not_a_measure() -> None:
    full = [Night.of(f"n{n}", [record("relu", 10, n), record("sum", 10, n)]) for n in range(4)]
    part = Night.of("part", [record("relu", 10, 10)])
    short = Night.of("short", [record("relu", 10, 11)])
    lost = [one for one in RunComparison.of(part, short, [*full, part]).cells if one.regressed]
    assert [(one.series.op, one.since, one.nights) for one in lost] == [("sum", "part", 2)]
    back = Night.of("back", [record("relu", 10, 12), record("sum", 10, 12)])
    counts = RunComparison.of(part, back, [*full, part]).counts
    assert counts == {"insufficient data": 1, "unchanged": 1}


def test_another_class_of_machine_is_not_a_loss() -> None:
    """A hosted runner with another processor has another column, and its own references."""
    other = HERE.model_copy(update={"machine": "Linux x86_64, 4 CPUs", "device": "other"})
    here = season(*[1.0] * 6)
    there = Night.of("there", [record(night=10, target="x86_64_v3", environment=other)])
    assert not RunComparison.of(here[-1], there, here).regressed
    again = season(1.3, first=20)
    assert the_last([*here, there, *again]).change is ChangeKind.SUSPECT, (
        "and the first keeps its own"
    )


def test_two_runs_that_are_named_are_compared_by_their_own_times() -> None:
    """The reference knows of a step between them, or of none: it is there all the same."""
    nights_ = season(*[1.0] * 10, *[1.3] * 3, *[1.0] * 3)
    late = Night.of("late", [after(10.0)], [after(10.1), after(9.9)])
    own = RunComparison.of(nights_[11], late, nights_, own=True).cells[0]
    assert own.change is ChangeKind.FASTER and "since night-11" in own.detail
    assert RunComparison.of(nights_[11], late, nights_).cells[0].change is ChangeKind.UNCHANGED


def test_a_promoted_run_is_the_reference() -> None:
    slow = season(*[1.0] * 10, *[1.3] * 6)
    assert the_last(slow).regressed
    told = the_last(slow, promoted=["night-12"])
    assert told.change is ChangeKind.UNCHANGED


def test_the_steadier_of_two_figures_is_compared() -> None:
    """A GPU's own time is steady, eager's there less so."""
    random_ = random.Random(1)

    def gpu(us: float, night: int) -> Record:
        eager = {"eager": timing(20 * math.exp(random_.gauss(0, 0.2)))}
        return record(us=us, night=night, baselines=eager, venue="hardware: GPU")

    history = [Night.of(f"n{n}", [gpu(10 + n % 2 * 0.05, n)]) for n in range(10)]
    assert "time, against" in change(history, gpu(11.0, 20)).detail


# ---- what people decide


def decided(text: str, tmp_path: Path) -> NightDecisions:
    (tmp_path / "decisions.yaml").write_text(text)
    return NightDecisions.read(tmp_path)


def test_an_accepted_change_is_the_new_measure_and_the_spread_stays(tmp_path: Path) -> None:
    history = nights(8, 0.02)
    slower = [Night.of(f"late-{n}", [record(us=13.0, night=10 + n)]) for n in range(2)]
    decisions = decided("accepted: [{op: relu, from: late-0, why: exact now}]", tmp_path)
    before = [*history, *slower]

    def told(us: float, decisions: NightDecisions = decisions) -> ChangeKind:
        again = [after(us), after(us)]
        night = Night.of("after", [after(us)], again)
        [one] = RunComparison.of(before[-1], night, before, decisions).cells
        return one.change

    assert told(13.1, NightDecisions()) is ChangeKind.SLOWER
    assert told(13.1) is ChangeKind.UNCHANGED
    assert told(10.0) is ChangeKind.FASTER and told(17.0) is ChangeKind.SLOWER
    other = decided("accepted: [{op: sum, from: late-0, why: x}]", tmp_path)
    assert told(13.1, other) is ChangeKind.SLOWER
    first = decided("accepted: [{op: relu, from: after, why: x}]", tmp_path)
    assert told(30.0, first) is ChangeKind.UNCHANGED, "it is this run's change that is accepted"


def test_a_loss_and_a_failure_can_be_accepted_for_a_time(tmp_path: Path) -> None:
    text = "accepted: [{op: relu, from: bad-1, until: 2026-01-14, why: no runner has one}]"
    decisions = decided(text, tmp_path)
    good = season(*[1.0] * 4)
    for gone in (record(**UNAVAILABLE, baselines={}), failed()):
        bad = [
            Night.of(
                f"bad-{n}", [gone.model_copy(update={"time": f"2026-01-{n + 11}T00:00:00+00:00"})]
            )
            for n in range(5)
        ]

        def regressed(last: int, bad: Sequence[Night] = bad) -> bool:
            before = [*good, *bad[:last]]
            return RunComparison.of(before[-1], bad[last], before, decisions).regressed

        assert [regressed(n) for n in range(5)] == [True, False, False, False, True]


def test_a_cell_in_quarantine_fails_nothing_until_its_day_is_over(tmp_path: Path) -> None:
    decisions = decided(
        "quarantine: [{target: x86_64, until: 2026-01-21, why: the runner moves}]", tmp_path
    )

    def compared(night: int) -> RunComparison:
        bad = Night.of("after", [failed(night=night)])
        return RunComparison.of(Night.of("before", [record()]), bad, [], decisions)

    on_its_last_day, later = compared(20), compared(21)
    assert not on_its_last_day.regressed and later.regressed
    assert "in quarantine until 2026-01-21: the runner moves" in str(on_its_last_day.cells[0])


@pytest.mark.parametrize(
    "text",
    [
        "accepted: [{op: relu, why: x}]",
        "quarantine: [{op: relu, until: soon, why: x}]",
        "quarantine: [{operator: relu, until: 2026-01-01, why: x}]",
        "quarantine: [{op: relu, until: 2026-01-01}]",
        "[",
        "- 3",
    ],
)
def test_decisions_that_cannot_be_read_are_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"decisions\.yaml"):
        decided(text, tmp_path)


def test_decisions_that_cannot_be_read_are_not_a_missing_baseline(tmp_path: Path) -> None:
    """``none`` says that there may be no earlier run, not that anything else may be wrong."""
    night = Night.of("now", [record()])
    (tmp_path / "decisions.yaml").write_text("accepted: 3")
    with pytest.raises(ConfigError, match=r"decisions\.yaml"):
        regressions.against_first(["last_green", "none"], night, tmp_path)


# ---- the verbs


def written(folder: Path, several: Mapping[str, Sequence[Record]]) -> Path:
    for name, records in several.items():
        (folder / name).mkdir(parents=True)
        RecordFile(folder / name / "records.jsonl").append(records)
    return folder


@pytest.fixture
def reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Ten quiet nights, and one with a wrong kernel and a suspect."""
    monkeypatch.chdir(tmp_path)
    several = {
        night.name: [one for one in night.cells.values() if isinstance(one, Record)]
        for night in nights(10, 0.01, ["relu", "sum"])
    }
    several["after"] = [failed("relu", night=20), record("sum", 14.0, 20)]
    return written(tmp_path / "reports", several)


def test_diff_lists_the_worst_first(reports: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["diff", "night-09", "after"]) == 1
    first, second, counts = capsys.readouterr().out.splitlines()
    assert first.startswith("cpu/c++@x86_64 relu[ci/1000, float32]: new failure: wrong")
    assert ": suspicious: +4" in second and "against the median of 10 runs" in second
    assert counts == "after against night-09: 1 new failure, 1 suspicious"
    assert main.run(["diff", "night-03", "night-09"]) == 0
    assert capsys.readouterr().out == "night-09 against night-03: 2 unchanged\n"
    assert main.run(["diff", "night-09", "after", "json=true"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["counts"] == {"new failure": 1, "suspicious": 1}
    assert document["cells"][1]["moved"] > 0.3 and len(document["history"]) == 10


def test_without_an_earlier_run_the_answer_says_what_was_looked_for(tmp_path: Path) -> None:
    night = Night.of("now", [record()])
    missing = regressions.against_first(["tag:v1", "window:5", "none"], night, tmp_path)
    assert isinstance(missing, Missing)
    assert missing.reason.startswith(f"not compared: No run in {tmp_path} has the tag 'v1'")
    assert f"No earlier run in {tmp_path} shares cells with now" in missing.reason


def test_why_nothing_is_said_of_times_is_a_line(
    reports: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    busy = timing(10.0, noisy="the machine was busy")
    shutil.rmtree(reports / "after")
    written(reports, {"busy": [record(night=21, timing=busy), record("sum", 10.0, 21)]})
    assert main.run(["diff", "night-09", "busy"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "busy against night-09: 1 not comparable, 1 unchanged",
        "not comparable: the machine was busy",
    ]


def test_runs_that_cannot_be_compared_are_told(
    reports: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["diff", "night-09", "absent"]) == 2
    assert "No records in reports/absent" in capsys.readouterr().err
    written(reports, {"elsewhere": [record("softmax", 1.0, 25)]})
    assert main.run(["diff", "after", "elsewhere"]) == 3
    capsys.readouterr()
    (reports / "night-04" / "records.jsonl").write_text('{"schema": 99}\n{torn')
    main.run(["diff", "night-09", "after"])
    assert "night-04" in capsys.readouterr().err


RELU = """extern "C" int relu(const scalar_t* x, scalar_t* y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) y[i] = x[i] < 0 ? scalar_t(0) : x[i];
    return 0;
}
"""


QUICK = ["matrix", "kernels=kernels", "targets=host", "rounds=2", "budget_s=0.05", "track=false"]


@pytest.fixture
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, torch_ahead: None) -> Path:
    """A folder with one that is right."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "kernels"
    folder.mkdir()
    (folder / "relu.cpp").write_text(RELU)
    return folder


@pytest.mark.full
def test_a_matrix_fails_for_what_got_worse_since_the_last_green_run(
    kernels: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run([*QUICK, "run=one", "baseline=last_green"]) == 2
    assert "No earlier run in reports" in capsys.readouterr().err
    assert main.run([*QUICK, "run=one", "baseline=window:0"]) == 2
    assert main.run([*QUICK, "run=one"]) == 0
    assert main.run([*QUICK, "run=two", "baseline=last_green"]) == 0
    assert (
        "two against one: " in capsys.readouterr().out
    )  # of one earlier run, or of a busy machine
    (kernels / "relu.cpp").write_text(RELU.replace("scalar_t(0)", "scalar_t(1)"))
    assert main.run([*QUICK, "run=three", "baseline=last_green"]) == 1
    said = json.loads((tmp_path / "reports" / "three" / "regressions.json").read_text())
    assert said["before"] == "two" and said["counts"] == {"new failure": 2}
    assert said["cells"][0]["because"] == ["the kernel's source"]


@pytest.mark.drawn
@pytest.mark.usefixtures("kernels")
def test_suspects_of_a_matrix_are_timed_again(tmp_path: Path) -> None:
    """Earlier runs that were far quicker make suspects of all cells; there are few, so that it is
    not the machine."""
    assert main.run([*QUICK, "run=base"]) == 0
    records, _ = RecordFile(tmp_path / "reports" / "base" / "records.jsonl").read()
    for night in range(6):
        earlier = [
            one.model_copy(
                update={
                    "time": f"2025-01-0{night + 1}T00:00:00+00:00",
                    "timing": one.timing.model_copy(
                        update={"p20_us": one.timing.p20_us / 50, "noisy": ""}
                    ),
                    "source_hash": "quicker",
                }
            )
            for one in records
            if one.timing is not None
        ]
        written(tmp_path / "reports", {f"night-{night}": earlier})
    shutil.rmtree(tmp_path / "reports" / "base")  # its own times would make the history too wide
    assert main.run([*QUICK, "run=now", "baseline=night-5"]) in (0, 1)
    again = tmp_path / "reports" / "now" / "again.jsonl"
    said = json.loads((tmp_path / "reports" / "now" / "regressions.json").read_text())
    changes = [one["change"] for one in said["cells"]]
    assert len(changes) == 2 and {*changes} <= {"slower", "suspicious", "not comparable"}
    suspects = len(changes) - changes.count("not comparable")  # as cells of a busy machine are
    if suspects:
        times: dict[str, list[bool]] = defaultdict(list)
        for one in RecordFile(again).read()[0]:
            times[one.workload.name].append(one.comparable)
        assert len(times) == suspects
        for mine in times.values():
            tries = [mine[: n * rule.AGAIN] for n in range(1, rule.TRIES + 1)]
            enough = (tried for tried in tries if sum(tried) >= rule.AGAIN)
            assert mine == next(enough, tries[-1]) and len(mine) % rule.AGAIN == 0


def test_a_suspect_whose_further_times_say_nothing_is_timed_again_once_more() -> None:
    history, busy = nights(10, 0.01), after(13.0, timing=timing(13.0, noisy="busy"))

    def unconfirmed(*again: Record) -> bool:
        now = Night.of("after", [after(13.0)], again)
        return bool(RunComparison.of(history[-1], now, history).unconfirmed)

    assert unconfirmed() and unconfirmed(busy, busy) and unconfirmed(busy, after(12.9))
    assert not unconfirmed(busy, busy, after(12.9), after(13.1))


@pytest.mark.full
def test_in_a_workflow_of_github_the_kernels_line_is_annotated(
    kernels: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    (kernels / "relu.cpp").write_text(RELU.replace("return 0", "return no_such_name"))
    assert main.run([*QUICK, "run=one"]) == 1
    command = next(
        line for line in capsys.readouterr().err.splitlines() if line.startswith("::error")
    )
    assert command.startswith("::error file=kernels/relu.cpp,line=3,title=build_failed%3A relu ")
    assert "# one" in (tmp_path / "summary.md").read_text()
