"""The judge: right kernels pass, wrong ones do not, at every op and dtype."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from portkern import check, ops
from portkern.check import DISTRIBUTIONS, Case, compare, make_case
from portkern.op import FLOATS, Workload


def cases(name: str, dtype: str) -> list[Case]:
    op = ops.load(name)
    return [make_case(op, op.workloads["ci"][1], dtype, d) for d in DISTRIBUTIONS]


def problems(case: Case, *actual: Any) -> str:
    return compare(actual=actual, case=case).problem


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ops.names())
def test_the_frameworks_own_kernel_passes(name: str, dtype: str) -> None:
    for case in cases(name, dtype):
        assert problems(case, *case.own) == ""


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ops.names())
def test_an_answer_rounded_once_passes(name: str, dtype: str) -> None:
    for case in cases(name, dtype):
        assert problems(case, case.exact[0].to(getattr(torch, dtype))) == ""


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ops.names())
def test_negative_controls_fail(name: str, dtype: str) -> None:
    """All zeros, poison left as it was, the mean everywhere, a few percent off, an input back."""
    passed: dict[str, list[str]] = {}
    for case in cases(name, dtype):
        for control, output in controls(case).items():
            passed.setdefault(control, []).append(problems(case, output))
    assert all(passed["zeros"]) and all(passed["poison"]), "these fail whatever the inputs"
    assert [control for control, found in passed.items() if not any(found)] == []


def controls(case: Case) -> dict[str, torch.Tensor]:
    right = case.own[0]
    made = {
        "zeros": torch.zeros_like(right),
        "poison": check.poison(tuple(right.shape), str(right.dtype).removeprefix("torch.")),
        "mean": torch.full_like(right, float(right.double().mean())),
        "5 % off": (right.double() * 1.05).to(right.dtype),
    }
    if case.inputs[0].numel() == right.numel():
        made["identity"] = case.inputs[0].reshape(right.shape)
    return made


@pytest.mark.parametrize("name", ops.names())
def test_a_half_precision_result_in_float32_clothes_fails(name: str) -> None:
    if name in ("relu", "transpose"):
        pytest.skip("the ties inputs are exact in bfloat16; covered by normal ones below")
    for case in cases(name, "float32"):
        if case.distribution == "ties":
            continue
        rounded = case.own[0].to(torch.bfloat16).float()
        assert problems(case, rounded), case.distribution


@pytest.mark.parametrize("name", ["relu", "transpose"])
def test_a_rounded_copy_fails(name: str) -> None:
    for case in cases(name, "float32")[:3]:
        assert problems(case, case.own[0].to(torch.bfloat16).float()), case.distribution


def test_one_wrong_element_is_found_and_named() -> None:
    case = cases("softmax", "float32")[0]
    output = case.own[0].clone()
    output[3, 5] += 0.25
    assert problems(case, output).startswith("1 of 65536 elements are off; the worst is 0.25")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_nonfinite_element_fails(value: float) -> None:
    case = cases("gelu", "float32")[0]
    output = case.own[0].clone()
    output[7] = value
    assert "NaN or infinity" in problems(case, output)


def test_a_nan_in_the_reference_is_no_wildcard() -> None:
    case = cases("relu", "float32")[0]
    exact, own = case.exact[0].clone(), case.own[0].clone()
    exact[0] = own[0] = math.nan
    odd = replace(case, exact=(exact,), own=(own,))
    assert problems(odd, own) == ""
    assert "NaN" in problems(odd, case.own[0])


def test_overflow_to_infinity_is_right_where_rounding_says_so() -> None:
    case = cases("relu", "float16")[0]
    exact = case.exact[0].clone()
    exact[0] = 1e6
    odd = replace(case, exact=(exact,))
    output = case.own[0].clone()
    output[0] = math.inf
    assert problems(odd, output) == ""


def test_a_long_sum_that_cancels_may_err_as_one_chain_of_additions_does() -> None:
    """A float32 product summed in order is strict arithmetic; a library sums in blocks."""
    op = ops.load("matmul")
    work = Workload("long", {"m": 24, "n": 24, "k": 4096})
    for distribution in DISTRIBUTIONS:
        case = make_case(op, work, "float32", distribution)
        a, b = case.inputs
        chained = torch.zeros(24, 24)
        for k in range(4096):
            chained = torch.addcmul(chained, a[:, k : k + 1], b[k : k + 1])
        assert problems(case, chained) == "", distribution
        rounded = a.bfloat16().float() @ b.bfloat16().float()
        assert problems(case, rounded) or distribution == "ties"  # which are exact in bfloat16


def test_a_normaliser_summed_in_order_is_strict_arithmetic_too() -> None:
    op = ops.load("softmax")
    for distribution in DISTRIBUTIONS:
        case = make_case(op, Workload("w", {"rows": 64, "cols": 4096}), "float32", distribution)
        powers = case.inputs[0].exp()
        total = torch.zeros(64)
        for column in range(4096):
            total += powers[:, column]
        assert problems(case, powers / total[:, None]) == "", distribution


def test_a_lucky_sum_near_zero_is_judged_by_its_terms() -> None:
    x = torch.tensor([1.0, 2.0**-12, -1.0], dtype=torch.float32).repeat(999).reshape(1, -1, 1)
    exact = x.double().sum(1)
    work = Workload("made", {"outer": 1, "reduce": x.numel(), "inner": 1})
    chain = check._chain(ops.load("sum"), work, [x.double()], [exact])
    case = Case("made", (x,), (exact,), (exact.float(),), chain)
    assert problems(case, exact.float() + 1e-4) == ""
    assert problems(case, exact.float() + 1e-2)


def test_seeds_are_fresh_for_every_case() -> None:
    op = ops.load("relu")
    one, other = (make_case(op, op.workloads["ci"][0], "float32", "normal") for _ in range(2))
    assert not torch.equal(one.inputs[0], other.inputs[0])


def test_poison_differs_from_call_to_call() -> None:
    one, other = (check.poison((64,), "float32").view(torch.int32) for _ in range(2))
    assert not torch.equal(one, other)


def test_allow_tf32_is_looser_than_strict_and_still_a_limit() -> None:
    case = cases("matmul", "float32")[0]
    a, b = (t.half().float() for t in case.inputs)  # 11 bits of mantissa, as TF32 keeps
    output = a @ b
    assert compare(actual=[output], case=case, precision="strict").problem
    assert not compare(actual=[output], case=case, precision="allow_tf32").problem
    assert compare(actual=[output * 1.05], case=case, precision="allow_tf32").problem


@settings(max_examples=50, deadline=None)
@given(st.floats(1e-30, 1e30), st.integers(0, 2**32 - 1))
def test_the_verdict_does_not_depend_on_scale(scale: float, seed: int) -> None:
    """An absolute tolerance would pass zeros at a small scale; ours moves with the answer."""
    generator = torch.Generator().manual_seed(seed)
    exact = torch.randn(64, generator=generator, dtype=torch.float64) * scale
    case = Case("scaled", (), (exact,), (exact.float(),))
    assert problems(case, exact.float()) == ""
    assert problems(case, torch.zeros(64))
    assert problems(case, exact.float() * 1.001)
