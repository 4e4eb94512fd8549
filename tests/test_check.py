"""The evaluator: right kernels pass, wrong ones do not, at every op and dtype."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from portkern import ops
from portkern.evaluator import compare as check
from portkern.evaluator import inputs, reference
from portkern.evaluator.compare import compare
from portkern.evaluator.inputs import DISTRIBUTIONS
from portkern.evaluator.reference import Case, make_case
from portkern.spec.op import CELL, FLOATS, Workload
from portkern.worker import output_guards


def cases(name: str, dtype: str) -> list[Case]:
    op = ops.load(name)
    chosen = (*DISTRIBUTIONS, *op.adversaries, inputs.IN_PART)
    return [make_case(op, op.workloads["ci"][1], dtype, one) for one in chosen]


def problems(case: Case, *actual: Any) -> str:
    """The problem of all outputs, or of the first alone."""
    return compare(actual=actual, case=case).problem


#: The operators whose first output is rounded; an index is right or wrong.
ROUNDED = [name for name in ops.names() if ops.load(name).signature.outputs[0].dtype == CELL]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ops.names())
def test_the_frameworks_own_kernel_passes(name: str, dtype: str) -> None:
    for case in cases(name, dtype):
        assert problems(case, *case.own) == ""


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ops.names())
def test_an_answer_rounded_once_passes(name: str, dtype: str) -> None:
    for case in cases(name, dtype):
        rounded = [one.to(own.dtype) for one, own in zip(case.exact, case.own, strict=True)]
        assert problems(case, *rounded) == ""


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ROUNDED)
def test_negative_controls_fail(name: str, dtype: str) -> None:
    """Each on normal inputs, and what reads nothing on most others: a constant has its own mean."""
    passed: dict[str, set[str]] = {}
    for case in cases(name, dtype):
        for control, output in controls(case).items():
            if not problems(case, output):
                passed.setdefault(case.distribution, set()).add(control)
    assert passed.get("normal", set()) == set()
    assert not {"poison", "nothing"} & set().union(*passed.values())
    trivial = {case for case, found in passed.items() if "zeros" in found}
    assert trivial <= {"one-hot", "constant", "masked"}  # where the answer itself may be zeros


def controls(case: Case) -> dict[str, torch.Tensor]:
    """Answers that cost nothing, or less than the right one."""
    right = case.own[0]
    dtype = str(right.dtype).removeprefix("torch.")
    unwritten = output_guards.poison(tuple(right.shape), dtype)
    one = torch.randint(right.numel(), ())
    made = {
        "zeros": torch.zeros_like(right),
        "poison": unwritten,
        "nothing": torch.full_like(right, torch.nan),
        "mean": torch.full_like(right, float(right.double().mean())),
        "mean of each row": right.double().mean(-1, keepdim=True).expand(right.shape).to(right),
        "5 % off": (right.double() * 1.05).to(right.dtype),
        "7 of 8 elements": torch.where(torch.rand(right.shape) < 0.125, 0.0, right.double()),
        "precision below": right.to(BELOW[dtype]).to(right.dtype),
        "one element": right.clone(),
        "last eighth": right.clone(),
        "shifted by one": right.flatten().roll(1).reshape(right.shape),
    }
    made["7 of 8 elements"] = made["7 of 8 elements"].to(right.dtype)
    made["one element"].view(-1)[one] += right.double().square().mean().sqrt().to(right.dtype)
    tail = -(-right.numel() // 8)
    made["last eighth"].view(-1)[-tail:] = unwritten.view(-1)[-tail:]
    if case.inputs[0].numel() == right.numel():
        made["identity"] = case.inputs[0].reshape(right.shape)
    return made


#: What a kernel might compute in to be faster.
BELOW = {"float32": torch.bfloat16, "float16": torch.float8_e4m3fn, "bfloat16": torch.float8_e4m3fn}


@pytest.mark.parametrize("name", ROUNDED)
def test_a_tf32_result_in_float32_clothes_fails(name: str) -> None:
    """Ten bits of mantissa: what a tensor core makes of float32 unless it is told otherwise."""
    case = next(case for case in cases(name, "float32") if case.distribution == "normal")
    bits = case.own[0].view(torch.int32)
    rounded = ((bits + 0x1000) & ~0x1FFF).view(torch.float32)
    assert problems(case, rounded)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ["argmax", "topk"])
def test_an_index_is_right_or_wrong(name: str, dtype: str) -> None:
    for case in cases(name, dtype):
        right = case.own[-1]
        for wrong in (right + 1, right.flip(0), torch.zeros_like(right) - 1):
            assert torch.equal(wrong, right) or "elements differ" in problems(
                case, *case.own[:-1], wrong
            )


def adversary(name: str, which: str, dtype: str = "float32", **dims: int) -> Case:
    op = ops.load(name)
    scalars = {s.name: dims.pop(s.name) for s in op.signature.scalars if s.name in dims}
    derived = op.derived(dims, op.signature.scalar_values(scalars)) if op.derived else {}
    return make_case(op, Workload("w", dims | dict(derived), scalars), dtype, which)


#: Where a kernel looks at rows before it takes a shortcut.
LOOKS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "at the beginning": lambda x: x.flatten()[:8],
    "at both ends": lambda x: torch.cat([x[0], x[-1]]),
    "at the beginning of each row": lambda x: x[:, :8],
    "anywhere": lambda x: x.flatten()[torch.randint(x.numel(), (16,))],
}


@pytest.mark.parametrize(
    ("name", "look"),
    [
        *((name, look) for name in ("softmax", "cross_entropy") for look in LOOKS),
        ("layernorm", "at both ends"),
    ],
)
def test_a_look_at_some_of_an_input_does_not_tell_that_all_of_it_is_usual(
    name: str, look: str
) -> None:
    """Shortcuts that are taken where the look finds nothing odd: some draws in part break them, of
    those for who looks at each row one in fifty."""
    op = ops.load(name)
    for _ in range(1500):
        case = make_case(
            op,
            Workload("w", dict(zip(op.signature.axes, (96, 512), strict=True))),
            "float32",
            inputs.IN_PART,
        )
        x, *others = case.inputs
        seen = LOOKS[look](x)
        usual = bool((seen.abs() < 6).all())
        found = problems(case, SHORTCUTS[name](x, *others) if usual else case.own[0])
        assert usual or not found
        if found:
            return
    pytest.fail("no draw broke the shortcut")


def without_maximum(x: torch.Tensor) -> torch.Tensor:
    return x.exp() / x.exp().sum(-1, keepdim=True)


def without_maximum_of_loss(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return logits.exp().sum(-1).log() - logits.gather(1, target[:, None])[:, 0]


def in_one_pass(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    mean = x.mean(-1, keepdim=True)
    variance = (x * x).mean(-1, keepdim=True) - mean * mean
    return (x - mean) / (variance + 1e-5).sqrt() * weight + bias


SHORTCUTS: dict[str, Callable[..., torch.Tensor]] = {
    "softmax": without_maximum,
    "cross_entropy": without_maximum_of_loss,
    "layernorm": in_one_pass,
}


@pytest.mark.parametrize("name", ops.names())
def test_what_is_odd_in_part_is_usual_elsewhere(name: str) -> None:
    """The value stands at a place that nobody knows, and never fills an input that is long
    enough."""
    op = ops.load(name)
    work = op.workloads["heldout"][0]
    firsts = set()
    for _ in range(24):
        parts = inputs._parts(op, work)
        for part in parts:
            of_axes = [(work.dims[str(axis)], place) for axis, place in part.items()]
            assert all(0 <= place.start < place.stop <= length for length, place in of_axes)
            assert all(place.stop - place.start <= max(length // 4, 1) for length, place in of_axes)
        firsts.add(str(parts))
    assert len(firsts) > 4


def test_a_softmax_that_leaves_the_maximum_in_fails() -> None:
    case = adversary("softmax", "peaks", rows=16, cols=100)
    powers = case.inputs[0].exp()
    assert problems(case, powers / powers.sum(-1, keepdim=True))


def test_a_softmax_that_forgets_its_maximum_between_blocks_fails() -> None:
    """exp(-inf - -inf) is NaN where a block of a row is masked out."""
    case = adversary("softmax", "masked", rows=16, cols=128)
    blocks = case.inputs[0].reshape(16, 4, 32)
    tops = blocks.amax(-1, keepdim=True)
    powers = (blocks - tops).exp() * (tops - tops.amax(1, keepdim=True)).exp()
    assert problems(case, (powers / powers.sum((1, 2), keepdim=True)).reshape(16, 128))


def test_a_variance_from_one_pass_fails_where_the_mean_is_far() -> None:
    case = adversary("layernorm", "far", rows=32, cols=512)
    x, weight, bias = case.inputs
    mean = x.mean(-1, keepdim=True)
    variance = (x * x).mean(-1, keepdim=True) - mean * mean
    assert problems(case, (x - mean) * (variance.clamp(0) + 1e-5).rsqrt() * weight + bias)
    centred = x - mean  # two passes, each a chain of its own, are right
    variance = (centred * centred).cumsum(-1)[:, -1:] / 512
    assert problems(case, centred * (variance + 1e-5).rsqrt() * weight + bias) == ""


def test_an_rmsnorm_that_squares_in_halves_or_forgets_eps_fails() -> None:
    case = adversary("rmsnorm", "uneven", "float16", rows=64, cols=256)
    x, weight = case.inputs
    assert problems(case, x * (x * x).mean(-1, keepdim=True).add(1e-6).rsqrt() * weight)
    case = adversary("rmsnorm", "uneven", rows=64, cols=256)
    x, weight = case.inputs
    assert problems(case, x * (x * x).mean(-1, keepdim=True).rsqrt() * weight)


def tf32(tensor: torch.Tensor) -> torch.Tensor:
    return (tensor.view(torch.int32) & ~0x1FFF).view(torch.float32)


@pytest.mark.parametrize("which", ["cancelling", "integers"])
def test_a_product_of_rounded_inputs_fails(which: str) -> None:
    case = adversary("matmul", which, m=32, n=32, k=256)
    a, b = map(tf32, case.inputs)
    assert problems(case, a @ b)
    case = adversary("bmm", which, batch=3, m=32, n=32, k=256)
    a, b = map(tf32, case.inputs)
    assert problems(case, a @ b)
    size = {"n": 2, "c": 32, "h": 12, "w": 12, "f": 16, "kh": 3, "kw": 3}
    case = adversary("conv2d", which, "float32", **size)
    x, weight, bias = map(tf32, case.inputs)
    assert problems(case, torch.nn.functional.conv2d(x, weight, bias))


def test_a_loss_that_leaves_the_maximum_in_fails() -> None:
    case = adversary("cross_entropy", "peaks", rows=16, classes=100)
    logits, target = case.inputs
    right = logits.gather(1, target[:, None])[:, 0]
    assert problems(case, logits.exp().sum(-1).log() - right)


def test_the_last_of_equal_elements_and_a_dropped_nan_fail() -> None:
    case = adversary("argmax", "level", rows=9, cols=100)
    assert problems(case, 99 - case.inputs[0].flip(-1).argmax(-1))
    case = adversary("argmax", "special", rows=64, cols=100)
    assert problems(case, case.inputs[0].nan_to_num(-torch.inf).argmax(-1))


def test_a_lost_update_fails_where_an_index_is_crowded() -> None:
    case = adversary("scatter_add", "crowded", rows=16, dim=32, n=64)
    x, index, src = case.inputs
    once = x.clone()
    once[index] += src[: len(index)]
    assert problems(case, once)


def test_a_pool_whose_padding_is_zero_fails_below_it() -> None:
    size = {"n": 1, "c": 2, "h": 8, "w": 8, "window": 3, "stride": 2, "padding": 1}
    case = adversary("maxpool2d", "low", "float32", **size)
    padded = torch.nn.functional.pad(case.inputs[0], (1, 1, 1, 1))
    assert problems(case, torch.nn.functional.max_pool2d(padded, 3, 2))


def test_attention_that_sees_the_future_or_skips_the_maximum_fails() -> None:
    case = adversary("attention", "normal", batch=1, heads=2, length=64, dim=32)
    q, k, v = case.inputs
    assert problems(case, torch.nn.functional.scaled_dot_product_attention(q, k, v))
    case = adversary("attention", "sharp", batch=1, heads=2, length=64, dim=32)
    q, k, v = case.inputs
    scores = (q @ k.transpose(-1, -2)) / 32**0.5
    powers = scores.exp().tril()
    assert problems(case, (powers / powers.sum(-1, keepdim=True)) @ v)


def silu_without_care(x: torch.Tensor) -> torch.Tensor:
    return x * x.exp() / (1 + x.exp())


def convolved(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, *, ahead: int = 0) -> Any:
    """Before silu, with so many positions of padding behind instead of before."""
    padded = torch.nn.functional.pad(x.mT, (weight.shape[1] - 1 - ahead, ahead))
    return torch.nn.functional.conv1d(padded, weight[:, None], bias, groups=x.shape[2]).mT


def test_a_convolution_that_looks_ahead_or_into_the_sequence_before_fails() -> None:
    case = adversary("causal_conv1d", "normal", batch=3, length=40, channels=16, taps=4)
    x, weight, bias = case.inputs
    silu = torch.nn.functional.silu
    assert problems(case, silu(convolved(x, weight, bias))) == ""
    assert problems(case, silu(convolved(x, weight, bias, ahead=1)))
    assert problems(case, silu(convolved(x, weight.flip(1), bias)))
    assert problems(case, silu(convolved(x, weight, bias) - bias))
    joined = convolved(x.reshape(1, 120, 16), weight, bias).reshape(x.shape)
    assert problems(case, silu(joined))
    case = adversary("causal_conv1d", "steep", batch=1, length=40, channels=16, taps=4)
    assert problems(case, silu_without_care(convolved(*case.inputs)))
    case = adversary("causal_conv1d", "cancelling", batch=1, length=40, channels=16, taps=4)
    assert problems(case, silu(convolved(*map(tf32, case.inputs))))


def scanned(case: Case, *, until: int = 1 << 30, **changed: torch.Tensor) -> torch.Tensor:
    """Position by position; what is kept is forgotten every ``until`` positions."""
    names = ("x", "step", "rate", "b", "c", "skip")
    given = {**dict(zip(names, case.inputs, strict=True)), **changed}
    x, step, rate, b, c, skip = (given[name] for name in names)
    state, rows = torch.zeros(x.shape[0], *rate.shape), []
    for t in range(x.shape[1]):
        state = state * (t % until > 0) * (-step[:, t, :, None] * rate).exp()
        state = state + (step * x)[:, t, :, None] * b[:, t, None]
        rows.append((state * c[:, t, None]).sum(-1))
    return torch.stack(rows, 1) + skip * x


def test_a_scan_that_forgets_or_divides_powers_or_mixes_up_its_factors_fails() -> None:
    size = {"batch": 2, "length": 48, "channels": 6, "states": 4}
    case = adversary("selective_scan", "normal", "float32", **size)
    x, _, rate, b, c, skip = case.inputs
    assert problems(case, scanned(case)) == ""
    assert problems(case, scanned(case, b=c, c=b))
    assert problems(case, scanned(case, skip=torch.zeros_like(skip)))
    assert problems(case, scanned(case, rate=rate.flip(1)))
    assert problems(case, scanned(case, x=x.flip(0)))
    assert problems(case, scanned(case, until=16))
    case = adversary("selective_scan", "slow", "float32", **size)
    assert problems(case, scanned(case)) == ""
    assert problems(case, scanned(case, until=32))
    case = adversary("selective_scan", "resting", "float32", **size)
    assert problems(case, scanned(case, step=case.inputs[1].clamp_min(1e-3)))
    case = adversary("selective_scan", "steep", "float32", **size)
    assert problems(case, scanned(case)) == ""
    x, step, rate, b, c, skip = case.inputs
    powers = (-step[..., None] * rate).cumsum(1).exp()
    sums = ((step * x)[..., None] * b[:, :, None] / powers).cumsum(1)
    assert problems(case, (powers * sums * c[:, :, None]).sum(-1) + skip * x)


def group_normed(case: Case, axes: tuple[int, ...], *, one_pass: bool = False) -> torch.Tensor:
    """Before silu, with the moments over these axes."""
    x, weight, bias = case.inputs
    mean = x.mean(axes, keepdim=True)
    squares = (x * x).mean(axes, keepdim=True) - mean * mean
    if not one_pass:
        squares = (x - mean).square().mean(axes, keepdim=True)
    return (x - mean) * (squares.clamp(0) + 1e-5).rsqrt() * weight[..., None] + bias[..., None]


def test_a_group_norm_of_a_channel_or_an_image_or_of_one_pass_fails() -> None:
    size = {"batch": 2, "groups": 4, "channels": 6, "pixels": 64}
    case = adversary("group_norm_silu", "unlike", "float32", **size)
    silu = torch.nn.functional.silu
    assert problems(case, silu(group_normed(case, (2, 3)))) == ""
    assert problems(case, silu(group_normed(case, (3,))))
    assert problems(case, silu(group_normed(case, (1, 2, 3))))
    x, weight, bias = case.inputs
    of_groups = weight[:, :1].expand(weight.shape), bias[:, :1].expand(bias.shape)
    wrong = Case(case.distribution, (x, *of_groups), case.exact, case.own)
    assert problems(case, silu(group_normed(wrong, (2, 3))))
    case = adversary("group_norm_silu", "far", "float32", **size)
    assert problems(case, silu(group_normed(case, (2, 3), one_pass=True)))
    case = adversary("group_norm_silu", "steep", "float32", **size)
    assert problems(case, silu_without_care(group_normed(case, (2, 3))))


def paged(case: Case, *, scale: bool = True, top: bool = True, **changed: torch.Tensor) -> Any:
    """Attention over the pages that are named, position by position up to each length."""
    names = ("q", "key_pages", "value_pages", "table", "lengths")
    q, keys, values, table, lengths = {
        **dict(zip(names, case.inputs, strict=True)),
        **changed,
    }.values()
    y = torch.zeros_like(q)
    for seq, length in enumerate(lengths.tolist()):
        own = [
            pages[table[seq].long()].flatten(0, 1)[:length].transpose(0, 1)
            for pages in (keys, values)
        ]
        scores = q[seq] @ own[0].mT / (q.shape[3] ** 0.5 if scale else 1.0)
        powers = (scores - scores.amax(-1, keepdim=True) if top and length else scores).exp()
        if length:
            y[seq] = powers / powers.sum(-1, keepdim=True) @ own[1]
    return y


def test_attention_of_other_pages_lengths_or_heads_fails() -> None:
    size = {"seqs": 4, "kv_heads": 2, "group": 3, "dim": 32, "pages": 20, "page": 8, "slots": 5}
    case = adversary("paged_attention", "normal", "float32", **size)
    _, keys, values, table, lengths = case.inputs
    assert problems(case, paged(case)) == ""
    assert problems(case, paged(case, scale=False))
    assert problems(case, paged(case, table=table.flip(1)))
    assert problems(case, paged(case, table=torch.arange(5).expand(4, 5)))
    assert problems(case, paged(case, lengths=(lengths - 1).clamp(0)))
    assert problems(case, paged(case, lengths=(lengths + 7) // 8 * 8))
    assert problems(case, paged(case, key_pages=keys.flip(2), value_pages=values.flip(2)))
    # One power in some hundreds overflows.
    many = size | {"seqs": 24, "pages": 40, "slots": 12}
    case = adversary("paged_attention", "sharp", "float32", **many)
    assert problems(case, paged(case, top=False))


def test_a_weight_of_zero_does_not_hide_what_nobody_wrote() -> None:
    size = {"seqs": 4, "kv_heads": 2, "group": 3, "dim": 32, "pages": 40, "page": 8, "slots": 5}
    case = adversary("paged_attention", "stale", "float32", **size)
    assert problems(case, paged(case)) == ""
    q, key_pages, value_pages, table, lengths = case.inputs
    keys, values = (
        pages[table.long()].flatten(1, 2).transpose(1, 2) for pages in (key_pages, value_pages)
    )
    hidden = (torch.arange(40) >= lengths[:, None])[:, None, None]
    share = torch.softmax((q @ keys.mT / 32**0.5).masked_fill(hidden, -torch.inf), -1)
    assert problems(case, share.nan_to_num() @ values)


def by_expert(x: torch.Tensor, weight: torch.Tensor, ends: list[int]) -> torch.Tensor:
    y, start = x.new_zeros(x.shape[0], weight.shape[1]), 0
    for expert, end in enumerate(ends):
        if end > start:
            y[start:end] = x[start:end] @ weight[expert].mT
            start = end
    return y


def test_a_product_of_the_next_expert_or_of_whole_tiles_alone_fails() -> None:
    size = {"rows": 90, "n": 24, "k": 32, "experts": 5}
    case = adversary("grouped_linear", "normal", "float32", **size)
    x, weight, drawn = case.inputs
    ends = drawn.tolist()
    assert ends == sorted(ends)
    assert problems(case, by_expert(x, weight, ends)) == ""
    assert problems(case, by_expert(x, weight.roll(1, 0), ends))
    assert problems(case, by_expert(x, weight, [end + 1 for end in ends]))
    assert problems(case, by_expert(x, weight, [*ends[:-1], 90])) or ends[-1] == 90
    case = adversary("grouped_linear", "idle", "float32", **size)
    x, weight, drawn = case.inputs
    ends = drawn.tolist()
    assert problems(case, by_expert(x, weight, ends)) == ""
    assert problems(case, by_expert(x, weight, [0, *ends[:-1]]))
    case = adversary("grouped_linear", "cancelling", "float32", **size)
    x, weight, drawn = case.inputs
    assert problems(case, by_expert(tf32(x), tf32(weight), drawn.tolist())) or not any(drawn)


def test_gates_over_all_experts_or_of_the_last_of_equals_fail() -> None:
    case = adversary("moe_route", "normal", tokens=40, experts=32, k=4)
    [logits] = case.inputs
    values, order = logits.topk(4)
    assert problems(case, values.softmax(-1), order) == ""
    assert problems(case, logits.softmax(-1).gather(1, order), order)
    assert problems(case, values.softmax(-1).sort(-1).values, order)
    assert problems(case, values.sigmoid(), order)
    case = adversary("moe_route", "level", tokens=40, experts=32, k=4)
    [logits] = case.inputs
    values, order = logits.flip(1).sort(dim=-1, descending=True, stable=True)
    assert problems(case, values[:, :4].softmax(-1), 31 - order[:, :4])
    case = adversary("moe_route", "peaks", tokens=40, experts=32, k=4)
    values, order = case.inputs[0].topk(4)
    assert problems(case, values.exp() / values.exp().sum(-1, keepdim=True), order)


def test_experts_put_together_in_halves_or_without_gates_fail() -> None:
    case = adversary("moe_combine", "normal", rows=50, dim=16, tokens=20, k=4)
    x, index, gates = case.inputs
    assert problems(case, (gates[:, :, None] * x[index]).sum(1)) == ""
    assert problems(case, x[index].mean(1))
    assert problems(case, (gates[:, :, None] * x[index])[:, :3].sum(1))
    assert problems(case, (gates.flip(1)[:, :, None] * x[index]).sum(1))
    case = adversary("moe_combine", "cancelling", rows=50, dim=16, tokens=20, k=4)
    x, index, gates = case.inputs
    assert problems(case, (gates[:, :, None].half() * x[index].half()).sum(1).float())


def of_four_bits(case: Case, **changed: torch.Tensor) -> torch.Tensor:
    names = ("x", "packed", "scale", "low")
    x, packed, scale, low = {**dict(zip(names, case.inputs, strict=True)), **changed}.values()
    q = torch.stack([packed & 15, packed >> 4], -1).flatten(2).float()
    return x @ (q * scale[..., None] + low[..., None]).flatten(1).mT


def test_a_product_of_halves_of_bytes_in_another_order_or_group_fails() -> None:
    size = {"m": 9, "n": 24, "groups": 4, "bytes": 8}
    case = adversary("int4_linear", "normal", "float32", **size)
    _, packed, scale, low = case.inputs
    assert problems(case, of_four_bits(case)) == ""
    assert problems(case, of_four_bits(case, packed=packed << 4 | packed >> 4))
    assert problems(case, of_four_bits(case, packed=packed & 0x77))
    assert problems(case, of_four_bits(case, low=torch.zeros_like(low)))
    assert problems(case, of_four_bits(case, low=-8 * scale))
    case = adversary("int4_linear", "far", "float32", **size)
    _, _, scale, low = case.inputs
    assert problems(case, of_four_bits(case, scale=scale[:, :1].expand(scale.shape)))
    assert problems(case, of_four_bits(case, scale=scale.roll(1, 1), low=low.roll(1, 1)))
    case = adversary("int4_linear", "cancelling", "float32", **size)
    assert problems(
        case, of_four_bits(case, x=tf32(case.inputs[0]), scale=case.inputs[2].bfloat16().float())
    )


def of_eight_bits(case: Case, **changed: torch.Tensor) -> torch.Tensor:
    names = ("x", "packed", "scale")
    x, packed, scale = {**dict(zip(names, case.inputs, strict=True)), **changed}.values()
    weight = packed.view(torch.float8_e4m3fn).float()
    return x @ (weight * scale[..., None]).flatten(1).mT


def test_a_product_of_floats_of_eight_bits_without_sign_subnormals_or_groups_fails() -> None:
    size = {"m": 9, "n": 24, "groups": 4, "bytes": 8}
    case = adversary("fp8_linear", "normal", "float32", **size)
    _, packed, scale = case.inputs
    assert not (packed & 127 == 127).any()
    assert problems(case, of_eight_bits(case)) == ""
    assert problems(case, of_eight_bits(case, packed=packed & 127))
    assert problems(case, of_eight_bits(case, packed=packed & 0xFE))
    assert problems(case, of_eight_bits(case, scale=scale[:, :1].expand(scale.shape)))
    case = adversary("fp8_linear", "far", "float32", **size)
    assert problems(case, of_eight_bits(case, scale=case.inputs[2].roll(1, 1)))
    case = adversary("fp8_linear", "small", "float32", **size)
    assert problems(case, of_eight_bits(case, packed=torch.zeros_like(packed)))
    case = adversary("fp8_linear", "cancelling", "float32", **size)
    assert problems(case, of_eight_bits(case)) == ""
    assert problems(
        case, of_eight_bits(case, x=tf32(case.inputs[0]), scale=case.inputs[2].bfloat16().float())
    )


def test_weights_of_four_bits_in_the_clothes_of_eight_fail() -> None:
    case = adversary("int8_matmul", "normal", m=16, n=32, k=256)
    a, weight, scale = case.inputs
    assert problems(case, (a @ (weight & ~15).float()) * scale)


@pytest.mark.parametrize(
    ("name", "dims"),
    [("sum", {"outer": 8, "reduce": 512, "inner": 4}), ("cumsum", {"rows": 8, "cols": 512})],
)
def test_a_sum_kept_in_halves_fails_where_it_cancels(name: str, dims: dict[str, int]) -> None:
    case = adversary(name, "cancelling", "float32", **dims)
    x, axis = case.inputs[0].half(), 1
    assert problems(case, (x.sum(axis) if name == "sum" else x.cumsum(axis)).float())


def test_a_relu_that_multiplies_fails_at_infinity_and_one_may_keep_or_drop_nan() -> None:
    case = adversary("relu", "infinite", n=1000)
    x = case.inputs[0]
    assert "NaN" in problems(case, x * (x > 0))
    assert not x.isnan().any()
    assert problems(case, x.fmax(torch.zeros(()))) == ""
    assert problems(case, torch.where(x < 0, 0.0, x)) == ""


@pytest.mark.parametrize("name", ops.names())
def test_small_workloads_see_everything_and_large_ones_all_adversaries(name: str) -> None:
    op = ops.load(name)

    def chosen(count: int) -> tuple[str, ...]:
        axis = next(a for a in op.signature.inputs[0].shape if isinstance(a, str))
        dims = dict.fromkeys(op.signature.axes, 1) | {axis: count}
        return inputs.choose(op, Workload("w", dims), tuple(DISTRIBUTIONS))

    assert set(chosen(100)) == {*DISTRIBUTIONS, *op.adversaries, inputs.IN_PART}
    for count in (100_000, 10_000_000):
        assert {*op.adversaries, inputs.IN_PART} < set(chosen(count))
        assert len(chosen(count)) == len(op.adversaries) + 3
        assert len({chosen(count)[1:] for _ in range(50)}) > 3, "nobody knows which"
    assert all(chosen(count)[0] == "normal" for count in (0, 100, 100_000, 10_000_000))


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


def test_a_nan_in_the_reference_is_not_a_wildcard() -> None:
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


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(
    ("exact", "got", "problem"),
    [
        (65519, math.inf, ""),  # 65520 rounds to infinity
        (65519, 65504, ""),
        (65519, -math.inf, "NaN or infinity"),
        (65519, math.nan, "NaN or infinity"),
        (60000, math.inf, "NaN or infinity"),
        (65521, 65504, ""),
        (65521, math.inf, ""),
        (65521, 60000, "elements are off"),
        (1e6, 65504, "elements are off"),
        (1e6, -math.inf, "NaN or infinity"),
        (math.inf, 65504, "NaN or infinity"),
    ],
)
def test_at_the_edge_of_infinity_an_element_may_err_as_others_do(
    sign: int, exact: float, got: float, problem: str
) -> None:
    wide = torch.randn(64, dtype=torch.float64).mul_(20000).clamp_(-60000, 60000)
    wide[5] = sign * exact
    case = Case("made", (), (wide,), (wide.half(),))
    output = wide.half()
    output[5] = sign * got
    assert problem in problems(case, output) and bool(problem) == bool(problems(case, output))


@pytest.mark.parametrize(("factor", "right"), [(1, True), (1 + 2**-10, True), (1.05, False)])
def test_where_only_the_framework_overflows_on_its_way_float64_decides(
    factor: float, right: bool
) -> None:
    exact = torch.linspace(100, 200, 64, dtype=torch.float64)
    own = exact.half()
    own[9] = math.inf
    case = Case("made", (), (exact,), (own,))
    output = exact.half()
    output[9] *= factor
    assert (problems(case, output) == "") == right
    assert problems(case, own) == ""


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
        exact = ("ties", "constant", "one-hot")  # in bfloat16, or mostly zeros
        assert problems(case, rounded) or distribution in exact


def test_a_normaliser_summed_in_order_is_strict_arithmetic_too() -> None:
    op = ops.load("softmax")
    for distribution in DISTRIBUTIONS:
        case = make_case(op, Workload("w", {"rows": 64, "cols": 4096}), "float32", distribution)
        x = case.inputs[0]
        powers = (x - x.amax(-1, keepdim=True)).exp()
        total = torch.zeros(64)
        for column in range(4096):
            total += powers[:, column]
        assert problems(case, powers / total[:, None]) == "", distribution


@pytest.mark.parametrize("lanes", [1, 4, 64])
def test_a_row_may_be_shifted_by_its_one_large_element(lanes: int) -> None:
    """Which leaves as many equal terms as the row is long, each as large as that element."""
    op = ops.load("layernorm")
    for _ in range(20):
        case = make_case(op, Workload("w", {"rows": 32, "cols": 129}), "float32", "one-hot")
        x, weight, bias = case.inputs
        shift = x.gather(1, x.abs().argmax(1, keepdim=True))
        terms = torch.nn.functional.pad(x - shift, (0, -129 % lanes)).view(32, -1, lanes)
        total = in_order(in_order(terms)[:, :, None])
        centred = x - (shift + total / 129)
        scale = 1 / ((centred**2).mean(1, keepdim=True) + 1e-5).sqrt()
        assert not problems(case, centred * scale * weight + bias)


def in_order(terms: torch.Tensor) -> torch.Tensor:
    """The sums over n of terms ``(rows, n, lanes)``, one addition after the other."""
    total = torch.zeros_like(terms[:, 0])
    for k in range(terms.shape[1]):
        total = total + terms[:, k]
    return total


def test_a_lucky_sum_near_zero_is_evaluated_by_its_terms() -> None:
    x = torch.tensor([1.0, 2.0**-12, -1.0], dtype=torch.float32).repeat(999).reshape(1, -1, 1)
    exact = x.double().sum(1)
    work = Workload("made", {"outer": 1, "reduce": x.numel(), "inner": 1})
    chain = reference._chain(ops.load("sum"), work, [x.double()], [exact])
    case = Case("made", (x,), (exact,), (exact.float(),), chain)
    assert problems(case, exact.float() + 1e-4) == ""
    assert problems(case, exact.float() + 1e-2)


def test_seeds_are_fresh_for_every_case() -> None:
    op = ops.load("relu")
    one, other = (make_case(op, op.workloads["ci"][0], "float32", "normal") for _ in range(2))
    assert not torch.equal(one.inputs[0], other.inputs[0])


def test_poison_differs_from_call_to_call() -> None:
    one, other = (output_guards.poison((64,), "float32").view(torch.int32) for _ in range(2))
    assert not torch.equal(one, other)


def test_allow_tf32_is_looser_than_strict_and_still_a_limit() -> None:
    case = cases("matmul", "float32")[0]
    a, b = (t.half().float() for t in case.inputs)  # 11 bits of mantissa, as TF32 keeps
    output = a @ b
    assert compare(actual=[output], case=case, precision="strict").problem
    assert not compare(actual=[output], case=case, precision="allow_tf32").problem
    assert compare(actual=[output * 1.05], case=case, precision="allow_tf32").problem


@given(st.floats(1e-30, 1e30), st.integers(0, 2**32 - 1))
def test_the_verdict_does_not_depend_on_scale(scale: float, seed: int) -> None:
    """An absolute tolerance would pass zeros at a small scale; ours moves with the answer."""
    generator = torch.Generator().manual_seed(seed)
    exact = torch.randn(64, generator=generator, dtype=torch.float64) * scale
    case = Case("scaled", (), (exact,), (exact.float(),))
    assert problems(case, exact.float()) == ""
    assert problems(case, torch.zeros(64))
    assert problems(case, exact.float() * 1.001)


def test_two_calls_may_differ_by_as_much_as_an_element_may_err_and_no_more() -> None:
    case = adversary("softmax", "peaks", rows=4, cols=64)
    own = case.own[0]
    assert check.repeated(first=[own], second=[own.clone()], case=case).spread is None
    near = check.repeated(first=[own], second=[own * (1 + 2.0**-23)], case=case)
    assert near.spread is not None and not near.problem
    far = check.repeated(first=[own], second=[own * 1.001], case=case)
    assert "more than an element may err by" in far.problem


@given(
    st.sampled_from([math.nan, math.inf, -math.inf, 1.0]),
    st.sampled_from([math.nan, math.inf, -math.inf, 1.0]),
    st.integers(0, 63),
    st.integers(0, 63),
)
def test_what_is_not_finite_passes_only_in_its_place_and_with_its_sign(
    expected: float, got: float, place: int, where: int
) -> None:
    exact = torch.arange(64, dtype=torch.float64)
    exact[place] = expected
    case = Case("made", (), (exact,), (exact.float(),))
    actual = exact.float()
    actual[place] = float(place)
    actual[where] = got
    right = torch.equal(actual.nan_to_num(99, 98, 97), exact.float().nan_to_num(99, 98, 97))
    assert (problems(case, actual) == "") == right


@given(st.permutations(range(16)))
def test_the_same_elements_in_another_order_fail(order: list[int]) -> None:
    exact = torch.linspace(-2, 3, 16, dtype=torch.float64)
    case = Case("made", (), (exact,), (exact.float(),))
    assert (problems(case, exact.float()[order]) == "") == (order == list(range(16)))


@given(st.integers(-60, 60), st.floats(-1e-5, 1e-5))
def test_a_budget_scales_with_the_answer(power: int, error: float) -> None:
    exact = torch.linspace(1, 3, 16, dtype=torch.float64)
    off = exact.clone()
    off[3] *= 1 + error
    one = Case("made", (), (exact,), (exact.float(),))
    other = Case("made", (), (exact * 2.0**power,), ((exact * 2.0**power).float(),))
    assert bool(problems(one, off.float())) == bool(problems(other, (off * 2.0**power).float()))
