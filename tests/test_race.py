"""Timed calls see fresh inputs, are looked at afterwards, and their time is not taken on trust."""

from __future__ import annotations

import math
import os
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import torch

from portkern import ops
from portkern.evaluator.interleaved_timing import Doubt, InterleavedTiming, TimedRound, _Round
from portkern.evaluator.statistics import TimingPlan
from portkern.evaluator.telemetry import Watch
from portkern.evaluator.trial import Result
from portkern.matrix.selection import host_targets
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


def test_a_thread_that_spins_between_calls_is_seen(artifacts: Path) -> None:
    spin = "std::thread([] { for (volatile int i = 0;; ++i); }).detach()"
    found = result(relu(f"static bool once = ({spin}, true); (void)once; {RIGHT}"), artifacts)
    assert found.verdict is Verdict.SUSPICIOUS
    assert found.detail == "it keeps a processor busy between its calls"


def test_a_pool_of_threads_that_sleeps_between_calls_is_honest(artifacts: Path) -> None:
    assert result(relu(f"\n#pragma omp parallel for\n{RIGHT}"), artifacts).verdict is Verdict.PASSED


def test_no_two_calls_have_the_same_inputs_and_asking_twice_gives_the_same() -> None:
    base, chosen = [torch.randn(1000)], random.SystemRandom()
    seeds = _Round.after(None, chosen).seeds
    [first], [second], [again] = (timed_inputs.inputs(base, seeds, call) for call in (0, 1, 0))
    assert torch.equal(first, again)
    assert not torch.equal(first, second)
    [other] = timed_inputs.inputs(base, _Round.after(None, chosen).seeds, 0)
    assert not torch.equal(first, other)


def test_what_is_hidden_is_what_is_beyond_the_harness_own_share_and_the_warm_up() -> None:
    lap = TimedRound([1000.0] * 4, wall_s=0.010)  # 4 ms spoken of
    assert lap.hidden_s(0.002) == pytest.approx(0.010 - 0.004 - 0.001 - 0.002)
    assert lap.hides() and not lap.hides(0.0039)


def test_every_call_may_be_looked_at_and_the_faster_half_is_more_often() -> None:
    lap, chosen = TimedRound([9.0, 1.0, 8.0, 2.0], wall_s=1.0), random.Random(0)
    looks = [lap.some(2, chosen) for _ in range(4000)]
    times = Counter(call for some in looks for call in some)
    assert times[1] == pytest.approx(2500, rel=0.1) and times[3] == pytest.approx(2500, rel=0.1)
    assert times[0] == pytest.approx(1000, rel=0.2) and times[2] == pytest.approx(1000, rel=0.2)
    assert all(some & {1, 3} for some in looks) and not lap.some(0, chosen)
    told_as_a_mean = TimedRound([1.0] * 4, wall_s=1.0)
    assert {call for _ in range(200) for call in told_as_a_mean.some(1, chosen)} == {0, 1, 2, 3}


def test_the_next_round_has_the_same_inputs_but_for_a_few_elements() -> None:
    chosen, base = random.SystemRandom(), [torch.randn(1000), torch.arange(1000), torch.zeros(0)]
    kept = [one.clone() for one in base]
    first = _Round.after(None, chosen)
    second = _Round.after(first, chosen)
    third = _Round.after(second, chosen)
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
