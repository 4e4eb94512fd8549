"""Timed calls see fresh inputs, are looked at afterwards, and their time is not taken on trust."""

from __future__ import annotations

import math
import os
import random
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from portkern import ops
from portkern.cells.selection import host_targets
from portkern.evaluator import interleaved_timing
from portkern.evaluator.clock_check import TimedRound, Usual, at_odds, can_tell, evidence, suspicion
from portkern.evaluator.idle_time import IdleTime
from portkern.evaluator.interleaved_timing import Doubt, InterleavedTiming
from portkern.evaluator.long_rounds import LongRounds
from portkern.evaluator.result import Result
from portkern.evaluator.statistics import TimingPlan, write_back_us
from portkern.evaluator.telemetry import Watch
from portkern.evaluator.timed_draws import TimedInputs
from portkern.records.record import Verdict
from portkern.sandbox import session as sandbox
from portkern.spec import registry
from portkern.spec.candidate import Candidate
from portkern.spec.op import Workload
from portkern.spec.target import load
from portkern.testing import QUICK, evaluate
from portkern.worker import protocol, timed_inputs

from .kernels import RIGHT, relu

CPU = registry.load("cpu")
HOST = load(host_targets()[0])
OP = ops.load("relu")
CHEATS = Path(__file__).parent / "corpus" / "cheats"
WORKLOAD = Workload("race", {"n": 65536})


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("artifacts")


def result(candidate: Candidate, artifacts: Path) -> Result:
    options = replace(QUICK, plan=TimingPlan(rounds=3))
    results = evaluate(candidate, OP, CPU, HOST, [WORKLOAD], folder=artifacts, options=options)
    assert isinstance(results, list), results
    return results[0]


def test_an_honest_kernel_is_timed_on_calls_of_its_own(artifacts: Path) -> None:
    found = result(relu(RIGHT), artifacts)
    assert (found.verdict, found.detail) == (Verdict.PASSED, "")
    assert found.samples is not None
    assert {"load", "first", "run"} == found.seconds.keys()
    for samples in (found.samples, found.baselines["eager"]):
        assert len(samples.rounds) >= 3
        assert all(1 <= len(lap) <= TimingPlan().most for lap in samples.rounds)


def test_a_baseline_whose_calls_take_long_is_timed_in_fewer_rounds(artifacts: Path) -> None:
    options = replace(QUICK, plan=TimingPlan(rounds=3, slow_s=0.0))
    kernel = relu(RIGHT)
    results = evaluate(kernel, OP, CPU, HOST, [WORKLOAD], folder=artifacts, options=options)
    assert isinstance(results, list), results
    [found] = results
    assert found.verdict is Verdict.PASSED, found.detail
    assert found.samples is not None
    assert len(found.samples.rounds) >= 3
    assert {len(samples.rounds) for samples in found.baselines.values()} == {1}


@pytest.mark.parametrize(
    "cheat",
    [
        "static int calls; if (++calls > 12) return 0;",
        "static int calls; if (++calls > 12) n /= 2;",
        "static int calls; if (++calls > 12) --n;",
    ],
    ids=["honest until it is timed", "half of the work", "all but one element"],
)
def test_a_kernel_that_is_right_until_it_is_timed_is_wrong(cheat: str, artifacts: Path) -> None:
    found = result(relu(f"{cheat} {RIGHT}"), artifacts)
    assert found.verdict is Verdict.WRONG
    assert found.detail.startswith("in a timed call, ")
    assert found.samples is None


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "details"),
    [
        ("no_maximum_later.cpp", ["in a timed call, NaN or infinity where"]),
        # or it meets another round's buffers, which its table does not expect
        (
            "eight_calls_in_one.cpp",
            ["do the work of others", "in a timed call", "killed by", "the machine was too busy"],
        ),
    ],
)
def test_a_cheat_that_begins_when_it_is_timed_is_caught_in_its_timed_calls(
    name: str, details: list[str], artifacts: Path
) -> None:
    """There is one workload: no evaluation comes after the timing that could catch the cheat.
    Rounds are long enough to cheat in on a busy machine too."""
    source = (CHEATS / name).read_text()
    candidate = Candidate("softmax", "cpu", "c++", source, entry="softmax", style=CPU.style)
    plan = TimingPlan(rounds=5, budget_s=0.0, burst_s=0.1, stage_s=0.1, most=64)
    options = replace(QUICK, plan=plan)
    softmax, where = ops.load("softmax"), Workload("one", {"rows": 64, "cols": 256})
    results = evaluate(candidate, softmax, CPU, HOST, [where], folder=artifacts, options=options)
    assert isinstance(results, list), results
    ending = results[0]
    unsure = ending.samples.unsure if ending.samples else ""
    said = ending.detail if ending.verdict.bad else unsure
    assert any(words in said for words in details), ending


def test_a_result_remembered_for_a_pointer_is_of_no_use(artifacts: Path) -> None:
    remember = (
        "static const void* at[64]; static int n_at; for (int i = 0; i < n_at; ++i) "
        "if (at[i] == x) return 0; if (n_at < 64) at[n_at++] = x; "
    )
    assert result(relu(remember + RIGHT), artifacts).verdict is Verdict.WRONG


def test_a_clock_that_was_changed_makes_a_time_suspicious(artifacts: Path) -> None:
    source = """
import time
import numba
now = time.perf_counter_ns()
time.perf_counter_ns = lambda: now

@numba.njit
def relu(x, y):
    for i in range(x.size):
        sum = x[i]
        for _ in range(100):
            sum = sum * x[i] + x[i]
        y[i] = x[i] if x[i] > 0 or sum > 1e38 else y.dtype.type(0)
"""
    candidate = Candidate("relu", "cpu", "numba", source, entry="relu", style=CPU.style)
    found = result(candidate, artifacts)
    assert found.verdict is Verdict.SUSPICIOUS
    assert found.detail == "time.perf_counter_ns was replaced"


@pytest.mark.full
def test_a_thread_that_spins_between_calls_is_seen(artifacts: Path) -> None:
    spin = "std::thread([] { for (volatile int i = 0;; ++i); }).detach()"
    found = result(relu(f"static bool once = ({spin}, true); (void)once; {RIGHT}"), artifacts)
    assert found.verdict is Verdict.SUSPICIOUS
    assert found.detail == "it keeps a processor busy between its calls"


def test_a_pool_of_threads_that_sleeps_between_calls_is_honest(artifacts: Path) -> None:
    assert result(relu(f"\n#pragma omp parallel for\n{RIGHT}"), artifacts).verdict is Verdict.PASSED


def test_no_two_calls_have_the_same_inputs_and_asking_twice_gives_the_same() -> None:
    base, chosen = [torch.randn(1000)], random.SystemRandom()
    seeds = TimedInputs.after(None, chosen).seeds
    [first], [second], [again] = (timed_inputs.inputs(base, seeds, call) for call in (0, 1, 0))
    assert torch.equal(first, again)
    assert not torch.equal(first, second)
    [other] = timed_inputs.inputs(base, TimedInputs.after(None, chosen).seeds, 0)
    assert not torch.equal(first, other)


def test_what_is_hidden_is_what_is_beyond_the_harness_own_share_and_the_warm_up() -> None:
    lap = TimedRound([1000.0] * 4, wall_s=0.010)  # 4 ms spoken of: 1 ms and 0.3 may be hidden
    assert lap.hidden_s(0.002) == pytest.approx(0.010 - 0.004 - 0.001 - 0.002)
    assert lap.hides(0.0036) and not lap.hides(0.0038)


def test_what_may_be_hidden_scales_with_the_time_spoken_of() -> None:
    short, long = (TimedRound([us] * 128, wall_s=0.0) for us in (2.0, 200.0))
    assert short.allowed_s == pytest.approx((0.25 + 0.1) * 256e-6)
    assert long.allowed_s == pytest.approx(0.25 * 25.6e-3 + 0.3e-3)


NOTHING_UNUSUAL = Usual(hidden_s=0.0, uneven=False, ran_s=0.0, staging_ran_s=1e-5)


def test_rounds_that_hide_must_agree_with_long_ones_that_do_not() -> None:
    short, honest, slower = (TimedRound([us] * n, 1.0) for us, n in ((8, 5), (10, 500), (80, 500)))
    assert not at_odds([short] * 5, [honest], NOTHING_UNUSUAL)
    odd = at_odds([short] * 5, [slower], NOTHING_UNUSUAL)
    assert odd and not odd.certain
    assert "8 µs in rounds of 5 calls, and 80 µs in rounds of 500" in odd.reason
    assert not at_odds([short] * 5, [slower, honest], NOTHING_UNUSUAL)  # the fastest counts
    assert not at_odds([short] * 5, [slower], NOTHING_UNUSUAL, [8.0])  # so was the baseline
    assert at_odds([short] * 5, [slower], NOTHING_UNUSUAL, [0.2])


def test_beside_an_undisturbed_baseline_a_kernel_s_threads_wait_for_each_other() -> None:
    waits, runs = TimedRound([10] * 9, 1e-4, waited_s=5e-5), TimedRound([10] * 9, 1e-4)
    assert can_tell([waits] * 5, [runs] * 4 + [waits])
    assert not can_tell([waits] * 5, [runs] * 3 + [waits] * 2)
    assert can_tell([waits, runs], [runs, waits, waits])
    assert not can_tell([runs] * 5, [waits] * 5) and not can_tell([runs], [])


class NoIdleTime(IdleTime):
    """Timing alone takes nothing."""

    def __init__(self, method: str = "", call_us: float = 0.0) -> None:
        super().__init__({}, 0, "eager", 1, {0: method, "eager": ""}, 1.0)
        self.call_us = call_us

    def measure(self) -> None:
        self.least_s = self.latest_s = {"eager": 0.0}


def long_rounds(
    *pairs: tuple[float, float],
    short: float = 10,
    waited_s: float = 0.0,
    before: float = 10,
    few: float = 10,
    method: str = "",
    hidden_us: float = 0.0,
    idle_us: float = 0.0,
    busy_s: float = 0.0,
) -> LongRounds:
    """After short rounds of calls of ``short`` µs each, long ones of so many µs, and the
    baseline's, whose own rounds had calls of ``before`` µs, and those of as many calls as the
    kernel's ``few``. The kernel's long calls hide ``hidden_us`` each, empty ones take ``idle_us``
    by its own clock. In short rounds threads waited for a processor for ``busy_s``."""

    def of(us: float, calls: int, waited_s: float = 0.0, hidden_us: float = 0.0) -> TimedRound:
        return TimedRound([us] * calls, (us + hidden_us) * 1e-6 * (calls + 1), waited_s=waited_s)

    idle = NoIdleTime(method, idle_us)
    few_calls = [of(short, 9, busy_s)] * 5, [of(before, 60, busy_s)] * 5
    rounds = LongRounds(*few_calls, 500, False, idle)
    for mine, theirs in pairs:
        rounds.add(of(mine, 500, waited_s, hidden_us), of(theirs, 500), of(few, 9))
    return rounds


def test_a_kernel_is_accused_by_long_rounds_that_are_all_slower_than_the_baseline_beside_them() -> (
    None
):
    slow = long_rounds((30, 10), (40, 11), (30, 12))
    assert not slow.unsuspected and slow.accused
    assert "10 µs in rounds of 9 calls, and 25 µs in rounds of 500" in slow.accused.reason
    assert long_rounds((30, 10), (40, 11), (14, 12)).unsuspected
    assert long_rounds((30, 25), (40, 30), (30, 24)).unsuspected  # the machine is slower now
    few = long_rounds((30, 10), (30, 10))
    assert not few.unsuspected and not few.accused and "10 µs in rounds of 9" in few.uncertain
    disturbed = long_rounds(*[(30, 10)] * 9, waited_s=0.01)
    assert not disturbed.unsuspected and not disturbed.accused


def test_long_rounds_contradict_no_short_ones_of_a_busy_machine() -> None:
    """Tensors of 9 calls fit a cache, those of 500 do not: more for one thread than for many."""
    busy = long_rounds(*[(42, 11)] * 9, short=24, busy_s=0.001)
    assert not busy.unsuspected and not busy.accused and "too busy to tell" in busy.uncertain
    assert long_rounds(*[(42, 11)] * 9, short=24).accused
    assert long_rounds(*[(42, 11)] * 9, short=24, hidden_us=60, busy_s=0.001).accused


def test_what_more_calls_cost_the_baseline_too_accuses_nobody() -> None:
    """Its own rounds had as many calls as no cache holds the tensors of, the kernel's had few."""
    times = [(20, 20), (21, 21), (20, 20)]
    assert long_rounds(*times, before=20, few=10).unsuspected
    assert long_rounds(*times, before=20, few=20).accused


@pytest.mark.parametrize(
    ("method", "long_us", "accused"),
    [("", 5, True), ("events behind a stream", 5, False), ("events behind a stream", 6, True)],
    ids=["timed as the baseline", "in a way of its own", "by more than that explains"],
)
def test_a_stream_that_waits_for_another_one_may_be_microseconds_late(
    method: str, long_us: float, accused: bool
) -> None:
    rounds = long_rounds(*[(long_us, 10)] * 3, short=3, method=method)
    assert bool(rounds.accused) is accused


@given(st.integers(0, 2**62), st.integers(1, 31), st.booleans())
def test_sums_and_products_of_one_value_stay_exact_where_inputs_are_not_rolled(
    seed: int, eighths: int, structured: bool
) -> None:
    """Else one chain of additions, which rounds each the same way, would be far off."""
    base = [torch.full((3000,), eighths / 8), torch.full((3000,), -eighths / 8)]
    x, y = timed_inputs.inputs(base, (seed,), 0, rolled=False, structured=structured)
    for terms, of in ((x, x.double()), (x * y, x.double() * y.double())):
        assert np.add.accumulate(terms.numpy())[-1] == float(of.sum())  # in float32, in order
    assert not structured or (x[0] > 0 > y[0] and abs(x[0]) <= eighths / 8)


def test_inputs_that_are_not_rolled_differ_from_call_to_call() -> None:
    base = [torch.randn(100), torch.randn(100)]
    seen = [timed_inputs.inputs(base, (1,), call, rolled=False) for call in range(20)]
    assert len({tuple(float(tensor[0]) for tensor in one) for one in seen}) > 10


@pytest.mark.parametrize(("idle_us", "accused"), [(27, False), (4, True)])
@pytest.mark.parametrize(
    ("long_us", "hidden_us"), [(30, 0), (10, 8)], ids=["longer calls", "hidden time"]
)
def test_where_empty_calls_are_late_too_nobody_can_tell_why_a_kernel_s_are(
    long_us: float, hidden_us: float, idle_us: float, *, accused: bool
) -> None:
    """A host lags behind its GPU: an honest kernel's calls begin late, and all the more in long
    rounds."""
    rounds = long_rounds(
        *[(long_us, 10)] * 3,
        method="events behind a stream",
        hidden_us=hidden_us,
        idle_us=idle_us,
    )
    assert not rounds.unsuspected and bool(rounds.accused) is accused
    assert accused or "the machine was too busy to tell why" in rounds.uncertain


@pytest.mark.parametrize(
    ("patient", "waited_s", "waits", "accused"),
    [(True, 0.9, True, False), (False, 0.9, False, False), (False, 0.0, True, True)],
    ids=["who waits for a busy machine", "who does not", "before a kernel is accused"],
)
def test_another_load_is_waited_for_unless_nobody_would_be_accused(
    monkeypatch: pytest.MonkeyPatch, *, patient: bool, waited_s: float, waits: bool, accused: bool
) -> None:
    """A kernel hides most of its time, or the machine was busy meanwhile."""
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    monkeypatch.setattr(interleaved_timing, "IdleTime", lambda *given: NoIdleTime())
    hiding = TimedRound([10.0] * 9, 1.0, waited_s=waited_s)
    race = InterleavedTiming(
        *(OP, WORKLOAD, "float32", [], TimingPlan(patient=patient), 1.0, {0: HOST}),
        methods={0: "", "eager": ""},
        watch=Watch(HOST),
        rounds={0: [hiding] * 5, "eager": [TimedRound([10.0] * 9, 0.0001)] * 5},
    )
    monkeypatch.setattr(race, "_long_round", lambda key, *_: race.rounds[key][0])
    race._compare_clock(0, {0: None, "eager": None}, "eager")  # type: ignore[dict-item]
    assert (max(pauses) > 0) is waits
    assert (0 in race.lost, 0 in race.unsure) == (accused, not accused)


@pytest.mark.parametrize(
    ("wall_s", "told", "asked"),
    [(0.0001, False, False), (0.0001, True, True), (1.0, False, True)],
    ids=["nobody is told", "somebody is told", "it hides time"],
)
def test_times_that_nobody_is_told_are_only_confirmed_where_they_are_suspected(
    monkeypatch: pytest.MonkeyPatch, *, wall_s: float, told: bool, asked: bool
) -> None:
    """The machine is too busy to tell."""
    race = InterleavedTiming(
        *(OP, WORKLOAD, "float32", [], replace(TimingPlan().silent, told=told), 1.0, {0: HOST}),
        methods={0: "", "eager": ""},
        watch=Watch(HOST),
        rounds={
            0: [TimedRound([10.0] * 9, wall_s, waited_s=wall_s)] * 2,
            "eager": [TimedRound([10.0] * 9, 0.0001, waited_s=0.0001)] * 2,
        },
    )
    rounds: list[int | str] = []
    monkeypatch.setattr(race, "_long_round", lambda key, *_: rounds.append(key))
    race._compare_clock(0, {0: None, "eager": None}, "eager")  # type: ignore[dict-item]
    assert bool(rounds) is asked


@pytest.mark.parametrize("own_s", [0.001, 0.01], ids=["as its way takes", "more than is believed"])
def test_what_a_way_of_timing_takes_by_itself_needs_no_long_rounds(
    monkeypatch: pytest.MonkeyPatch, own_s: float
) -> None:
    """The kernel's rounds take 1 or 10 ms longer than it says, as rounds of empty calls do; the
    baseline's way takes 0.5 ms."""

    def measure(idle: IdleTime) -> None:
        idle.least_s = {0: own_s, "eager": 0.0005}

    monkeypatch.setattr(IdleTime, "measure", measure)
    race = InterleavedTiming(
        *(OP, WORKLOAD, "float32", [], TimingPlan(), 1.0, {0: HOST}),
        methods={0: "events behind a stream", "eager": "events"},
        watch=Watch(HOST),
        rounds={
            0: [TimedRound([10.0] * 9, 0.0001 + own_s)] * 5,
            "eager": [TimedRound([10.0] * 9, 0.0006)] * 5,
        },
    )
    asked: list[int | str] = []
    monkeypatch.setattr(race, "_long_round", lambda key, *_: asked.append(key))
    race._compare_clock(0, {0: None, "eager": None}, "eager")  # type: ignore[dict-item]
    assert bool(asked) is (own_s > 0.005)


def test_a_round_has_room_for_whole_tensors_of_which_little_is_read() -> None:
    op, plan, dims = ops.load("embedding"), TimingPlan(), {"vocab": 4000, "dim": 1024, "n": 2}
    race = InterleavedTiming(
        *(op, Workload("4000x1024x2", dims), "float32", [], plan, 1.0, {0: HOST}),
        methods={0: ""},
        watch=Watch(HOST),
    )
    calls = race._calls_of_a_long_round([TimedRound([4.0], 0.0001)])
    assert 1 < calls * 4000 * 1024 * 4 <= plan.round_bytes


def test_calls_that_take_more_processor_time_in_long_rounds_are_others_on_a_busy_machine_too() -> (
    None
):
    short, long = (TimedRound([us] * n, 1.0, waited_s=0.5) for us, n in ((8, 5), (80, 500)))
    ran = replace(long, busiest_s=0.04)
    odd = at_odds([short] * 5, [ran] * 3, NOTHING_UNUSUAL)
    assert odd and odd.certain
    for harmless in (
        at_odds([short] * 5, [ran, long], NOTHING_UNUSUAL),  # not in all of them
        at_odds([short] * 5, [ran] * 3, replace(NOTHING_UNUSUAL, strain=3.0)),
        at_odds([short] * 5, [replace(ran, beside_s=0.03)] * 3, NOTHING_UNUSUAL),
        at_odds([short] * 5, [ran] * 3, replace(NOTHING_UNUSUAL, ran_s=None)),
    ):
        assert harmless and not harmless.certain


def test_processor_time_counts_by_what_the_baseline_takes_on_the_same_machine() -> None:
    """Where many processes share one processor, every turn begins with empty caches."""
    kernel = TimedRound([6.0] * 499, 0.02, waited_s=0.015, busiest_s=0.0075)
    baseline = TimedRound([8.0] * 499, 0.02, waited_s=0.015, busiest_s=0.010)
    assert "busiest thread" in reason([kernel] * 5)[0]
    beside = Usual.of([baseline] * 5, alike=True)
    assert 1.5 < beside.strain < 2.5
    strained = replace(NOTHING_UNUSUAL, strain=beside.strain)
    assert "busiest thread" not in reason([kernel] * 5, strained)[0]
    assert Usual.of([replace(baseline, busiest_s=0.004)] * 5, alike=True).strain == 1.0
    assert Usual.of([], alike=True).strain == 1.0


def test_a_baseline_that_waits_within_its_calls_does_not_accuse_a_kernel() -> None:
    """Its clock goes on while it waits; its processor time does not."""
    waited = TimedRound([4000.0] * 7, 0.035, waited_s=0.02, busiest_s=0.012)
    kernel = TimedRound([834.0] * 6 + [8835.0], 0.0156, waited_s=0.0104, busiest_s=0.00736)
    usual = Usual.of([waited] * 5, alike=True)
    assert usual.ran_s == 0.0
    assert "busiest thread" not in reason([kernel] * 5, usual)[0]


def reason(laps: list[TimedRound], usual: Usual = NOTHING_UNUSUAL) -> tuple[str, bool]:
    """The suspicion's reason, and whether it is certain."""
    suspected = suspicion(laps, usual)
    return (suspected.reason, suspected.certain) if suspected else ("", False)


def test_a_call_that_does_the_work_of_eight_shows_in_the_mean() -> None:
    laps = [TimedRound([80.0 if i % 8 == 0 else 0.1 for i in range(64)], 660e-6) for _ in range(5)]
    assert "in the mean" in reason(laps)[0]
    assert not suspicion(laps, replace(NOTHING_UNUSUAL, uneven=True))  # so does the machine


def test_a_thread_that_ran_longer_than_its_calls_is_seen_on_a_busy_machine_too() -> None:
    honest = TimedRound([100.0] * 99, 0.011, waited_s=0.04, busiest_s=0.011)
    assert not suspicion([honest] * 5, NOTHING_UNUSUAL)
    odd = replace(honest, busiest_s=0.019)
    said, certain = reason([odd] * 5)
    assert "busiest thread ran for 190 µs per call" in said and certain
    assert not suspicion([*[odd] * 2, *[honest] * 3], NOTHING_UNUSUAL)
    of_a_team = replace(odd, beside_s=0.014)  # which spins while it waits
    assert not suspicion([of_a_team] * 5, NOTHING_UNUSUAL)
    beside_an_idle_one = replace(odd, busiest_s=0.04, beside_s=0.014)  # which stands ready
    assert "busiest thread" in reason([beside_an_idle_one] * 5)[0]


def test_a_few_slow_calls_in_a_few_rounds_are_not_a_cheat() -> None:
    even, odd = [10.0] * 64, [10.0] * 63 + [5000.0]
    laps = [TimedRound(samples, 1.05e-6 * sum(samples)) for samples in (even, even, even, odd, odd)]
    assert not suspicion(laps, NOTHING_UNUSUAL)


def test_work_done_while_inputs_are_made_is_seen_by_its_processor_time() -> None:
    lap = TimedRound([10.0] * 99, 1e-3, staging_ran_s=2.2e-3)
    assert not suspicion([replace(lap, staging_ran_s=1.6e-3)], NOTHING_UNUSUAL)
    said, certain = reason([replace(lap, staging_ran_s=2.5e-3)])
    assert "while the inputs" in said and not certain
    otherwise_made = Usual(0.0, uneven=False, ran_s=None, staging_ran_s=None)
    assert not suspicion([replace(lap, staging_ran_s=9.0)], otherwise_made)


def test_what_flushing_takes_is_by_the_call() -> None:
    """A GPU's baseline that is slower has fewer calls in a round."""
    flush_s, theirs = 131e-6, TimedRound([19.0] * 15, 16 * 150e-6)
    mine = TimedRound([14.0] * 20, 21 * (flush_s + 14e-6))
    assert suspicion([mine] * 5, Usual.of([theirs] * 5, alike=False))
    assert not suspicion([mine] * 5, Usual.of([theirs] * 5, alike=False, calls=20))
    late = replace(mine, wall_s=mine.wall_s + 20 * 14e-6)
    assert suspicion([late] * 5, Usual.of([theirs] * 5, alike=False, calls=20))


def test_what_a_fast_call_leaves_in_the_cache_is_written_while_it_is_flushed() -> None:
    where, calls = load("h100"), 214
    left_s = (calls + 1) * write_back_us(where, 4096 * 1024 * 4) / 1e6
    idle = IdleTime({}, 0, "eager", calls, {}, 1.0, left_s)
    idle.least_s = {"eager": calls * 131e-6}
    assert idle.least(calls * 132e-6) == pytest.approx(calls * 136e-6, rel=0.001)
    assert idle.least(calls * 140e-6) == calls * 140e-6  # as much as the baseline's rounds
    assert write_back_us(where, 1 << 40) == write_back_us(where, where.l2_bytes or 0) < 20
    assert write_back_us(load("x86_64"), 1 << 20) == 0


def test_a_round_in_which_threads_waited_is_not_evidence() -> None:
    lap = TimedRound([1000.0], wall_s=0.01)
    assert evidence([lap, replace(lap, waited_s=0.002)]) == [lap]


def test_every_call_may_be_looked_at_and_the_faster_half_is_more_often() -> None:
    lap, chosen = TimedRound([9.0, 1.0, 8.0, 2.0], wall_s=1.0), random.Random(0)
    looks = [lap.some(2, chosen) for _ in range(4000)]
    times = Counter(call for some in looks for call in some)
    assert times[1] == pytest.approx(2500, rel=0.1) and times[3] == pytest.approx(2500, rel=0.1)
    assert times[0] == pytest.approx(1000, rel=0.2) and times[2] == pytest.approx(1000, rel=0.2)
    assert all({*some} & {1, 3} for some in looks) and not lap.some(0, chosen)
    told_as_a_mean = TimedRound([1.0] * 4, wall_s=1.0)
    assert {call for _ in range(200) for call in told_as_a_mean.some(1, chosen)} == {0, 1, 2, 3}


def test_the_next_round_has_the_same_inputs_but_for_a_few_elements() -> None:
    chosen, base = random.SystemRandom(), [torch.randn(1000), torch.arange(1000), torch.zeros(0)]
    kept = [one.clone() for one in base]
    first = TimedInputs.after(None, chosen)
    second = TimedInputs.after(first, chosen)
    third = TimedInputs.after(second, chosen)
    one, two, three = (timed_inputs.inputs(base, now.seeds, 0) for now in (first, second, third))
    for before, after in zip(one[:2], two[:2], strict=True):
        assert 0 < int((before != after).sum()) <= 16
    assert int((two[0] != three[0]).sum()) > 900
    assert torch.equal(two[1].sort().values, torch.arange(1000))
    assert all(map(torch.equal, kept, base))


@pytest.mark.parametrize("samples", [[0.1] * 5, [math.nan] * 5, [-1.0] * 5])
def test_a_time_below_what_the_hardware_allows_is_suspicious(samples: list[float]) -> None:
    workload, where = Workload("big", {"n": 1 << 20}), load("h200")
    race = InterleavedTiming(
        OP, workload, "float32", [], TimingPlan(), 1.0, {0: where}, {}, Watch(where)
    )
    race.rounds = {0: [TimedRound(samples, wall_s=1.0)]}
    race._compare_floors()
    loss = race.lost[0]
    assert isinstance(loss, Doubt)
    assert "reading its inputs takes 0.874 µs at h200's peak" in loss.reason
    assert not race.samples()


def test_each_thread_of_a_baseline_has_a_processor_of_its_own() -> None:
    with sandbox.Session(("torch",), {}) as session:
        source = "def run():\n    return ()\n"
        answers = [
            session.ask(protocol.Reference(source, "cpu", compiled=False), timeout_s=60),
            session.ask(protocol.Stage((1,), 1, {}, {}), timeout_s=60),
            session.ask(protocol.Time(), timeout_s=60),
        ]
        assert all(isinstance(answer, sandbox.Answered) for answer in answers), answers
        family = [one := psutil.Process(session.pid), *one.children(recursive=True)]
        worker = max(family, key=psutil.Process.num_threads)
        allowed = [os.sched_getaffinity(thread.id) for thread in worker.threads()]
        assert 1 <= len(allowed) == len(set().union(*allowed)) <= len(os.sched_getaffinity(0))


def teardown_module() -> None:
    sandbox.close_servers()
