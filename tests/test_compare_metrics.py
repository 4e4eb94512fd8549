"""The metrics of a comparison: against all subsets of small cases, and what they refuse to say."""

from __future__ import annotations

import json
import math
import statistics as plain
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, permutation_test

from portkern.agent.attempt import Attempt, Status
from portkern.experiment import baseline
from portkern.experiment.compare.comparison import (
    AskedPlace,
    Figure,
    ModelComparison,
    ModelDifference,
    SampleScope,
    compare,
)
from portkern.experiment.compare.divergence import distance, token_lines
from portkern.experiment.compare.estimators import best_of_k, best_of_k_geometric
from portkern.experiment.compare.intervals import (
    pooled_geometric,
    pooled_mean,
    pooled_share,
    share_difference,
)
from portkern.experiment.compare.page.words import lead
from portkern.experiment.compare.sample import Sample
from portkern.experiment.ending import AttemptEnding
from portkern.experiment.statistics import fewest_ops, holm, sign_flips

CPU, HIP = AskedPlace("cpu", "x86_64"), AskedPlace("hip", "gfx942")
ENDED = (Status.NO_CODE, Status.BUILD_FAILED, Status.WRONG, Status.PASSED)


def sample(index: int = 0, status: Status | None = Status.PASSED, **more: Any) -> Sample:
    """A correct one ran on hardware, unless it is said to be otherwise."""
    given = {"model": "a", "op": "relu", "backend": "cpu", "target": "x86_64"}
    ran = {"evidence": "measured"} if status is Status.PASSED else {}
    return Sample.model_validate({**given, **ran, "index": index, "status": status, **more})


def timed(index: int, speedup: float | None, **more: Any) -> Sample:
    """A sample with its time, or a wrong one where ``speedup`` is None."""
    if speedup is None:
        return sample(index, Status.WRONG, **more)
    known = {"speedup": speedup, "us": 10 / speedup, "efficiency": speedup / 10}
    return sample(index, **{**known, **more})


def number(comparison: ModelComparison, metric: str, k: int | None = None, **more: Any) -> float:
    estimate = figure(comparison, metric, k, **more).estimate
    assert estimate is not None
    return estimate.value


def figure(
    comparison: ModelComparison,
    metric: str,
    k: int | None = None,
    p: float | None = None,
    **scope: Any,
) -> Figure:
    wanted = SampleScope(**{"model": "a", "venue": "measured", **scope})
    found = comparison.figure(wanted, metric, k, p)
    assert found is not None
    return found


def over_subsets(values: Sequence[Any], k: int, tell: Callable[[Sequence[Any]], float]) -> float:
    return plain.fmean(tell(chosen) for chosen in combinations(values, k))


# ---- one task, against all subsets

speedups = st.lists(st.none() | st.floats(0.1, 8), min_size=1, max_size=7)


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=8), st.data())
def test_best_of_k_is_the_mean_over_all_subsets(values: list[float], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(values)))
    assert best_of_k(values, k) == pytest.approx(over_subsets(values, k, max))
    geometric = math.exp(over_subsets(values, k, lambda chosen: math.log(max(chosen))))
    assert best_of_k_geometric(values, k) == pytest.approx(geometric)


def test_best_of_k_has_parevals_values() -> None:
    ratios = [4 / runtime for runtime in (1, 2, 4)]
    assert [best_of_k(ratios, k) for k in (1, 2, 3)] == pytest.approx([7 / 3, 10 / 3, 4])


@given(speedups, st.data())
def test_metrics_of_a_task_are_means_over_all_subsets(
    found: list[float | None], data: st.DataObject
) -> None:
    k = data.draw(st.integers(1, len(found)))
    comparison = compare([timed(i, s) for i, s in enumerate(found)], ks=[k], units={"x86_64": 4})

    def mean(tell: Callable[[Sequence[float | None]], float]) -> float:
        return over_subsets(found, k, tell)

    for p in (0.0, 0.5, 1.0, 2.0):
        fast = mean(lambda chosen, p=p: any(s is not None and s > p for s in chosen))  # type: ignore[misc]
        if any(found) or p == 0:
            assert number(comparison, "fast", k, p=p, **where(found)) == pytest.approx(fast)
    passed = mean(lambda chosen: any(s is not None for s in chosen))
    assert number(comparison, "pass", k, **where(found)) == pytest.approx(passed)
    if not any(found):
        return
    best = mean(lambda chosen: max(s or 0.0 for s in chosen))
    falls_back = mean(lambda chosen: math.log(max(1.0 if s is None else s for s in chosen)))
    assert number(comparison, "speedup_arithmetic", k) == pytest.approx(best)
    assert number(comparison, "speedup_geometric", k) == pytest.approx(math.exp(falls_back))
    assert number(comparison, "efficiency", k) == pytest.approx(best / 10)
    assert number(comparison, "efficiency_pareval", k) == pytest.approx(best / 4)
    correct = [s for s in found if s is not None]
    conditional = figure(comparison, "speedup_correct", k).estimate
    if len(correct) < k:
        assert conditional is None
    else:
        assert conditional is not None
        assert conditional.value == pytest.approx(over_subsets(correct, k, max))


def where(found: Sequence[float | None]) -> dict[str, str]:
    """Nobody knows where samples would have run that all failed."""
    return {"venue": "measured" if any(found) else ""}


@given(st.lists(st.sampled_from(ENDED), min_size=1, max_size=7), st.data())
def test_builds_and_replies_without_code_are_means_over_all_subsets(
    ended: list[Status], data: st.DataObject
) -> None:
    k = data.draw(st.integers(1, len(ended)))
    comparison = compare([sample(i, status) for i, status in enumerate(ended)], ks=[k])
    venue = "measured" if Status.PASSED in ended else ""
    built = over_subsets(ended, k, lambda c: any(s in (Status.WRONG, Status.PASSED) for s in c))
    assert number(comparison, "build", k, venue=venue) == pytest.approx(built)
    assert number(comparison, "no_code", venue=venue) == pytest.approx(
        ended.count(Status.NO_CODE) / len(ended)
    )


@given(st.lists(st.lists(st.booleans(), min_size=2, max_size=2), min_size=1, max_size=5), st.data())
def test_portable_pass_of_samples_that_serve_all_places_is_joint(
    right: list[list[bool]], data: st.DataObject
) -> None:
    k = data.draw(st.integers(1, len(right)))
    comparison = compare(in_two_places(right, lambda index, _: f"d{index}"), ks=[k])
    joint = over_subsets(right, k, lambda chosen: any(all(both) for both in chosen))
    found = figure(comparison, "portable_pass", k, venue="any")
    assert found.estimate is not None
    assert found.estimate.value == pytest.approx(joint)
    assert found.reason == "one sample is judged in all places"


@given(st.lists(st.lists(st.booleans(), min_size=2, max_size=2), min_size=1, max_size=4), st.data())
def test_portable_pass_of_places_that_are_sampled_by_themselves_is_over_all_pairs_of_subsets(
    right: list[list[bool]], data: st.DataObject
) -> None:
    k = data.draw(st.integers(1, len(right)))
    comparison = compare(in_two_places(right, lambda index, side: f"d{index}{side}"), ks=[k])
    sides = [combinations([both[side] for both in right], k) for side in (0, 1)]
    chances = [any(one) and any(other) for one, other in product(*sides)]
    assert number(comparison, "portable_pass", k, venue="any") == pytest.approx(
        plain.fmean(chances)
    )


def in_two_places(right: list[list[bool]], digest: Callable[[int, int], str]) -> list[Sample]:
    return [
        sample(
            index,
            Status.PASSED if one else Status.WRONG,
            backend=place.backend,
            target=place.target,
            digest=digest(index, side),
        )
        for index, both in enumerate(right)
        for side, (place, one) in enumerate(zip((CPU, HIP), both, strict=True))
    ]


# ---- means over tasks


def test_a_mean_is_over_tasks_after_the_estimate_of_each() -> None:
    one = [timed(i, s) for i, s in enumerate([2.0, None, None, None])]
    two = [timed(i, s, op="gelu") for i, s in enumerate([2.0, 2.0])]
    comparison = compare([*one, *two], ks=[1, 2])
    assert number(comparison, "pass", 1) == pytest.approx((1 / 4 + 1) / 2)
    assert number(comparison, "pass", 2) == pytest.approx((1 / 2 + 1) / 2)
    assert number(comparison, "speedup_geometric", 1) == pytest.approx(2 ** ((1 / 4 + 1) / 2))


@pytest.mark.parametrize("ks", [[3], [0], [-1]])
def test_a_k_that_nobody_sampled_is_an_error(ks: list[int]) -> None:
    with pytest.raises(ValueError, match=r"Got k=-?\d, and no task has more than 2 samples"):
        compare([timed(0, 1.0), timed(1, 1.0)], ks=ks)


def test_a_k_that_some_tasks_lack_is_not_a_number_and_says_so() -> None:
    comparison = compare([timed(0, 1.0), timed(1, None), timed(0, 1.0, op="gelu")])
    assert comparison.ks == (1, 2)
    assert figure(comparison, "pass", 2).reason == "1 of 2 tasks have fewer than 2 samples"
    assert "from 1 to 2 samples" in comparison.notes[0]


def test_samples_that_nobody_evaluated_count_for_nothing() -> None:
    comparison = compare([timed(0, 2.0), sample(1, None)])
    assert number(comparison, "pass", 1) == 1
    assert comparison.unevaluated == 1
    assert comparison.notes[0].startswith("1 sample had no verdict")
    [task] = compare([sample(0, None)]).tasks
    assert (task.samples, task.unevaluated, task.passed) == (0, 1, None)


@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan])
def test_a_speedup_that_no_clock_gives_is_an_error(value: float) -> None:
    with pytest.raises(ValueError, match=r"has speedup .*, expected a number above 0, or none"):
        compare([sample(speedup=value)])


def test_a_sample_that_is_there_twice_is_an_error() -> None:
    with pytest.raises(ValueError, match="Sample 3 of a on relu float32 cpu x86_64 is there twice"):
        compare([timed(3, 1.0), timed(3, 2.0)])


def test_a_backends_languages_are_tasks_of_their_own_where_there_are_several() -> None:
    native = [sample(index, language="c++") for index in range(2)]
    python = [sample(index, Status.WRONG, language="numba") for index in range(2)]
    assert compare(native).places == (CPU,)
    both = compare([*native, *python, emulated(0, True, language="hip")])
    assert both.places == (AskedPlace("cpu/c++", "x86_64"), AskedPlace("cpu/numba", "x86_64"), HIP)
    assert number(both, "pass", 1, backend="cpu/c++") == 1
    assert number(both, "pass", 1, backend="cpu/numba", venue="") == 0


# ---- evidence, and what was not timed


def emulated(index: int, right: bool, **more: Any) -> Sample:
    given = {"backend": HIP.backend, "target": HIP.target, **more}
    if right:
        return sample(index, evidence="emulated", **given)
    return sample(index, Status.WRONG, **given)


@given(st.lists(st.booleans(), min_size=1, max_size=4))
def test_what_ran_in_an_emulator_changes_no_number_of_what_was_measured(right: list[bool]) -> None:
    measured = [timed(0, 2.0), timed(1, None)]
    alone = compare(measured, ks=[1])
    # A place where something else was emulated has its venue from that.
    others = [emulated(9, True), *(emulated(i, one) for i, one in enumerate(right))]
    both = compare([*measured, *others], ks=[1])
    scopes = [f for f in both.figures if f.scope.venue == "measured"]
    known = {(f.scope, f.metric, f.k, f.p): f for f in alone.figures}
    assert scopes
    for one in scopes:
        assert one == known[one.scope, one.metric, one.k, one.p]
    share = (1 + sum(right)) / (1 + len(right))
    assert number(both, "pass", 1, venue="emulated") == pytest.approx(share)


def test_a_failure_before_it_ran_counts_where_the_others_ran() -> None:
    failed = sample(1, Status.BUILD_FAILED, backend="hip", target="gfx942", op="gelu")
    comparison = compare([emulated(0, True), failed])
    assert number(comparison, "pass", 1, venue="emulated") == 0.5
    assert comparison.venues() == ("emulated",)


def test_what_was_not_timed_is_not_a_share_of_fast_ones() -> None:
    comparison = compare([emulated(0, True), emulated(1, False)])
    for metric, p in (("fast", 1.0), ("speedup_geometric", None), ("efficiency", None)):
        untimed = figure(comparison, metric, 1, p=p, venue="emulated")
        assert untimed.estimate is None
        assert untimed.reason == "not timed: it ran in an emulator"
    assert number(comparison, "fast", 1, p=0.0, venue="emulated") == 0.5
    on_hardware = compare([sample(0), sample(1, Status.WRONG)])
    assert figure(on_hardware, "fast", 1, p=1.0).reason == "not timed"


def test_where_others_were_timed_nothing_correct_is_nothing_fast() -> None:
    comparison = compare([timed(0, 2.0), sample(0, Status.WRONG, model="b", evidence="measured")])
    assert number(comparison, "fast", 1, p=1.0, model="b") == 0
    assert number(comparison, "speedup_geometric", 1, model="b") == 1
    assert "falls back" in figure(comparison, "speedup_geometric", 1, model="b").reason


def test_a_correct_sample_without_a_time_among_timed_ones_is_told() -> None:
    comparison = compare([timed(0, 2.0), sample(1)])
    fast = figure(comparison, "fast", 1, p=1.0)
    assert fast.estimate is not None and fast.estimate.value == 1.0
    assert fast.reason == "1 of 2 correct samples were not timed and are missing"


def test_times_are_over_the_places_that_have_a_clock() -> None:
    untimed = sample(0, backend="opencl")
    comparison = compare([timed(0, 2.0), untimed])
    fast = figure(comparison, "fast", 1, p=1.0)
    assert (fast.tasks, fast.estimate and fast.estimate.value) == (1, 1.0)
    assert fast.reason == "without opencl on x86_64, where nothing was timed"


# ---- held-out sizes, translations, costs, cheats


def test_held_out_correctness_is_of_those_that_were_right_on_seen_sizes() -> None:
    known = [True, True, False, None]
    comparison = compare([*(sample(i, heldout=h) for i, h in enumerate(known)), timed(4, None)])
    assert number(comparison, "heldout") == pytest.approx(2 / 3)
    assert figure(compare([sample(0)]), "heldout").reason == (
        "no correct sample was run on held-out sizes"
    )


def test_translations_are_told_by_donor_and_backend() -> None:
    rows = [sample(0, donor="cuda"), sample(1, Status.WRONG, donor="cuda"), sample(2, donor="hip")]
    found = {(t.donor, t.backend): t for t in compare([*rows, sample(3)]).translations}
    assert found["cuda", "cpu"].estimate.value == 0.5
    assert found["hip", "cpu"].samples == 1
    assert len(found) == 2


def test_what_is_spent_is_over_what_is_solved() -> None:
    def cost(index: int, status: Status, op: str) -> Sample:
        spent = {"tokens_in": 10, "tokens_out": 90, "usd": 0.5, "seconds": 2.0}
        return sample(index, status, op=op, **spent)

    rows = [cost(0, Status.PASSED, "relu"), cost(1, Status.PASSED, "relu")]
    comparison = compare([*rows, cost(0, Status.WRONG, "gelu"), cost(1, Status.NO_CODE, "gelu")])
    assert number(comparison, "tokens_per_solved") == 400
    assert number(comparison, "usd_per_solved") == 2
    assert number(comparison, "seconds_per_solved") == 8
    free = compare([sample(0)])
    assert figure(free, "usd_per_solved").reason == "not known of all samples"
    lost = compare([cost(0, Status.WRONG, "relu")])
    assert figure(lost, "usd_per_solved", venue="").reason == "no task is solved"


def test_cheats_are_a_share_of_all_samples() -> None:
    rows = [sample(0), sample(1, Status.REJECTED, cheat="torch"), sample(2, Status.SUSPICIOUS,
            cheat="no launch"), sample(3, Status.NO_CODE)]  # fmt: skip
    assert number(compare(rows), "cheat") == 0.5


# ---- performance portability


def test_pennycooks_metric_is_the_harmonic_mean_over_measured_places() -> None:
    rows = [
        timed(0, 1.0, us=10.0, efficiency=0.5),
        timed(1, 2.0, us=5.0, efficiency=0.25),
        timed(0, 1.0, us=8.0, efficiency=0.8, backend="cuda", target="h200"),
        timed(0, 1.0, us=4.0, efficiency=0.9, model="b", backend="cuda", target="h200"),
        timed(0, 1.0, us=2.5, efficiency=0.9, model="b"),
        emulated(0, True),
    ]
    comparison = compare(rows)
    found = {(p.model, p.kind): p for p in comparison.portability}
    # Its best time on x86_64 is 5 us where 2.5 are known, and 8 us on the h200 where 4 are.
    assert found["a", "application"].value == pytest.approx(2 / (1 / 0.5 + 1 / 0.5))
    assert found["a", "architectural"].value == pytest.approx(2 / (1 / 0.5 + 1 / 0.8))
    assert found["b", "application"].value == 1
    assert [step.efficiency for step in found["a", "architectural"].steps] == [0.8, 0.5]
    assert number(comparison, "pp_application") == pytest.approx(0.5)
    assert comparison.best_known


def test_a_place_without_a_correct_kernel_makes_it_zero_and_is_named() -> None:
    rows = [timed(0, 1.0), timed(0, None, backend="cuda", target="h200"),
            timed(0, 1.0, op="gelu", backend="cuda", target="h200"),
            timed(0, 1.0, op="gelu")]  # fmt: skip
    comparison = compare(rows)
    [relu] = [p for p in comparison.portability if (p.op, p.kind) == ("relu", "application")]
    assert (relu.value, str(relu.blocked)) == (0, "cuda on h200")
    assert [step.portability for step in relu.steps] == [1, 0]
    assert relu.mean_of_supported == 1
    assert figure(comparison, "pp_application").reason == (
        "0 in 1 of 2 ops, most often for want of a correct kernel for cuda on h200"
    )


def test_portability_is_not_known_where_nothing_was_measured_or_timed() -> None:
    assert figure(compare([emulated(0, True)]), "pp_application").reason == "nothing was measured"
    [application, architectural] = compare([sample(0)]).portability
    assert application.value is architectural.value is None
    assert application.reason == "no time is known for cpu on x86_64"


def test_zeros_alone_are_not_a_mean_where_the_others_are_not_known() -> None:
    rows = [sample(0), sample(0, backend="cuda"), sample(0, op="gelu"),
            sample(0, Status.WRONG, op="gelu", backend="cuda")]  # fmt: skip
    comparison = compare(rows)
    assert {p.op: p.value for p in comparison.portability} == {"relu": None, "gelu": 0}
    mean = figure(comparison, "pp_application")
    assert (mean.estimate, mean.reason) == (
        None,
        "not known of 1 op: no time is known for cpu on x86_64",
    )


def test_a_place_whose_right_kernels_are_not_timed_is_not_a_step_of_the_cascade() -> None:
    rows = [sample(0), sample(0, backend="cuda"), sample(0, Status.WRONG, op="gelu"),
            sample(0, Status.WRONG, op="gelu", backend="cuda")]  # fmt: skip
    assert compare(rows).cascades == ()
    timed_there = [
        timed(0, 1.0, us=1.0, backend="hip"),
        timed(0, 1.0, us=1.0, backend="hip", op="gelu"),
    ]
    [one] = [c for c in compare([*rows, *timed_there]).cascades if c.kind == "application"]
    assert [(step.place.backend, step.efficiency) for step in one.steps] == [("hip", 1.0)]
    assert one.value is None and one.reason.startswith("no time is known for")


def test_times_of_two_devices_are_not_compared() -> None:
    rows = [timed(0, 1.0, us=10.0, device="slow"), timed(0, 1.0, us=1.0, device="fast", model="b")]
    assert {p.value for p in compare(rows).portability if p.kind == "application"} == {1.0}


@given(st.dictionaries(st.sampled_from("abcdef"), st.floats(0.01, 1), min_size=1))
def test_a_cascade_ends_at_the_portability_of_all_places(found: dict[str, float]) -> None:
    rows = [timed(0, 1.0, backend=name, efficiency=e, us=1.0) for name, e in found.items()]
    [one] = [p for p in compare(rows).portability if p.kind == "architectural"]
    assert one.value == pytest.approx(len(found) / sum(1 / e for e in found.values()))
    falling = [step.efficiency for step in one.steps]
    assert falling == sorted(found.values(), reverse=True)
    for count, step in enumerate(one.steps, 1):
        assert step.portability == pytest.approx(plain.harmonic_mean(falling[:count]))


# ---- divergence of code


def test_layout_and_comments_do_not_diverge() -> None:
    one = 'int f( int x ){ // doubled\n  return 2*x;\n}\n/* the\n end */\nchar* s = "// no";\n'
    two = 'int f(int x) {\nreturn 2 * x ;\n}\nchar *s = "// no";'
    assert token_lines(one) == token_lines(two)
    assert token_lines("x = 1  # one\nS = '''a # b'''\n") == token_lines("x=1\nS = '''a # b'''")
    assert '" / / no " ;' in "\n".join(token_lines(two))


def test_divergence_is_jaccards_distance_of_lines() -> None:
    assert distance(token_lines("int a;\nint b;"), token_lines("int b;\nint c;")) == 1 - 1 / 3
    sources = {"d0": "int a;\nint b;", "d1": "int b;\nint c;", "d2": "int z;"}
    rows = [timed(0, 3.0, digest="d0"), timed(1, 1.0, digest="d2"),
            emulated(0, True, digest="d1")]  # fmt: skip
    [found] = compare(rows, sources=sources).divergences
    assert found.estimate.value == pytest.approx(2 / 3)
    assert {found.first, found.second} == {CPU, HIP}


def test_a_divergence_that_all_ops_share_has_no_interval_and_none_ends_above_1() -> None:
    sources = {
        f"{op}{place}": f"int {op};\n" * (place == 0) + f"int z{place};\n{op}"
        for op in "ab"
        for place in (0, 1)
    }
    sources |= {"c0": "int c;", "c1": "int c;\nint d;"}
    rows = [
        row
        for op in "abc"
        for row in (
            timed(0, 1.0, op=op, digest=f"{op}0"),
            emulated(0, True, op=op, digest=f"{op}1"),
        )
    ]
    [apart] = compare(rows, sources=sources).divergences
    assert apart.estimate.ci95 is not None and apart.estimate.ci95[1] <= 1
    same = [row for row in rows if row.op != "c"]
    [apart] = compare(same, sources=sources).divergences
    assert apart.estimate.ci95 is None


# ---- differences between models


def models(rates: dict[str, Sequence[Sequence[bool]]]) -> list[Sample]:
    """The samples of each model, for each op right or wrong as ``rates`` says."""
    return [
        sample(index, Status.PASSED if right else Status.WRONG, model=model, op=f"op{number}",
               evidence="measured")
        for model, ops in rates.items()
        for number, several in enumerate(ops)
        for index, right in enumerate(several)
    ]  # fmt: skip


def difference(comparison: ModelComparison, metric: str = "pass", k: int = 1) -> ModelDifference:
    [found] = [d for d in comparison.differences if (d.metric, d.k) == (metric, k)]
    return found


def test_a_model_that_is_always_right_is_shown_to_be_better() -> None:
    comparison = compare(models({"a": [[True, True]] * 12, "b": [[False, True]] * 12}))
    found = difference(comparison)
    assert found.shown
    assert found.words.startswith("pass@1: a is better than b (a less b is +50 points [")
    assert found.p_value == 2 / 2**12


def test_equal_models_are_told_to_show_no_difference() -> None:
    comparison = compare(models({"a": [[True, False]] * 12, "b": [[False, True]] * 12}))
    found = difference(comparison)
    assert (found.shown, found.p_value) == (False, 1)
    assert "no difference shown between a and b" in found.words
    assert found.estimate is not None and found.estimate.ci95 is not None
    low, high = found.estimate.ci95
    assert low < 0 < high


def test_one_op_shows_no_difference() -> None:
    found = difference(compare(models({"a": [[True]], "b": [[False]]})))
    assert found.p_value is found.p_holm is None
    assert not found.shown
    assert "one op" in found.words


def test_too_few_ops_for_any_difference_are_told() -> None:
    found = difference(compare(models({"a": [[True]] * 3, "b": [[False]] * 3})))
    assert not found.shown
    assert "3 ops are too few to show any" in found.words


@given(st.integers(0, 2**32 - 1))
def test_samples_beyond_the_others_budget_change_no_difference(seed: int) -> None:
    draw = np.random.default_rng(seed).random((2, 4, 3)) < 0.5
    equal = {"a": draw[0].tolist(), "b": draw[1].tolist()}
    more = {**equal, "a": [[*several, True, True] for several in equal["a"]]}
    assert compare(models(more)).differences == compare(models(equal)).differences


@given(st.lists(st.integers(-3, 3), min_size=2, max_size=9))
def test_the_sign_flip_test_is_scipys(found: list[int]) -> None:
    values = np.array(found, float)
    known = permutation_test((values,), np.sum, permutation_type="samples", n_resamples=1000)
    assert sign_flips(found) == pytest.approx(known.pvalue)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_holms_correction_rejects_what_the_step_down_procedure_rejects(found: list[float]) -> None:
    for level in (0.01, 0.05, 0.3):
        rejected: set[int] = set()
        for rank, place in enumerate(sorted(range(len(found)), key=found.__getitem__)):
            if found[place] > level / (len(found) - rank):
                break
            rejected.add(place)
        # A value on the very edge may fall either way by rounding.
        edge = any(math.isclose(p * (len(found) - r), level) for p in found for r in range(6))
        assert edge or {i for i, p in enumerate(holm(found)) if p <= level} == rejected


# ---- intervals


@pytest.mark.parametrize("counts", [{"relu": 3}, {"relu": 3, "add": 0, "sum": 5}])
def test_an_experiment_says_the_same_of_the_same_samples(counts: dict[str, int]) -> None:
    """pass@k of ``experiment name=baseline``, of 5 samples of which so many are correct."""
    ended = {
        op: [Status.PASSED] * right + [Status.WRONG] * (5 - right) for op, right in counts.items()
    }
    comparison = compare(
        [sample(k, each, op=op) for op, several in ended.items() for k, each in enumerate(several)],
        ks=[1, 3],
    )
    told = baseline.pass_at_k_of_all([sampled(op, several) for op, several in ended.items()])
    for k in (1, 3):
        theirs, ours = figure(comparison, "pass", k).estimate, told[k - 1]
        assert theirs is not None and theirs.ci95 is not None
        assert (ours.value, *ours.ends) == pytest.approx((theirs.value, *theirs.ends))


def sampled(op: str, statuses: Sequence[Status]) -> baseline.Sampled:
    attempts = [
        Attempt(id=f"{k}.0", slot=k, number=0, op=op, target="x86_64", backend="cpu", status=each)
        for k, each in enumerate(statuses)
    ]
    ends = tuple(AttemptEnding(one, one.status) for one in attempts)
    return baseline.Sampled(op, ends, unevaluated=0, clock=False)


def columns(rows: Iterable[tuple[float, float]]) -> tuple[Any, Any]:
    tops, bottoms = zip(*rows, strict=True)
    return np.array(tops, float), np.array(bottoms, float)


@given(st.lists(st.floats(0, 1), min_size=2, max_size=12))
def test_intervals_hold_their_value_and_stay_in_bounds(found: list[float]) -> None:
    table = columns((value, 1) for value in found)
    for estimate in (pooled_share(*table), pooled_mean(*table), pooled_geometric(*table)):
        assert estimate is not None
        low, high = estimate.ends
        assert low <= estimate.value + 1e-12 and estimate.value - 1e-12 <= high
        assert low >= 0
    assert pooled_share(*table).ends[1] <= 1


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_ops_that_all_say_the_same_leave_room_for_others(value: float) -> None:
    low, high = pooled_share(*columns([(value, 1)] * 10)).ends
    assert high - low > 0.2
    apart = share_difference(*columns([(value, value)] * 10), np.ones(10))
    assert apart is not None and apart.ends[1] - apart.ends[0] > 0.2


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 3)), min_size=2, max_size=30), st.data()
)
def test_an_interval_never_moves_against_the_data(
    ops: list[tuple[int, int]], data: st.DataObject
) -> None:
    """An op with more that is right lowers neither end."""
    rows = [(right * tasks / 5, tasks) for right, tasks in ops]
    which = data.draw(st.sampled_from(range(len(rows))))
    top, tasks = rows[which]
    more = [*rows]
    more[which] = (data.draw(st.floats(top, tasks)), tasks)
    (low, high), (low_more, high_more) = (
        pooled_share(*columns(each)).ends for each in (rows, more)
    )
    assert low_more >= low - 1e-9 and high_more >= high - 1e-9
    assert 0 <= low <= high <= 1
    other = np.full(len(rows), 0.5)
    apart, apart_more = (share_difference(columns(each)[0], other, columns(rows)[1])
                         for each in (rows, more))  # fmt: skip
    assert apart and apart_more
    assert all(np.array(apart_more.ends) >= np.array(apart.ends) - 1e-9)
    assert apart.ends[0] <= apart.value <= apart.ends[1]


@pytest.mark.parametrize("n", [8, 12, 24])
def test_ends_of_right_and_wrong_ops_are_near_those_of_clopper_and_pearson(n: int) -> None:
    for c in range(n + 1):
        found = pooled_share(*columns([(1, 1)] * c + [(0, 1)] * (n - c))).ends
        exact = binomtest(c, n).proportion_ci()
        assert found == pytest.approx((exact.low, exact.high), abs=0.08)


def test_so_few_operators_that_none_can_be_shown_are_told_so() -> None:
    ops = [[True]] * 4
    few = compare(models({"a": ops, "b": [[False]] * 4}))
    [note] = [note for note in few.notes if "the least p" in note]
    assert note.startswith("Over 4 operators and with 1 test the least p that there can be is 0.12")
    assert "6 operators or more can show one" in note
    enough = compare(models({"a": [[True]] * 6, "b": [[False]] * 6}))
    [note] = [note for note in enough.notes if "the least p" in note]
    assert "is 0.031; a difference is shown below 0.05" in note
    assert any(one.shown for one in enough.differences)


@pytest.mark.parametrize("tests", [1, 4, 12, 30, 400, 501])
def test_the_fewest_operators_that_can_show_a_difference_are_the_fewest(tests: int) -> None:
    """Signs are tried with all operators of one mind: nothing is surer."""
    found = fewest_ops(tests)
    shown = [tests * sign_flips([1.0] * ops) < 0.05 for ops in range(1, 30)]
    assert found == (30 - shown[::-1].index(False) if shown[-1] else None)


def test_the_surest_pair_is_told_first() -> None:
    """All pairs have the least p that there can be, and one is the furthest apart."""
    ops = range(20)
    close, far = [[op % 5 > 0] * 3 for op in ops], [[True] * 3 for op in ops]
    found = compare(models({"a": [[False] * 3] * 20, "b": close, "c": far}))
    assert lead(found)[0].startswith("pass@1: c is better than a")


def test_places_of_one_op_are_not_independent_ops() -> None:
    """Twelve ops in three places that always agree tell as much as twelve ops in one."""
    ops = [[True], [False]] * 6
    once = compare(models({"a": ops}))
    places = [("cpu", "x86_64"), ("cuda", "h200"), ("triton", "h200")]
    rows = [
        one.model_copy(update={"backend": backend, "target": target})
        for one in models({"a": ops})
        for backend, target in places
    ]
    assert figure(compare(rows), "pass", 1).estimate == figure(once, "pass", 1).estimate


def test_the_order_of_samples_changes_nothing() -> None:
    rows = [*models({"a": [[True, False]] * 4, "b": [[False, True]] * 4}), emulated(0, True)]
    found = [compare(order, ks=[1, 2]) for order in (rows, rows[::-1])]
    forward, backward = (
        {(f.scope, f.metric, f.k, f.p): (f.estimate, f.reason) for f in one.figures}
        for one in found
    )
    assert forward.keys() == backward.keys()
    for key, (estimate, reason) in forward.items():
        other, words = backward[key]
        assert reason == words
        assert (estimate is None) == (other is None)
        assert estimate is None or other is None or estimate.ends == pytest.approx(other.ends)


def test_a_document_is_json_and_has_every_number() -> None:
    comparison = compare([*models({"a": [[True]] * 2, "b": [[False]] * 2}), emulated(0, True)])
    told = json.loads(json.dumps(comparison.document(), allow_nan=False))
    assert len(told["figures"]) == len(comparison.figures)
    assert told["places"] == ["cpu on x86_64", "hip on gfx942"]
    assert {"value", "ci95", "n"} == set(told["figures"][0]["estimate"])


def test_a_figure_without_a_number_has_a_reason() -> None:
    with pytest.raises(ValueError, match="expected a reason"):
        Figure(SampleScope("a", ""), "pass", None, 1)


def test_by_suite_backend_and_place_are_numbers_of_their_own() -> None:
    rows = [timed(0, 2.0, suite="level1"), timed(0, None, op="gelu", suite="level2"),
            timed(0, 1.0, op="gelu", suite="level2", backend="cuda", target="h200")]  # fmt: skip
    comparison = compare(rows)
    assert number(comparison, "pass", 1, suite="level1") == 1
    assert number(comparison, "pass", 1, suite="level2") == 0.5
    assert number(comparison, "pass", 1, backend="cpu") == 0.5
    assert number(comparison, "pass", 1, backend="cuda", target="h200") == 1
    scopes = [scope for scope in comparison.scopes("a") if scope.venue == "measured"]
    assert [scope.backend for scope in scopes] == ["", "cpu", "cuda", "cpu", "cuda"]


def test_portability_is_told_by_suite_too() -> None:
    h200 = {"backend": "cuda", "target": "h200"}
    rows = [
        timed(0, 1.0, suite="level1"),
        timed(0, 1.0, suite="level1", **h200),
        timed(0, 1.0, op="gelu", suite="level2"),
        timed(0, None, op="gelu", suite="level2", **h200),
    ]
    comparison = compare(rows)
    for suite, value in (("level1", 1.0), ("level2", 0.0), ("", 0.5)):
        assert number(comparison, "pp_application", suite=suite) == value
        assert number(comparison, "portable_pass", 1, suite=suite) == value


def test_nothing_at_all_is_an_empty_comparison() -> None:
    comparison = compare([])
    assert (comparison.models, comparison.figures, comparison.differences) == ((), (), ())
