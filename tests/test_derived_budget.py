"""Operators that declare nothing: honest float32 kernels pass, whatever the order of their
additions, and dishonest ones do not."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import tolerances
from benchmarks.tolerance_ops import OPERATORS
from portkern import ops
from portkern.cells.selection import host_targets
from portkern.errors import ConfigError
from portkern.evaluator import worker_reports
from portkern.evaluator.compare import compare, repeated
from portkern.evaluator.inputs import DISTRIBUTIONS, draw
from portkern.evaluator.reference import Case, answer, make_case
from portkern.evaluator.result import worst
from portkern.evaluator.timed_draws import TimedDraws, TimedInputs
from portkern.evaluator.timed_outputs import TimedOutputs, _Kept
from portkern.records.record import Errors, Finding, Verdict
from portkern.rounding.derived_budget import REPLAYS, REPLAYS_OF_FEW, Derivation
from portkern.spec import registry, target
from portkern.spec.backend import Ready
from portkern.spec.candidate import Candidate
from portkern.spec.flashinfer import read_definition
from portkern.spec.from_torch.adversaries import Adversary
from portkern.spec.op import Op, Signature, TensorSpec, Workload
from portkern.testing import evaluate
from portkern.worker import timed_inputs

Reference = Callable[..., Any]


def definition(reference: str, inputs: dict[str, list[int]], output: list[int]) -> Op:
    """A definition as FlashInfer-Bench writes it, in float32, all axes fixed but M."""
    sizes = {f"n{n}": n for shape in [*inputs.values(), output] for n in shape}
    data = {
        "name": "imported",
        "axes": {axis: {"type": "const", "value": n} for axis, n in sizes.items()},
        "inputs": {
            name: {"shape": [f"n{n}" for n in shape], "dtype": "float32"}
            for name, shape in inputs.items()
        },
        "outputs": {"y": {"shape": [f"n{n}" for n in output], "dtype": "float32"}},
        "reference": f"import torch\n\n\n{reference}\n",
    }
    return read_definition(json.dumps(data))


def product(k: int) -> Op:
    source = "def run(a, b):\n    return torch.matmul(a, b)"
    return definition(source, {"a": [16, k], "b": [k, 16]}, [16, 16])


WORK = Workload("w", {})
K = 4096
MATMUL = product(K)
DEEP = 16384  # so many terms, added in their order, no draw of inputs keeps within the tight rule
DEEP_MATMUL = product(DEEP)


def undeclared(reference: Reference, inputs: Sequence[torch.Tensor], seed: int = 0) -> Case:
    """The case of an op that says nothing of its sums."""
    with torch.no_grad():
        outputs = reference(*inputs)
    made = outputs if isinstance(outputs, tuple) else (outputs,)

    def spec(name: str, tensor: torch.Tensor) -> TensorSpec:
        return TensorSpec(name, tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))

    op = Op(
        Signature(
            "undeclared",
            (),
            tuple(spec(f"x{i}", x) for i, x in enumerate(inputs)),
            tuple(spec(f"y{i}", y) for i, y in enumerate(made)),
        ),
        reference,
        flops=lambda _: 0.0,
        workloads={},
        reference_source="undeclared",
    )
    case = answer(op, WORK, "made", inputs)
    assert case.derivation is not None
    return replace(case, derivation=replace(case.derivation, seed=seed))


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def problems(case: Case, *actual: torch.Tensor) -> str:
    return compare(actual=actual, case=case).problem


def tight_problems(case: Case, *actual: torch.Tensor) -> str:
    return problems(replace(case, derivation=None), *actual)


def in_order(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A matrix product whose terms are added one by one in float32."""
    terms = a.numpy()[:, :, None] * b.numpy()[None]
    return torch.from_numpy(np.add.accumulate(terms, axis=1, dtype=np.float32)[:, -1])


def in_halves(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    terms = (a.numpy()[:, :, None] * b.numpy()[None]).astype(np.float16)
    sums = np.add.accumulate(terms, axis=1, dtype=np.float16)[:, -1]
    return torch.from_numpy(sums.astype(np.float32))


def allowed(case: Case, output: int = 0) -> torch.Tensor:
    assert case.derived is not None
    found = case.derived.source.allowed[output]
    assert found is not None, case.derived.source.problem
    return found


def quantized(x: torch.Tensor, most: int = 127) -> torch.Tensor:
    scale = x.abs().amax(-1, keepdim=True).clamp(min=1e-5) / most
    return torch.round(x / scale).clamp(-128, 127).to(torch.int8).to(x.dtype) * scale


def halves(seed: int, most: int) -> torch.Tensor:
    adversary = Adversary.parse(f"halves(x, {most})", ["x"], ["x"])
    (x,) = adversary(torch.float32, torch.Generator().manual_seed(seed), torch.zeros(8, 96))
    return x


def quotients(x: torch.Tensor, most: int) -> list[torch.Tensor]:
    """Quotients as honest kernels compute them, before they are rounded."""
    top = x.abs().amax(-1, keepdim=True)
    return [x / (top / most), x * (most / top), x * (1 / (top / most)), x * (1 / top) * most]


def away_from_zero(value: torch.Tensor) -> torch.Tensor:
    return value.sign() * (value.abs() + 0.5).floor()


@pytest.mark.parametrize("seed", range(4))
def test_halves_that_every_kernel_has_exactly_are_rounded_to_even(seed: int) -> None:
    x = halves(seed, 64)
    case = undeclared(partial(quantized, most=64), [x], seed=seed)
    scale = x.abs().amax(-1, keepdim=True) / 64
    for value in quotients(x, 64):
        assert problems(case, torch.round(value) * scale) == ""
        assert "elements are off" in problems(case, away_from_zero(value) * scale)


@pytest.mark.parametrize("seed", range(4))
def test_halves_of_a_step_that_is_given_are_rounded_to_even(seed: int) -> None:
    x, step = torch.randint(-99, 99, (8, 96)) + 0.5, torch.tensor(0.125)
    case = undeclared(lambda x, step: torch.round(x / step), [x * step, step], seed)
    assert problems(case, torch.round(x)) == ""
    assert "elements are off" in problems(case, away_from_zero(x))


@pytest.mark.parametrize("seed", range(4))
def test_halves_that_come_of_rounding_may_be_rounded_either_way(seed: int) -> None:
    x = halves(seed, 127) * 0.3  # neither the largest of a row nor its step is exact
    case = undeclared(quantized, [x], seed=seed)
    for value in quotients(x, 127):
        assert problems(case, torch.round(value) * (x.abs().amax(-1, keepdim=True) / 127)) == ""


@pytest.mark.parametrize("seed", range(4))
def test_a_scale_of_127_steps_in_a_kernel_whose_division_errs_by_a_unit_passes(seed: int) -> None:
    x = halves(seed, 127)
    case = undeclared(quantized, [x], seed=seed)
    exact = x.abs().amax(-1, keepdim=True) / 127
    for bound in (0.0, math.inf):
        scale = exact.nextafter(torch.tensor(bound))  # as a GPU's approximate division may have it
        assert problems(case, torch.round(x / scale) * scale) == ""


# ---- which ops it holds for


@pytest.mark.full
def test_an_imported_matmul_in_order_of_its_terms_passes_with_every_seed() -> None:
    for op in [MATMUL, DEEP_MATMUL] * 10:
        case = make_case(op, WORK, "float32", "normal")
        output = in_order(*case.inputs)
        found = compare(actual=[output], case=case)
        assert found.problem == ""
        needed = found.tolerance == "derived"
        assert bool(tight_problems(case, output)) == needed
        assert needed or op is MATMUL


@pytest.mark.full
def test_an_imported_matmul_that_adds_in_halves_passes_with_none() -> None:
    for _ in range(5):
        case = make_case(MATMUL, WORK, "float32", "normal")
        found = compare(actual=[in_halves(*case.inputs)], case=case)
        assert "elements are off" in found.problem and found.tolerance == "derived"


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_an_imported_matmul_passes_and_a_bfloat16_one_fails_on_all_inputs(
    distribution: str,
) -> None:
    case = make_case(MATMUL, WORK, "float32", distribution)
    a, b = case.inputs
    assert problems(case, in_order(a, b)) == ""
    rounded = a.bfloat16().float() @ b.bfloat16().float()
    exact = ("ties", "constant", "one-hot")  # in bfloat16, or mostly zeros
    assert problems(case, rounded) or distribution in exact


def routed(x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    """Weights of the two best experts, the others' are 0."""
    shares = torch.softmax(x @ gate.t(), -1)
    best, index = torch.topk(shares, 2)
    return torch.zeros_like(shares).scatter(-1, index, best / best.sum(-1, keepdim=True))


def test_of_equal_values_any_may_be_chosen_and_none_may_be_left_out() -> None:
    x, gate = torch.zeros(9, 8), torch.eye(8)
    x[:, 0] = 1.0  # one expert is best, and the seven others are equal
    fair = normal(100, 8)
    case = undeclared(routed, [torch.cat((x, fair)), gate])
    for other in range(1, 8):
        chosen = torch.cat((x + torch.eye(8)[other] * 1e-3, fair))
        shares = torch.softmax(torch.cat((x, fair)), -1)
        index = torch.topk(chosen, 2).indices
        best = shares.gather(-1, index)
        kernel = torch.zeros_like(shares).scatter(-1, index, best / best.sum(-1, keepdim=True))
        assert not problems(case, kernel), other
        assert problems(case, kernel * torch.tensor([0.0] + [1.0] * 7))
        kernel[9:] = torch.zeros(100, 8).scatter(-1, index[9:], best[9:])  # not made to sum to 1
        assert problems(case, kernel)


def best_of(logits: torch.Tensor) -> torch.Tensor:
    """One row, of the best expert of each token."""
    return torch.topk(torch.softmax(logits.float(), -1), 1).indices.float().t().contiguous()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_another_choice_of_one_token_is_none_of_its_neighbours(dtype: torch.dtype) -> None:
    logits = normal(400, 64)
    logits[7, 3] = logits[7, 60] = 9.0  # equal, whatever the others are
    case = undeclared(best_of, [logits.to(dtype)])
    for index in (0.0, 3.5, 32.0):
        assert problems(case, torch.full((1, 400), index)), index
    for index in (3.0, 60.0):
        kernel = case.own[0].clone()
        kernel[0, 7] = index
        assert not problems(case, kernel), index
    kernel[0, 8] += 1
    assert "1 of 400" in problems(case, kernel)


def test_many_rows_of_equal_values_grant_the_others_nothing() -> None:
    x, scale = torch.cat((torch.eye(8)[:1].repeat(11, 1), normal(69, 8))), torch.ones(80, 1)
    scale[0] = 8.0
    case = undeclared(lambda x, gate, scale: routed(x, gate) * scale, [x, torch.eye(8), scale])
    kernel = case.own[0].clone()
    assert not problems(case, kernel)
    kernel[11:] = 0.0
    assert "138 of 640" in problems(case, kernel)


def test_of_dozens_of_equal_values_any_may_be_chosen() -> None:
    x = torch.eye(32)[:1].repeat(40, 1)
    case = undeclared(routed, [x, torch.eye(32)])
    shares = torch.softmax(x, -1)
    for other in (1, 16, 31):
        index = torch.tensor([0, other]).expand(40, 2)
        best = shares.gather(-1, index)
        kernel = torch.zeros_like(x).scatter(-1, index, best / best.sum(-1, keepdim=True))
        assert not problems(case, kernel), other
        assert problems(case, kernel * 1.01), other


def of_layer(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.linear(x, weight, bias)


def of_deep_layer(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return (x @ weight.T).reshape(2, -1, len(bias)) + bias


def of_convolution(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """A convolution whose window is the whole image."""
    windows, weights = x.reshape(len(x), -1, 8, 8), weight.reshape(len(weight), -1, 8, 8)
    return torch.conv2d(windows, weights, bias)


@pytest.mark.parametrize("reference", [of_layer, of_deep_layer, of_convolution])
def test_accumulators_may_begin_with_what_is_added_to_a_product(reference: Reference) -> None:
    """Where it is larger than the product by far, partial sums are rounded to its grid."""
    needed = 0
    for seed in range(20):
        x, weight = normal(4, K, seed=seed), normal(10, K, seed=seed + 100)
        inputs = [x * 1e-3, weight / 64, normal(10, seed=seed + 200)]
        case = undeclared(reference, inputs, seed)
        terms = (inputs[0][:, None] * inputs[1]).numpy()
        begun = np.concatenate([np.broadcast_to(inputs[2].numpy()[:, None], (4, 10, 1)), terms], 2)
        sums = torch.from_numpy(np.add.accumulate(begun, axis=2, dtype=np.float32)[..., -1])
        assert problems(case, sums.reshape(case.own[0].shape)) == ""
        needed += bool(tight_problems(case, sums.reshape(case.own[0].shape)))
        # As many as outweigh what the framework errs, which is some terms where it has no AVX-512.
        short = torch.from_numpy(begun[..., : -K // 64].sum(2, dtype=np.float32))
        assert problems(case, short.reshape(case.own[0].shape))
    # Where it has none, the framework's convolution errs as much as these sums.
    assert needed > 5 or reference is of_convolution


def test_a_reference_that_casts_to_float32_is_replayed_in_float64() -> None:
    """Definitions whose inputs may be of 16 bits cast so."""
    source = "def run(a, b):\n    return a.to(torch.float32) @ b.float() + torch.zeros(16)"
    op = definition(source, {"a": [16, K], "b": [K, 16]}, [16, 16])
    case = make_case(op, WORK, "float32", "normal")
    assert problems(case, in_order(*case.inputs)) == ""
    assert problems(case, in_halves(*case.inputs))
    assert case.derived is not None and case.derived.source.problem == ""


@pytest.mark.parametrize("name", [name for name in ops.names() if ops.load(name).terms])
def test_declared_ops_are_compared_as_before(name: str) -> None:
    op = ops.load(name)
    assert op.terms is not None
    case = make_case(op, op.workloads["ci"][0], "float32", "normal")
    assert case.derivation is None and case.derived is None
    sums = op.terms(op.workloads["ci"][0].dims) > 1
    found = compare(actual=case.own, case=case)
    assert (found.problem, found.tolerance) == ("", "declared" if sums else "tight")


def test_terms_replace_what_would_be_derived() -> None:
    """A declared 1 says that nothing is summed, which is not to say nothing: of sums of thousands
    that are drawn ten times, one at least is further off."""
    declared = replace(MATMUL, terms=lambda _: 1)
    cases = [make_case(declared, WORK, "float32", "offset") for _ in range(10)]
    assert all(case.derivation is None for case in cases)
    assert any(problems(case, in_order(*case.inputs)) for case in cases)
    assert declared.digest != MATMUL.digest


def test_sums_that_cancel_need_a_number_of_terms() -> None:
    for facts in ({"cancels": True}, {"shifts": True}):
        changed: dict[str, Any] = facts
        with pytest.raises(ConfigError, match="`terms`"):
            replace(MATMUL, **changed)


# ---- what it knows


def test_an_operation_that_no_rule_knows_is_named() -> None:
    case = undeclared(lambda x: torch.fft.rfft(x).abs().cumsum(-1), [normal(4, 64)])
    found = compare(actual=[case.own[0] + 1e-4], case=case)
    assert "aten._fft_r2c.default" in found.caveat
    findings = worker_reports.with_caveat((), found.caveat)
    assert findings == (Finding(code="tolerance", severity="note", message=found.caveat),)
    assert worker_reports.with_caveat(findings, found.caveat) == findings
    known = undeclared(lambda x: x.cumsum(-1), [normal(4, 64)])
    assert compare(actual=[known.own[0] + 1e-4], case=known).caveat == ""


def test_a_foreign_operation_is_named_and_errs_as_a_mean_square() -> None:
    with torch.library._scoped_library("portkern_test", "DEF") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
        case = undeclared(lambda x: torch.ops.portkern_test.twice(x), [normal(400)])
        assert case.derived is not None
        assert case.derived.source.unruled == ("portkern_test.twice.default",)
        assert problems(case, case.own[0] * (1 + 2.0**-22)) == ""
        assert problems(case, case.own[0].bfloat16().float())


COMMON = {
    "softmax": lambda x: x.softmax(-1),
    "layer_norm": lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:]),
    "loss": lambda x: torch.nn.functional.cross_entropy(x, torch.arange(len(x))),
    "attention": lambda x: torch.nn.functional.scaled_dot_product_attention(*(x[None, None],) * 3),
    "conv": lambda x: torch.nn.functional.conv1d(x[None], x[:, :15, None]),
    "in place": lambda x: x.clone().sub_(x.mean()).div_(x.std()).cumsum_(-1),
    "scatter": lambda x: torch.zeros(3, 48, dtype=x.dtype).index_add(0, torch.arange(15) % 3, x),
    "out": lambda x: torch.cumsum(x, 0, out=torch.empty_like(x)),
    "batch_norm": lambda x: torch.nn.functional.batch_norm(x, None, None, training=True),
    "einsum": lambda x: torch.einsum("ij,kj,k->i", x, x, x[:, 0]),
    "distance": lambda x: torch.cdist(x, x + 1),
    "interpolation": lambda x: torch.nn.functional.interpolate(x[None], size=100, mode="linear"),
}


@pytest.mark.parametrize("name", COMMON)
def test_common_operations_have_a_rule_and_a_budget_of_float32s_size(name: str) -> None:
    case = undeclared(COMMON[name], [normal(15, 48)])
    assert case.derived is not None
    assert (case.derived.source.unruled, case.derived.source.problem) == ((), "")
    budget, exact = allowed(case), case.exact[0]
    size = float(exact.square().mean().sqrt())
    assert 2.0**-26 * size < float(budget.mean()) < 2.0**-13 * size
    assert problems(case, (exact * (1 + 2.0**-7)).float())


def test_whole_numbers_within_a_reference_stay_whole() -> None:
    """Noise on the index of a pixel would make it another pixel."""
    grid = normal(1, 5, 5, 2, seed=1).tanh()
    case = undeclared(
        lambda x: torch.nn.functional.grid_sample(x, grid.to(x.dtype), align_corners=False),
        [normal(1, 3, 8, 8)],
    )
    assert float(allowed(case).max()) < 1e-4


def test_the_same_seed_gives_the_same_budget() -> None:
    inputs = [normal(32, 700)]
    budgets = [allowed(undeclared(COMMON["softmax"], inputs, seed)) for seed in (1, 1, 2)]
    assert torch.equal(budgets[0], budgets[1])
    assert not torch.equal(budgets[0], budgets[2])


@given(st.integers(-40, 40), st.integers(1, 300), st.integers(0, 2**31))
def test_a_budget_scales_with_the_inputs(power: int, n: int, seed: int) -> None:
    x = normal(3, n, seed=seed)
    here, there = (undeclared(lambda x: (x * x.abs()).sum(-1), [t]) for t in (x, x * 2.0**power))
    assert torch.allclose(allowed(here) * 4.0**power, allowed(there), rtol=1e-9, atol=0)


def test_terms_that_are_equal_may_err_to_the_same_side() -> None:
    equal, other = torch.full((300, 3000), 0.1), normal(300, 3000) * 1e-3 + 0.1
    same, mixed = (undeclared(lambda x: x.sum(-1), [x]) for x in (equal, other))
    assert float(allowed(same).mean()) > 8 * float(allowed(mixed).mean())
    serial = torch.from_numpy(np.add.accumulate(equal.numpy(), axis=1, dtype=np.float32)[:, -1])
    assert tight_problems(same, serial) and problems(same, serial) == ""


@pytest.mark.parametrize("rows", [2, 60, 900])
def test_rows_that_are_equal_err_alike_which_a_mean_over_them_does_not_reduce(rows: int) -> None:
    def reference(x: torch.Tensor) -> torch.Tensor:
        return x.square().sum(-1).sqrt().mean()

    row = normal(1, 700)
    alone = float(allowed(undeclared(reference, [row])))
    alike = float(allowed(undeclared(reference, [row.repeat(rows, 1)])))
    apart = float(allowed(undeclared(reference, [normal(rows, 700)])))
    assert alike > alone / 2
    assert rows < 60 or apart < alike / 2


@pytest.mark.parametrize("shape", [(8, 64), (64, 32), (9, 1000)])
def test_a_loss_of_constant_rows_added_in_order_passes_with_every_seed(
    shape: tuple[int, int],
) -> None:
    def reference(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (1 - torch.nn.functional.cosine_similarity(a, b, dim=1)).mean()

    def in_order(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        sums = np.add.accumulate((a * b).numpy(), axis=1, dtype=np.float32)[:, -1]
        return torch.from_numpy(sums)

    for seed in range(40):
        values = normal(2, seed=seed)
        a, b = (value.expand(shape).contiguous() for value in values)
        cosine = in_order(a, b) / (in_order(a, a).sqrt() * in_order(b, b).sqrt())
        loss = (1 - cosine).double().mean().float()
        assert problems(undeclared(reference, [a, b], seed), loss) == "", seed


def test_few_bit_numbers_about_their_mean_may_err_to_the_same_side() -> None:
    """Squares of few-bit numbers less a mean of few bits are off the partial sums' grid alike."""

    def reference(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.group_norm(x, 8, weight, bias)

    def normalised(inputs: Sequence[torch.Tensor], first: int = 0) -> torch.Tensor:
        x, weight, bias = inputs
        rows = x.reshape(64, -1)
        off = rows - sums(rows) / rows.shape[1]
        scale = 1 / (sums((off * off)[:, first:]) / rows.shape[1] + 1e-5).sqrt()
        return (off * scale).reshape(x.shape) * weight[:, None, None] + bias[:, None, None]

    def sums(x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(np.add.accumulate(x.numpy(), axis=-1, dtype=np.float32)[:, -1:])

    for seed in range(30):
        generator = torch.Generator().manual_seed(seed)
        x, weight, bias = (
            (torch.rand(shape, generator=generator) * 8 - 4).round() * step
            for shape, step in (((8, 16, 12, 16), 0.5), ((16,), 0.125), ((16,), 0.5))
        )
        inputs = [x, weight + 1, bias]
        case = undeclared(reference, inputs, seed)
        assert problems(case, normalised(inputs)) == "", seed
        assert problems(case, normalised(inputs, first=1)) != ""


def test_large_references_are_replayed_less_often() -> None:
    from portkern.rounding.replay import SIZES_KEPT, ReplayTrace

    many, few = (undeclared(lambda x: x * 2, [normal(n)]).derivation for n in (1000, 10))
    assert isinstance(many, Derivation) and isinstance(few, Derivation)
    for derivation, (least, most) in ((many, REPLAYS), (few, REPLAYS_OF_FEW)):
        assert derivation._count(ReplayTrace(work=10)) == most
        assert derivation._count(ReplayTrace(work=1 << 40)) == least
    trace = ReplayTrace(kept=SIZES_KEPT)
    trace.add(torch.ones(100))
    assert trace.sizes[0].numel() == 1, "one number stands for what is beyond the bound"


# ---- answers of odd kinds


def test_a_scalar_whose_true_value_is_zero_may_be_what_float32_leaves() -> None:
    def reference(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        functional = torch.nn.functional
        return functional.group_norm(functional.conv3d(x, w), 4).mean(dim=[1, 2, 3, 4])

    passed = 0
    for seed in range(6):
        inputs = [normal(2, 3, 6, 8, 8, seed=seed), normal(8, 3, 3, 3, 3, seed=seed + 50)]
        case = undeclared(reference, inputs, seed)
        mixed = [inputs[0].flip(1), inputs[1].flip(1)]  # channels are added in another order
        assert problems(case, reference(*mixed)) == ""
        passed += not tight_problems(case, reference(*mixed))
        assert problems(case, torch.full((2,), 1e-5))
    assert passed < 6


@pytest.mark.parametrize("n", [1, 7, 4096])
def test_a_sum_that_cancels_to_zero(n: int) -> None:
    x = normal(n)
    x = torch.cat([x, -x.flip(0)])
    case = undeclared(lambda x: x.sum(), [x])
    serial = torch.from_numpy(np.add.accumulate(x[torch.randperm(2 * n)].numpy())[-1:])[0]
    assert problems(case, serial) == "" and problems(case, torch.tensor(0.0)) == ""
    assert problems(case, torch.tensor(0.01 * n**0.5))


def test_an_answer_that_is_zero_by_construction_has_no_slack() -> None:
    case = undeclared(lambda x: x * 0, [normal(300)])
    assert problems(case, torch.zeros(300)) == ""
    assert problems(case, torch.full((300,), 1e-12))


def test_an_index_may_be_any_that_rounding_decides_and_no_other() -> None:
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(200, 50, generator=generator)
    logits[:, 7] = logits.amax(-1)
    logits[:, 31] = logits[:, 7]  # a tie that sums decide
    parts = torch.randn(200, 50, 64, generator=generator)
    parts[:, 31] = parts[:, 7].flip(-1)
    parts[..., -1] += logits - parts.sum(-1)
    case = undeclared(lambda x: x.sum(-1).argmax(-1), [parts])
    reordered = parts.flip(-1).cumsum(-1)[..., -1].argmax(-1)
    assert int((reordered != case.own[0]).sum()) > 0
    assert tight_problems(case, reordered) and problems(case, reordered) == ""
    assert "elements differ" in problems(case, (case.own[0] + 1) % 50)
    twice = repeated(first=[case.own[0]], second=[reordered], case=case)
    assert twice.spread is not None and twice.problem == ""


def test_equal_inputs_have_one_first_index() -> None:
    """No rounding decides between them."""
    x = torch.tensor([[1.0, 3.0, 3.0], [2.0, 2.0, 0.0]]).repeat(50, 1)
    case = undeclared(lambda x: x.argmax(-1), [x])
    last = 2 - x.flip(-1).argmax(-1)
    assert problems(case, case.own[0]) == ""
    assert "100 of 100 elements differ" in problems(case, last)


@pytest.mark.parametrize("shape", [(0, 5), (5, 0)])
def test_empty_tensors(shape: tuple[int, int]) -> None:
    case = undeclared(lambda x: x.sum(-1), [torch.zeros(shape)])
    assert problems(case, torch.zeros(shape[0])) == ""
    assert bool(problems(case, torch.ones(shape[0]))) == (shape[0] > 0)


def test_infinities_within_a_reference_leave_the_budgets_of_the_others() -> None:
    def masked(x: torch.Tensor) -> torch.Tensor:
        return x.masked_fill(x > 1, -torch.inf).softmax(-1)

    case = undeclared(masked, [normal(64, 300)])
    budget = allowed(case)
    assert bool(budget.isfinite().all()) and float(budget[case.exact[0] > 0].min()) > 0
    assert problems(case, case.own[0].bfloat16().float())


def test_what_is_not_finite_is_wrong_without_a_replay() -> None:
    case = undeclared(lambda x: x.log().sum(-1), [normal(400, 3)])
    found = compare(actual=[case.own[0]], case=case)
    assert (found.problem, found.tolerance) == ("", "tight")
    output = case.own[0].clone()
    output[output.isnan()] = 0.0
    found = compare(actual=[output], case=case)
    assert "NaN" in found.problem and "derived" not in case.__dict__


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_loss_of_16_bits_is_not_held_to_the_frameworks_luck(dtype: torch.dtype) -> None:
    def reference(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (1 - torch.nn.functional.cosine_similarity(a, b, dim=1)).mean()

    for seed in range(8):
        a, b = (normal(64, 256, seed=2 * seed + i).to(dtype) for i in range(2))
        case = undeclared(reference, [a, b + a], seed)
        wide = reference(a.float(), (b + a).float()).to(dtype)
        assert problems(case, wide) == ""
        assert problems(case, wide * 1.1)


def test_a_reference_that_cannot_be_replayed_is_held_to_the_tight_rule_and_says_so() -> None:
    calls = [0]

    def reference(x: torch.Tensor) -> torch.Tensor:
        calls[0] += 1
        if calls[0] > 3:
            raise RuntimeError("only three times")
        return x.sum(-1)

    case = undeclared(reference, [normal(4, 300)])
    found = compare(actual=[case.own[0] + 1e-3], case=case)
    assert found.problem and found.tolerance == "tight"
    assert found.caveat == "nothing could be derived: RuntimeError: only three times"


def test_a_reference_whose_operations_depend_on_values_is_replayed() -> None:
    def reference(x: torch.Tensor) -> torch.Tensor:
        total = x.sum(-1)
        while float(total.abs().max()) > 1:
            total = total / 2
        return total[total > 0].sum()

    case = undeclared(reference, [normal(40, 300)])
    assert math.isfinite(float(allowed(case)))


# ---- where it is used


def test_two_calls_may_differ_by_what_is_derived() -> None:
    case = make_case(MATMUL, WORK, "float32", "normal")
    first, budget = in_order(*case.inputs), allowed(case)
    second = (first.double() + 0.9 * budget).float()
    assert repeated(first=[first], second=[second], case=replace(case, derivation=None)).problem
    assert not repeated(first=[first], second=[second], case=case).problem
    far = (first.double() + 9 * budget + 1e-4).float()
    assert repeated(first=[first], second=[far], case=case).problem


@pytest.mark.parametrize("halves", [False, True])
def test_outputs_of_timed_calls_are_held_to_the_same_rule(halves: bool) -> None:
    base = draw(MATMUL, WORK, "float32", "offset")
    draws = TimedDraws(MATMUL, WORK, "float32", [("offset", base)])
    timed = TimedOutputs(MATMUL, WORK, "float32", draws)
    multiply = in_halves if halves else in_order
    for seed in range(4):
        made = TimedInputs((seed,))
        inputs = timed_inputs.inputs(base, made.seeds, 0, rolled=made.rolled)
        timed._kept.append(_Kept(0, seed, made, 0, [multiply(*inputs)]))
    assert bool(list(timed.problems())) == halves
    assert timed.compared[0].tolerance == "derived"


def test_a_record_says_by_the_widest_rule_that_was_needed() -> None:
    case = make_case(MATMUL, WORK, "float32", "normal")
    tight = compare(actual=[case.exact[0].float()], case=case)
    wide = compare(actual=[(case.exact[0] + 0.9 * allowed(case)).float()], case=case)
    first = worst(None, tight)
    assert first.tolerance == "tight"
    assert worst(worst(first, wide), tight).tolerance == "derived"


def test_errors_of_older_records_can_be_read() -> None:
    older = {"max_abs": 1.0, "max_rel": 1.0, "vs_fp64": 1.0, "reference_vs_fp64": 1.0}
    assert Errors.model_validate(older).tolerance is None


CPP = """
#include <cstdint>
#include <cstring>

static float kept(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  bits &= ~0u << DROPPED;
  std::memcpy(&x, &bits, 4);
  return x;
}

extern "C" int imported(const float* a, const float* b, float* y) {
  for (int m = 0; m < 16; ++m)
    for (int n = 0; n < 16; ++n) {
      float total = 0;
      for (int k = 0; k < DEEP; ++k) total = kept(total + a[m * DEEP + k] * b[k * 16 + n]);
      y[m * 16 + n] = total;
    }
  return 0;
}
"""


@pytest.mark.full
@pytest.mark.parametrize(("dropped", "verdict"), [(0, Verdict.PASSED), (13, Verdict.WRONG)])
def test_a_naive_kernel_of_an_imported_op_is_evaluated_by_what_is_derived(
    dropped: int, verdict: Verdict, tmp_path: Path
) -> None:
    backend, here = registry.load("cpu"), target.load(host_targets()[0])
    if not isinstance(backend.probe(here), Ready):
        pytest.skip(str(backend.probe(here)))
    source = CPP.replace("DROPPED", str(dropped)).replace("DEEP", str(DEEP))
    candidate = Candidate("imported", "cpu", "cpp", source, "imported")
    results = evaluate(candidate, DEEP_MATMUL, backend, here, [WORK], folder=tmp_path)
    assert isinstance(results, list), results
    [result] = results
    assert result.verdict is verdict, result.detail
    assert result.errors is not None and result.errors.tolerance == "derived"


# ---- over many operators


@pytest.mark.full
def test_no_honest_kernel_is_wrong_and_what_the_tight_rule_catches_mostly_still_is() -> None:
    """The seed is one that the committed table has not seen."""
    rows = [tolerances.study(operator, range(1000, 1001)) for operator in OPERATORS]
    for dtype in tolerances.DTYPES:
        judged, _, wrong = tolerances.totals(rows, dtype)["honest"]
        assert judged > 250 and wrong == 0
    caught = tolerances.totals(rows, "float32")["dishonest"].values()
    tight, derived = (sum(count[i] for count in caught) for i in (1, 2))
    assert derived >= 0.85 * tight


def test_the_committed_study_covers_what_the_manual_says() -> None:
    results = tolerances.results()
    everything, later = results["summary"]["all"], results["summary"]["later"]
    assert everything["operators"] >= 60 and later["operators"] >= 20
    assert results["machine"]["seeds"] >= 20
    assert [row["op"] for row in results["rows"]] == [operator.name for operator in OPERATORS]
    assert not any(row["unruled"] for row in results["rows"])
    for some in (everything, later):
        assert some["float32"]["honest"][2] == some["bfloat16"]["honest"][2] == 0
        assert some["float32"]["honest"][1] > 0, "the tight rule does not suffice"


@pytest.mark.parametrize("often", [2, 30, 240, 1000])
def test_terms_of_which_many_are_equal_err_as_those_that_are(often: int) -> None:
    """A chain of n terms of d values errs by n / sqrt(d): of the equal ones alone, by their
    number."""
    from portkern.rounding.sum_errors import different

    rest = torch.arange(1, 25, dtype=torch.float64)
    row = torch.cat([rest * 100, torch.full((often,), 0.5, dtype=torch.float64)])
    n = len(row)
    err = n / float(different(row.reshape(1, -1), torch.tensor(1e-3))) ** 0.5
    assert 0.9 * max(often, math.sqrt(n)) <= err <= 1.2 * math.sqrt(often**2 + n)


def serial_attention(q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """One query per row, each sum a chain of fused multiply-adds in float32."""

    def chain(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(a.shape[0], b.shape[1])
        for k in range(b.shape[0]):
            total = (total.double() + a[:, k, None].double() * b[k].double()).float()
        return total

    scores = chain(q, keys.T) * q.shape[-1] ** -0.5
    power = torch.exp(scores - scores.amax(-1, keepdim=True))
    return chain(power, values) / chain(power, torch.ones(len(values), 1))


def test_a_serial_kernel_is_right_where_few_keys_have_all_weight() -> None:
    """Scores of hundreds: roundoffs of one draw may leave a row where it is, another's do not."""
    op = ops.load("paged_attention")
    [workload] = [one for one in op.workloads["edge"] if one.dims["dim"] == 256]
    for _ in range(30):
        case = make_case(op, workload, "float32", "rising")
        q, key_pages, value_pages, table, lengths = case.inputs
        keys, values = (
            pages[table[0].long()].flatten(0, 1)[: int(lengths), 0]
            for pages in (key_pages, value_pages)
        )
        y = serial_attention(q[0, 0], keys, values) if int(lengths) else torch.zeros_like(q[0, 0])
        assert not compare(actual=[y.reshape(q.shape)], case=case).problem
        off = y * (1 + 2.0**-11)  # as TF32 would be
        assert int(lengths) == 0 or compare(actual=[off.reshape(q.shape)], case=case).problem
