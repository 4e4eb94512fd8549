"""A PyTorch file becomes an operator: what it is, what kernels of it are evaluated by, and what
cannot be one."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

import portkern
from portkern.cells.selection import Selection, default_target, load_op
from portkern.cli import main
from portkern.errors import ConfigError
from portkern.evaluator import from_torch, imported, inputs
from portkern.evaluator.from_torch import OperatorFile
from portkern.records.record import Verdict
from portkern.spec import abi, catalogue, registry
from portkern.spec.expression import Expression
from portkern.spec.from_torch import sheet as sheets
from portkern.spec.from_torch import sizes as rules
from portkern.spec.from_torch.adversaries import Adversary
from portkern.spec.from_torch.names import identifier, is_identifier, operator_name
from portkern.spec.from_torch.source import reference_source, replaceable, with_sizes
from portkern.spec.from_torch.traced import Argument, Traced, Tracing
from portkern.spec.imported import ImportedReference
from portkern.spec.op import FLOATS, Op, Workload
from portkern.testing import evaluate
from portkern.worker.tracing import odd_values
from portkern.worker.tracing.trace import trace

pytestmark = pytest.mark.usefixtures("servers_ahead")
DATA = Path(__file__).parent / "data" / "from_torch"
PROBLEMS = ("log_softmax", "group_norm", "gemm_swish", "conv_norm_mean", "cosine_loss")


def tracing(text: str, wanted: str = "", name: str = "mine") -> Tracing:
    """Traces the text in this process: the tests' own code needs no jail."""
    source = "import torch\nimport portkern\n" + textwrap.dedent(text)
    return trace(source, "mine.py", wanted, name)


def traced(text: str, wanted: str = "") -> Traced:
    found = tracing(text, wanted)
    assert found.traced is not None, found.untraceable
    return found.traced


def refusal(text: str) -> str:
    """Why it is not an operator, with the line of ``text``."""
    why = tracing(text).untraceable
    assert why is not None
    return f"{max(why.line - 2, 0)}: {why.problem}"


def function(body: str, *given: str) -> str:
    """A file with ``f``, whose example inputs are ``given``."""
    names = ", ".join("xyzuvw"[: len(given)])
    lines = textwrap.indent(textwrap.dedent(body).strip(), "    ")
    return f"def f({names}):\n{lines}\n\ndef get_inputs():\n    return [{', '.join(given)}]\n"


def module(init: str, forward: str, given: str, *, numbers: str = "", arguments: str = "") -> str:
    return (
        f"{numbers}\nclass Model(torch.nn.Module):\n"
        f"    def __init__(self{arguments and ', '}{arguments}):\n"
        f"        super().__init__()\n{textwrap.indent(textwrap.dedent(init).strip(), ' ' * 8)}\n"
        f"    def forward(self, x):\n{textwrap.indent(textwrap.dedent(forward).strip(), ' ' * 8)}\n"
        f"def get_inputs():\n    return [{given}]\n"
        f"def get_init_inputs():\n    return [{arguments}]\n"
    )


@cache
def problem(name: str) -> Traced:
    source = (DATA / f"{name}.py").read_text()
    found = trace(source, f"{name}.py", "", name).traced
    assert found is not None
    return found


def op_of(name: str) -> Op:
    source = (DATA / f"{name}.py").read_text()
    return sheets.of(problem(name), f"{name}.py", source).op(source)


# ---- what is found


def test_axes_have_the_files_names_and_equal_ones_are_one() -> None:
    found = problem("gemm_swish")
    assert dict(found.axes) == {"rows": 1024, "in_features": 4096, "out_features": 2048}
    shapes = {one.name: one.shape for one in (*found.inputs, *found.outputs)}
    assert shapes == {
        "x": ("rows", "in_features"),
        "gemm_weight": ("out_features", "in_features"),
        "gemm_bias": ("out_features",),
        "y": ("rows", "out_features"),
    }


def test_a_length_that_two_numbers_have_is_named_by_tensor_and_place() -> None:
    text = "a = 32\nb = 32\n" + function("return x + 1", "torch.randn(a, 48)")
    assert dict(traced(text).axes) == {"x_0": 32, "x_1": 48}


def test_parameters_are_inputs_and_know_where_they_are_in_the_module() -> None:
    state = {one.name: (one.state, one.draws) for one in problem("group_norm").inputs}
    assert state == {
        "x": ("", ""),
        "norm_weight": ("norm.weight", "scale"),
        "norm_bias": ("norm.bias", ""),
    }


def test_a_loop_over_one_input_is_as_long_in_all_inputs_and_of_any_length() -> None:
    found = traced(
        """
        def scan(x, gate):
            h, steps = torch.zeros_like(x[:, 0]), torch.empty_like(gate)
            for t in range(x.shape[1]):
                h = h * 0.5 + torch.sigmoid(gate[:, t]) * x[:, t]
                steps[:, t] = h
            return steps

        def get_inputs():
            return [torch.randn(4, 61, 12), torch.randn(4, 61, 12)]
        """
    )
    x, gate = found.inputs
    assert x.shape == gate.shape == found.outputs[0].shape
    assert not found.requires
    times = {dims[str(x.shape[1])] for several in found.workloads.values() for dims in several}
    assert min(times) < 9 and max(times) > 61
    flops = Expression(found.flops)
    twice = {**found.axes, str(x.shape[1]): 122}
    assert flops(twice) == pytest.approx(2 * flops(found.axes))


def test_a_loop_with_a_step_leaves_all_other_sizes_free() -> None:
    found = traced(
        """
        def every(x, w):
            return torch.stack([x[:, i] @ w for i in range(0, x.shape[1], 16)], 1)

        def get_inputs():
            return [torch.randn(4, 64, 48), torch.randn(48, 48)]
        """
    )
    assert found.inputs[0].shape[1] == 64 and found.outputs[0].shape[1] == 4
    for name in ("ci", "edge", "heldout"):
        assert len({dims["x_2"] for dims in found.workloads[name]}) > 1, name
    assert found.notes == ("x is tried at the file's own lengths ['x_0', 64, 'x_2'].",)


def test_a_set_that_nothing_is_tried_at_is_said() -> None:
    # tracing sees symbols there, and calls at most sizes fail
    body = "assert not isinstance(x.shape[0], int) or x.shape[0] in (12, 9)\nreturn x + 1"
    found = traced(function(body, "torch.randn(12)"))
    assert len(found.workloads["ci"]) > 1
    assert not found.workloads["edge"] and "`edge` is empty" in " ".join(found.notes)


def test_a_loop_has_no_plain_kernel_as_each_length_is_another_graph(tmp_path: Path) -> None:
    text = """
        import torch

        def running(x):
            h, out = torch.zeros_like(x[:, 0]), []
            for t in range(x.shape[1]):
                h = h * 0.5 + x[:, t]
                out.append(h)
            return torch.stack(out, 1)

        def get_inputs():
            return [torch.randn(4, 9)]
        """
    with pytest.raises(ConfigError, match="another graph at each length of x_1"):
        from_torch.plain_kernel(write(tmp_path, text), "cpu")


def test_python_functions_of_lengths_do_not_fix_them() -> None:
    found = traced(
        """
        import math
        from math import sqrt

        def scores(q, k, labels):
            assert len([q, k]) == 2
            own = torch.eye(len(labels)).bool() | (labels[:, None] == labels)
            return torch.where(own, q @ k.T / math.sqrt(q.shape[-1]) + sqrt(len(q)), 0.0)

        def get_inputs():
            return [torch.randn(24, 40), torch.randn(24, 40), torch.randint(0, 5, (24,))]
        """
    )
    assert [one.shape for one in found.inputs] == [("q_0", "q_1"), ("q_0", "q_1"), ("q_0",)]
    assert not found.notes


def test_lengths_that_nobody_can_vary_are_said() -> None:
    found = traced(function("return x * torch.arange(12.0)", "torch.randn(4, 12)"))
    assert found.inputs[0].shape[1] == 12
    assert found.notes == ("x is tried at the file's own lengths ['x_0', 12].",)


def test_lengths_that_have_to_be_equal_move_together() -> None:
    found = traced(
        """
        GROUP = 32

        def dequantised(x, packed, scales, zeros):
            both = torch.stack((packed & 15, packed >> 4), -1).reshape(packed.shape[0], -1)
            rows, width = both.shape
            parts = both.view(rows, width // GROUP, GROUP).to(x.dtype)
            parts = (parts - zeros[..., None]) * scales[..., None]
            return x @ parts.view(rows, width).t()

        def get_inputs():
            packed = torch.randint(0, 256, (192, 128), dtype=torch.uint8)
            return [torch.randn(16, 256), packed, torch.rand(192, 8) * 0.1, torch.ones(192, 8)]
        """
    )
    assert {dims["x_1"] for dims in found.workloads["ci"]} == {32, 256, 320}
    assert found.inputs[1].within == (0, 256)  # bytes, though x is as wide by chance
    assert found.inputs[2].draws == "own"


def test_what_the_file_makes_may_be_as_long_as_another_input_by_two_numbers() -> None:
    found = traced(
        """
        def long_convolution(u, k):
            n = u.shape[-1]
            of = torch.fft.rfft(u, n=2 * n) * torch.fft.rfft(k, n=2 * n)
            return torch.fft.irfft(of, n=2 * n)[..., :n]

        def get_inputs():
            decay = torch.exp(-torch.arange(256) / 40)
            return [torch.randn(2, 16, 256), torch.randn(16, 256) * decay]
        """
    )
    u, k = found.inputs
    assert k.shape == u.shape[1:] and all(isinstance(one, str) for one in k.shape)
    assert len({dims[str(u.shape[2])] for dims in found.workloads["heldout"]}) > 2


@pytest.mark.parametrize(
    ("body", "inputs"),
    [
        ("return x.cumsum(1) * y[:, None]", ["torch.randn(64, 256)", "torch.randn(64)"]),
        ("return x @ y", ["torch.randn(300, 1000)", "torch.randn(1000, 700)"]),
        ("return x.roll(1, 2) + y", ["torch.randn(3, 4, 90)", "torch.randn(90) * 0.1"]),
    ],
)
def test_each_axis_is_longer_than_in_the_file_at_some_size_of_ci_and_no_multiple(
    body: str, inputs: list[str]
) -> None:
    found = traced(function(body, *inputs))
    for axis, length in found.axes.items():
        longer = {dims[axis] for dims in found.workloads["ci"] if dims[axis] > length}
        assert longer and any(one % length and (one % 2 or length <= 8) for one in longer), axis


def test_sizes_that_the_file_cannot_make_are_not_tried_and_the_least_that_it_makes_are() -> None:
    found = traced(
        """
        def mean_of_first(x, mask):
            return (x * mask[..., None]).sum(1) / mask.sum(1).clamp(min=1)[:, None]

        def get_inputs():
            mask = torch.ones(16, 64)
            for i in range(16):
                mask[i, 10 + 3 * i:] = 0
            return [torch.randn(16, 64, 96), mask]
        """
    )
    rows, tokens, _ = found.axes
    sizes = [(dims[rows], dims[tokens]) for dims in found.workloads["ci"]]
    assert (16, 10) in sizes and min(sizes)[0] == 16
    assert any(n > 16 for n, _ in sizes) and any(t > 64 for _, t in sizes)


def test_the_size_at_which_the_file_writes_padding_is_tried_at_once() -> None:
    found = traced(
        """
        class Bag(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.bag = torch.nn.EmbeddingBag(3000, 40, mode="sum", padding_idx=0)

            def forward(self, ids):
                return self.bag(ids)

        def get_inputs():
            ids = torch.randint(1, 3000, (64, 12))
            ids[:, 9:] = 0
            return [ids]
        """
    )
    assert {dims["ids_1"] for dims in found.workloads["ci"]} >= {4, 12}


HELPED = """
    def halves(x):
        return torch.cat((-x[..., x.shape[-1] // 2 :], x[..., : x.shape[-1] // 2]), -1)

    class Norm(torch.nn.Module):
        def forward(self, x):
            return x / x.abs().mean(-1, keepdim=True)

    class Rotated(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = Norm()

        def forward(self, x):
            return halves(self.norm(x))

    def get_inputs():
        return [torch.randn(4, 12)]
    """


def test_helpers_that_an_operator_calls_are_not_operators_unless_asked_for() -> None:
    found = traced(HELPED)
    assert (found.operator, found.only) == ("Rotated", True)
    helper = traced(HELPED, "halves")
    assert (helper.operator, helper.only) == ("halves", False)


UNRELATED = "class Net(torch.nn.Module):\n    def forward(self, x):\n        return x\n"
SIZED = (
    "class Wrapper(torch.nn.Module):\n    def __init__(self, d):\n        super().__init__()\n"
    "    def forward(self, x, s):\n        return gelu(x, s)\n"
)
ONE, TWO = "return [torch.randn(6, 5)]", "return [torch.randn(6, 5), torch.randn(5)]"


@pytest.mark.parametrize(
    ("text", "inputs", "operator"),
    [
        ("def softmax(x):\n    return x.softmax(-1)\n" + UNRELATED, ONE, "softmax"),
        ("def gelu(x, s):\n    return x * s\n" + SIZED, TWO, "gelu"),
        ("def op(x):\n    return x * 2\ndef main():\n    op(*get_inputs())\n", ONE, "op"),
        ("def op(x):\n    return x * 2\ndef show(x=0):\n    op(*get_inputs())\n", ONE, "op"),
        ("def op(x):\n    return x * 2\ndef test(x):\n    assert op(x) is not x\n", ONE, "op"),
        ("def scaled(x, by):\n    return x * by\ndef op(x):\n    return x + 1\n", ONE, "op"),
        ("def test(x):\n    return x * 2\n", ONE, "test"),
        (UNRELATED + "class Whole(Net):\n    pass\n", ONE, "Whole"),
    ],
)
def test_a_file_that_means_one_operator_names_it(text: str, inputs: str, operator: str) -> None:
    found = traced(f"{text}def get_inputs():\n    {inputs}\n")
    assert (found.operator, found.only) == (operator, True)


def test_functions_that_nothing_tells_apart_are_to_be_chosen() -> None:
    given = "def get_inputs():\n    return [torch.randn(6)]\n"
    said = refusal("def f(x):\n    return x\ndef g(x):\n    return -x\n" + given)
    assert "several operators: f, g" in said


def test_operators_that_declare_themselves_are_several_though_one_calls_another() -> None:
    declared = "@portkern.operator(shapes={'x': (6, 5)})\n"
    text = f"{declared}def f(x):\n    return -x\n{declared}def g(x):\n    return f(x) * 2\n"
    assert "several operators: f, g" in refusal(text)
    assert not traced(text, "g").only


def test_a_number_that_the_operator_reads_names_no_axis_that_is_as_long_by_chance() -> None:
    body = "return x * (torch.arange(x.shape[0]) < SINKS)[:, None]"
    found = traced("SINKS = 6\n" + function(body, "torch.randn(6, 5)"))
    assert [*found.axes] == ["x_0", "x_1"]


def test_what_tracing_assumed_of_lengths_is_required() -> None:
    assert problem("group_norm").requires == ("features % 8 == 0",)
    op = op_of("group_norm")
    bad = Workload("bad", {"batch_size": 2, "features": 12, "height": 3, "width": 3})
    with pytest.raises(ConfigError, match=r"has features=12; the operator requires .*features % 8"):
        op.check(bad)


def test_lengths_of_outputs_follow_from_those_of_inputs() -> None:
    text = module(
        "self.conv = torch.nn.Conv2d(8, 16, 5)",
        "return self.conv(x)",
        "torch.rand(32, 8, 40, 48)",
    )
    found = traced(text)
    assert found.outputs[0].shape == ("x_0", "conv_weight_0", "y_2", "y_3")
    dims = dict(found.axes)
    assert Expression(found.derived["y_2"])(dims) == 36
    assert Expression(found.derived["y_3"])(dims) == 44
    for workloads in found.workloads.values():
        for work in workloads:
            assert work["y_2"] == work["x_2"] - work["conv_weight_2"] + 1


def test_several_outputs_and_a_dictionary_of_them_are_outputs_in_order() -> None:
    pair = traced(function("return x.sum(-1), x.argmax(-1)", "torch.randn(16, 40)"))
    assert [(one.shape, one.dtype) for one in pair.outputs] == [
        (("x_0",), "cell"),
        (("x_0",), "int64"),
    ]
    named = traced(function("return {'a': x * 2, 'b': (x + 1, x > 0)}", "torch.randn(16, 40)"))
    assert [one.dtype for one in named.outputs] == ["cell", "cell", "bool"]


def test_a_forward_that_reads_a_number_of_the_file_sees_that_of_each_call() -> None:
    file = module(
        "self.weight = torch.nn.Parameter(torch.ones(width))",
        "return x.view(-1, width) * self.weight * width",
        "torch.randn(4, width)",
        numbers="width = 6",
    )
    run: dict[str, Any] = {"__name__": "reference"}
    text = reference_source(
        f"import torch\n{file}",
        "Model",
        inputs=["x", "weight"],
        scalars=[],
        state={"weight": "weight"},
        arguments=[Argument("x")],
        module=True,
        changes_itself=False,
        constants={"width": "weight.shape[0]"},
    )
    exec(text, run)
    for width in (3, 5, 3):
        outputs = run["run"](torch.ones(2, width), torch.ones(width))
        assert outputs.shape == (2, width)
        assert outputs.unique().tolist() == [float(width)]


def test_a_loss_is_a_tensor_without_dimensions() -> None:
    found = problem("cosine_loss")
    assert (found.operator, found.name) == ("cosine_loss", "cosine_loss")
    assert found.outputs[0].shape == ()


def test_integers_know_what_they_lie_within() -> None:
    text = "vocab = 300\n" + function(
        "return torch.nn.functional.embedding(y, x) * z[:, None]",
        "torch.randn(vocab, 24)",
        "torch.randint(0, vocab, (100,))",
        "torch.randint(3, 9, (100,))",
    )
    found = traced(text)
    assert [one.within for one in found.inputs] == [None, (0, "vocab"), (3, 9)]
    assert "x" in found.reads  # not all of the table
    assert Expression(found.reads["x"])({"vocab": 300, "x_1": 24, "y_0": 100}) == 2400


def test_a_mask_is_of_booleans_and_a_number_of_no_consequence_for_sizes_is_a_scalar() -> None:
    text = function(
        "return torch.where(y, x * z, u), x.unfold(0, v, 1)",
        "torch.randn(64)",
        "torch.rand(64) > 0.5",
        "0.5",
        "True",
        "3",
    )
    found = traced(text)
    assert [(one.name, one.dtype) for one in found.inputs] == [("x", "cell"), ("y", "bool")]
    assert not any(one.draws == "own" for one in found.inputs)
    assert [(one.name, one.dtype, one.default) for one in found.scalars] == [
        ("z", "float32", 0.5),
        ("u", "bool", True),
    ]
    assert found.arguments[-1].value == "3"  # the window decides the size of the second output


def test_a_file_may_declare_several_and_each_is_chosen_by_name() -> None:
    text = """
    @portkern.operator(inputs=lambda: [torch.randn(32, 24), torch.randn(24)])
    def scaled(x, weight):
        return x * weight

    @portkern.operator(shapes={"a": (32, 40), "b": (40, 48)})
    def product(a, b):
        return a @ b

    @portkern.operator(inputs=lambda: [torch.randn(32, 24)], arguments=(24, 16))
    class Layer(torch.nn.Module):
        def __init__(self, i, o):
            super().__init__()
            self.l = torch.nn.Linear(i, o)

        def forward(self, x):
            return self.l(x)
    """
    assert {one: traced(text, one).name for one in ("scaled", "product", "Layer")} == {
        "scaled": "scaled",
        "product": "product",
        "Layer": "layer",
    }
    why = tracing(text).untraceable
    assert why is not None
    assert "several operators: Layer, product, scaled; choose one, as FILE.py:NAME" in why.problem


def test_batch_norm_in_training_counts_no_calls_among_its_inputs() -> None:
    text = module("self.bn = torch.nn.BatchNorm1d(24)", "return self.bn(x)", "torch.rand(32, 24)")
    found = traced(text)
    assert [one.state for one in found.inputs[1:]] == [
        "bn.weight",
        "bn.bias",
        "bn.running_mean",
        "bn.running_var",
    ]
    assert found.inputs[-1].draws == "positive"


def test_a_constructor_that_reads_values_is_given_values() -> None:
    text = module(
        "self.rates = [rate.item() for rate in torch.linspace(0.0, 1.0, 4)]",
        "return x * self.rates[2]",
        "torch.rand(32, 24)",
    )
    assert traced(text).how == "all sizes"


def test_sizes_of_17_gigabytes_are_traced_without_memory() -> None:
    found = traced(
        "rows = 70000\ncols = 65536\n" + function("return x * 2", "torch.rand(rows, cols)")
    )
    assert dict(found.axes) == {"rows": 70000, "cols": 65536}
    assert max(math.prod(work.values()) for work in found.workloads["typical"]) <= 1 << 26


def test_lengths_that_the_constructor_fixes_follow_the_numbers_of_the_file() -> None:
    text = module(
        "self.norm = torch.nn.LayerNorm((width, height))",
        "return self.norm(x)",
        "torch.rand(16, width, height)",
        numbers="width = 192\nheight = 160",
        arguments="width, height",
    )
    found = traced(text)
    assert found.inputs[1].shape == ("width", "height")
    assert set(found.constants) == {"width", "height"}
    assert {tuple(work.values()) for work in found.workloads["ci"]} >= {(9, 10, 11)}


# ---- what an operator costs


@pytest.mark.full
@pytest.mark.parametrize("name", ["gemm_swish", "conv_norm_mean"])
def test_products_are_counted_as_torch_counts_them(name: str) -> None:
    op = op_of(name)
    dims = op.workloads["ci"][1].dims
    tensors = [torch.rand(spec.sizes(dims)) for spec in op.signature.inputs]
    with FlopCounterMode(display=False) as counter:
        op.reference(*tensors)
    assert counter.get_total_flops() <= op.flops(dims) <= 1.2 * counter.get_total_flops()


@pytest.mark.sampled()
@pytest.mark.parametrize("name", PROBLEMS)
def test_the_least_traffic_is_every_tensor_once(name: str) -> None:
    op = op_of(name)
    dims = op.workloads["ci"][0].dims
    tensors = (*op.signature.inputs, *op.signature.outputs)
    assert op.nbytes(dims, "float32") == sum(one.nbytes(dims, "float32") for one in tensors)


# ---- which inputs break shortcuts


@pytest.mark.parametrize(
    ("body", "given", "expected"),
    [
        ("return x.softmax(1)", ["torch.randn(16, 40)"], {"peaks(x, 1)", "masked(x, 1)"}),
        ("return x @ y", ["torch.randn(16, 40)", "torch.randn(40, 24)"],
         {"cancelling(x, -1, y, -2)", "whole(x, y)"}),
        ("return x.sum(0)", ["torch.randn(16, 40)"], {"cancelling(x, 0)"}),
        ("return torch.nn.functional.layer_norm(x, [40])", ["torch.randn(16, 40)"], {"far(x)"}),
        ("return torch.relu(x) + y", ["torch.randn(16, 40)"] * 2, {"special()"}),
    ],
)  # fmt: skip
def test_adversaries_follow_from_the_operations(
    body: str, given: list[str], expected: set[str]
) -> None:
    assert set(traced(function(body, *given)).adversaries) == expected


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_every_distribution_of_an_operator_can_be_drawn(name: str, dtype: str) -> None:
    op = op_of(name)
    for work in (*op.workloads["ci"], *op.workloads["edge"]):
        for distribution in inputs.choose(op, work, tuple(inputs.DISTRIBUTIONS)):
            drawn = inputs.draw(op, work, dtype, distribution)
            for spec, tensor in zip(op.signature.inputs, drawn, strict=True):
                assert tuple(tensor.shape) == spec.sizes(work.dims)
                assert str(tensor.dtype) == f"torch.{dtype}"


QUANTIZED = """
s = x.abs().amax(-1, keepdim=True).clamp(min=1e-5) / 127
return torch.round(x / s).clamp(-128, 127).to(torch.int8).to(x.dtype) * s
"""


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (QUANTIZED, {"around(x, 1e-05)", "around(x, 128)", "halves(x, 127)"}),
        ("return x.clamp(-6, 6) / y.abs().clamp(min=1e-3)", {"around(x, 6)", "around(y, 0.001)"}),
        ("return torch.floor(x * y)", {"halves(x, y, 127)"}),
        ("return x.clamp(min=0) + y.masked_fill(y > 1e30, 0.0)", set()),
    ],
)
def test_values_lie_on_both_sides_of_what_decides_and_between_what_is_rounded_to(
    body: str, expected: set[str]
) -> None:
    found = traced(function(body, "torch.randn(24, 80)", "torch.randn(24, 80)"))
    odd = {one for one in found.adversaries if one.startswith(("around", "halves"))}
    assert odd == expected


@pytest.mark.parametrize("most", [7, 127, 255, 448])
@pytest.mark.parametrize("kind", [torch.float32, torch.float16, torch.bfloat16])
def test_halves_are_rounded_alike_in_all_ways_to_divide_them(most: int, kind: torch.dtype) -> None:
    halves = Adversary.parse(f"halves(x, {most})", ["x"], ["x"])
    for seed in range(20):
        (x,) = halves(kind, torch.Generator().manual_seed(seed), torch.zeros(6, 40))
        assert torch.equal(x, x.to(kind).float())
        most_of_row = x.abs().amax(-1, keepdim=True)
        scale = most_of_row / most
        ways = [x / scale, x * (1 / scale), x * (most / most_of_row), x * (1 / most_of_row) * most]
        for way in ways:
            assert torch.equal(way, ways[0])
        assert (ways[0].frac().abs() == 0.5).float().mean() > 0.5


def test_a_long_graph_is_searched_for_numbers_in_one_pass() -> None:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    node = graph.call_function(torch.ops.aten.div.Tensor, (x, 255))
    for _ in range(3000):
        node = graph.call_function(torch.ops.aten.add.Tensor, (node, x))
    graph.call_function(torch.ops.aten.round.default, (node,))
    for one in graph.nodes:
        one.meta["val"] = torch.ones(2)
    begun = time.process_time()
    assert odd_values.of(graph, {"x": "x"}, ["x"]) == ["halves(x, 255)"]
    assert time.process_time() - begun < 3


def test_odd_values_of_nothing_are_nothing() -> None:
    for text in ("halves(x, 127)", "around(x, 1e-05)"):
        for shape in ((0, 5), (3, 0), ()):
            (x,) = Adversary.parse(text, ["x"], ["x"])(
                torch.float32, torch.Generator(), torch.ones(shape)
            )
            assert x.shape == shape


@pytest.mark.parametrize("kind", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("names", [("x",), ("x", "y")])
@pytest.mark.parametrize("number", [1e-3, 10.0, 128.0, 3e3, 1e4, 1e30])
def test_values_around_a_number_are_finite_as_are_their_products(
    number: float, names: tuple[str, ...], kind: torch.dtype
) -> None:
    around = Adversary.parse(f"around({', '.join(names)}, {number:g})", names, names)
    generator = torch.Generator().manual_seed(0)
    normal = torch.randn(512, 128, generator=generator)
    made = [one.to(kind) for one in around(kind, generator, *[normal] * len(names))]
    product = made[0] * made[1] if len(made) == 2 else made[0]
    assert product.isfinite().all()
    if (number, kind) == (128.0, torch.float16):
        assert torch.equal(made[0], normal.to(kind)) == (len(names) == 2)


@pytest.mark.parametrize(
    "text",
    [
        "peaks(x)",
        "around(x)",
        "around(x, y)",
        "halves(3)",
        "halves(x, -3)",
        "halves(x, 0)",
        "halves(x, 0.5)",
        "halves(x, 65536)",
        "halves(x, 1e999)",
        "around(x, 1e999)",
        "peaks(x, y)",
        "high(x, 1)",
        "far(w)",
        "cancelling(x, 1, x)",
        "special",
    ],
)
def test_an_adversary_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        Adversary.parse(text, ["x", "y"], ["x", "y"])


# ---- sizes


@pytest.mark.parametrize("name", PROBLEMS)
def test_every_set_that_verbs_ask_for_has_workloads(name: str) -> None:
    workloads = problem(name).workloads
    assert all(workloads[which] for which in ("ci", "typical", "edge", "heldout"))


@given(
    lengths=st.lists(st.integers(1, 5000), min_size=1, max_size=4),
    divisor=st.sampled_from([1, 2, 8, 24]),
    data=st.data(),
)
def test_proposed_sizes_fulfil_what_is_required(
    lengths: list[int], divisor: int, data: st.DataObject
) -> None:
    lengths[0] = max(lengths[0] // divisor, 1) * divisor
    example = {f"a{n}": length for n, length in enumerate(lengths)}
    condition = Expression(f"a0 % {divisor} == 0")
    sizes = rules.Sizes(
        example,
        [condition],
        {"b": Expression("a0 + 1")},
        lambda dims: math.prod(dims.values()),
        lambda dims: 3.0 * math.prod(dims.values()),
    )
    proposed = rules.propose(sizes)
    assert proposed["ci"] and proposed["typical"] and proposed["heldout"]
    for which, several in proposed.items():
        for dims in several:
            assert dims["a0"] % divisor == 0
            assert set(dims) == set(example)
            if len(several) > 1:
                more = 5 / 4 * sizes.cost(several[0]) if which == "ci" else 0
                assert sizes.cost(dims) <= max(rules.MOST[which], more)


def test_sizes_at_which_only_the_output_is_empty_are_not_proposed() -> None:
    """PyTorch's transposed convolution refuses them, and its fake one does not."""
    sizes = rules.Sizes(
        {"n": 16, "width": 256, "window": 5},
        [],
        {"y": Expression("3*width + window - 7")},
        lambda dims: math.prod(dims.values()),
        lambda dims: 0.0,
    )
    assert sizes.all({"n": 1, "width": 1, "window": 4}) is None
    assert sizes.all({"n": 0, "width": 2, "window": 4}) is not None
    edge = [sizes.all(dims) for dims in rules.propose(sizes)["edge"]]
    assert all(dims and (dims["y"] > 0 or 0 in (dims["n"], dims["width"])) for dims in edge)
    assert any(dims and dims["n"] == 0 for dims in edge)


@pytest.mark.parametrize("together", [1, 12])
def test_the_files_code_is_called_at_few_sizes_in_search_of_longer_ones(together: int) -> None:
    example = {f"a{n}": 16 + n for n in range(12)}
    called: list[Mapping[str, int]] = []

    def fits(dims: Mapping[str, int]) -> bool:
        called.append(dims)
        return sum(dims[axis] > length for axis, length in example.items()) <= together

    def total(dims: Mapping[str, int]) -> float:
        return sum(dims.values())

    sizes = rules.propose(rules.Sizes(example, (), {}, total, total, {}, fits))["ci"]
    assert len(called) <= 40
    assert all(any(dims[axis] > length for dims in sizes) for axis, length in example.items())
    assert len(sizes) <= 2 + 12 // together


def test_an_axis_of_which_the_file_takes_no_longer_one_keeps_no_other_from_it() -> None:
    example = {"fixed": 99, "even": 40, "free": 20}

    def fits(dims: Mapping[str, int]) -> bool:
        return dims["fixed"] <= 99 and dims["even"] % 2 == 0

    def total(dims: Mapping[str, int]) -> float:
        return sum(dims.values())

    longer = rules.Sizes(example, (), {}, total, total, {}, fits).longer(example, math.inf)
    assert longer == [{"fixed": 99, "even": 50, "free": 25}]


def test_numbers_of_a_file_are_replaced_where_they_are_assigned_and_nowhere_else() -> None:
    text = "a = 3  # a = 3\nb, c = 4, a\nd: int = 5\ndef f():\n    a = 3\ne = a * 2\n"
    changed = with_sizes(text, {"a": 10, "b": 11, "d": 12})
    assert changed == "a = 10  # a = 3\nb, c = 11, a\nd: int = 12\ndef f():\n    a = 3\ne = a * 2\n"
    assert {"a", "b", "c", "d"} <= replaceable(text)


# ---- names and expressions


@given(st.text(max_size=12), st.sets(st.sampled_from(["x", "y", "int_", "n3"])))
def test_any_text_becomes_a_name_that_is_free(text: str, taken: set[str]) -> None:
    name = identifier(text, taken=taken)
    assert is_identifier(name) and name not in taken


def test_files_are_named_as_functions_are() -> None:
    stems = ["24_LogSoftmax", "Conv3dReLU", "my-op", "2", "int", "a__b"]
    assert [operator_name(stem) for stem in stems] == [
        "log_softmax",
        "conv3d_re_lu",
        "my_op",
        "op_2",
        "int_",
        "a_b",
    ]


def test_no_file_named_after_a_function_of_torch_is_named_as_a_function_of_c_is(
    tmp_path: Path,
) -> None:
    homes = (torch, torch.Tensor, torch.nn.functional, torch.special, torch.linalg)
    names = sorted({operator_name(name) for home in homes for name in dir(home) if name[0] != "_"})
    assert {"tanh_", "exp_", "rsqrt_", "softmax"} <= set(names)
    entries = "".join(f'extern "C" int {name}(const float* x, float* y);\n' for name in names)
    host_headers = ("cmath", "cstdlib", "cstring", "cstdio", "ctime", "unistd.h", "algorithm")
    emulated = Path(portkern.__file__).parent / "simt" / "include"
    for headers, folder in ((host_headers, tmp_path), (("cuda_runtime.h", "cmath"), emulated)):
        source = tmp_path / "entries.cpp"
        source.write_text("".join(f"#include <{name}>\n" for name in headers) + entries)
        argv = ["g++", "-std=c++17", "-fsyntax-only", f"-I{folder}", str(source)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]


TERMS = st.recursive(
    st.sampled_from(["a", "b", "c"]) | st.integers(1, 99).map(str),
    lambda inner: st.tuples(inner, st.sampled_from(["+", "-", "*", "//", "%"]), inner).map(
        lambda parts: f"({' '.join(parts)})"
    ),
    max_leaves=8,
)


@given(TERMS, st.tuples(*[st.integers(1, 50)] * 3))
def test_an_expression_is_what_python_computes(text: str, values: tuple[int, int, int]) -> None:
    dims = dict(zip("abc", values, strict=True))
    try:
        expected = eval(text, {}, dict(dims))
    except ZeroDivisionError:
        with pytest.raises(ConfigError):
            Expression(text)(dims)
        return
    assert Expression(text)(dims) == expected


@pytest.mark.parametrize(
    "text",
    ["f(x)", "a.b", "a[0]", "a ** b", "2 ** 99", "__import__('os')", "a if b else c", "", "a +"],
)
def test_what_is_not_arithmetic_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="expected arithmetic over axes"):
        Expression(text)


# ---- what cannot be an operator


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (function("return None", "torch.randn(8)"), "0: returns NoneType, expected a tensor"),
        ("def f(x):\n    return x\n", "0: has no get_inputs() and no @portkern.operator"),
        ("def get_inputs():\n    return []\n", "0: has get_inputs() and nothing that takes"),
        (function("return x.shape[0]", "torch.randn(8)"), "0: returns int, expected a tensor"),
        (function("return x + 1j", "torch.randn(8)"), "0: returns elements of complex64"),
        (
            function("y = x * 2\nreturn torch.nn.functional.dropout(y, 0.5)", "torch.randn(8)"),
            "3: draws random numbers",
        ),
        (
            function("if x.sum() > 0:\n    return x\nreturn -x", "torch.randn(8)"),
            "2: what it does there depends on values",
        ),
        (function("return x[x > 0]", "torch.randn(8)"), "2: what it does there depends on values"),
        (function("return x * x.max().item()", "torch.randn(8)"), "2: what it does there depends"),
        (function("return x @ x", "torch.randn(8, 7)"), "2: raised RuntimeError"),
        (
            function("return x", "'text', 3j"),
            "0: get_inputs() returns 2 inputs, the operator takes 1",
        ),
        ("def f(x:\n", "1: is not Python"),
        ("import no_such_module\n", "1: raised ModuleNotFoundError"),
        (
            module("self.w = torch.load('weights.pt')", "return x", "torch.rand(8)"),
            "5: raised FileNotFoundError",
        ),
    ],
)
def test_what_cannot_be_one_is_said_with_its_line(text: str, expected: str) -> None:
    said = refusal(text)
    assert any(said.startswith(one) for one in expected.split("|")), said


# ---- the sheet


def test_a_sheet_is_read_as_it_was_written() -> None:
    for name in PROBLEMS:
        source = (DATA / f"{name}.py").read_text()
        sheet = sheets.of(problem(name), f"{name}.py", source)
        again = sheets.read(sheet.text(), "x")
        assert again.text() == sheet.text()
        assert not again.edited and again.fits(source)
        assert again.op(source).digest == sheets.read(sheet.text(), "x").op(source).digest


def test_the_digest_follows_the_file_and_the_sheet() -> None:
    source = (DATA / "cosine_loss.py").read_text()
    sheet = sheets.of(problem("cosine_loss"), "cosine_loss.py", source)
    changed = sheet.model_copy(update={"flops": "1"})
    digests = {sheet.op(source).digest, changed.op(source).digest, sheet.op(source + "#").digest}
    assert len(digests) == 3


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"flops": "rows * oops"}, "names 'oops'"),
        ({"requires": ["import os"]}, "expected arithmetic over axes"),
        ({"dtypes": 3}, "dtypes: got '3'"),
        ({"unknown": 1}, "unknown: got '1'"),
        ({"workloads": {"ci": [{"rows": 3}]}}, "has no length of"),
        ({"workloads": {"ci": [{"rows": -3, "in_features": 2, "out_features": 2}]}}, "rows=-3"),
        ({"adversaries": ["high(x)"]}, "No adversary 'high'"),
        ({"arguments": ["q"]}, "arguments name 'q'"),
        ({"inputs": {"int": {"shape": ["rows"]}}}, "expected one that C and Python take"),
        ({"reads": {"q": "1"}}, "reads names 'q'"),
    ],
)
def test_what_is_wrong_with_a_sheet_is_one_line(change: Mapping[str, Any], expected: str) -> None:
    source = (DATA / "gemm_swish.py").read_text()
    data = yaml.safe_load(sheets.of(problem("gemm_swish"), "gemm_swish.py", source).text())
    with pytest.raises(ConfigError, match=expected) as caught:
        sheets.read(yaml.safe_dump({**data, **change}), "gemm_swish.op.yaml").op(source)
    assert "\n" not in str(caught.value)


# ---- from file to operator, through the jail


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for file in DATA.iterdir():
        if file.is_file():
            shutil.copy(file, tmp_path)
    return tmp_path


def write(folder: Path, text: str, name: str = "mine.py") -> str:
    path = folder / name
    path.write_text("import torch\nimport portkern\n" + textwrap.dedent(text))
    return str(path)


SMALL = function("return x * 2", "torch.randn(16, 24)")


@pytest.mark.full
def test_the_first_run_writes_the_sheet_and_later_ones_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, SMALL)
    first = load_op(path)
    sheet = tmp_path / "mine.op.yaml"
    assert sheet.exists()

    def never(*_: object, **__: object) -> None:
        raise AssertionError("it was traced again")

    monkeypatch.setattr(from_torch, "derive", never)
    assert load_op(path).digest == first.digest
    text = sheet.read_text()
    sheet.write_text(
        text.replace("workloads:\n  ci:\n", "workloads:\n  ci:\n    - {x_0: 5, x_1: 6}\n")
    )
    edited = load_op(path)
    assert edited.workloads["ci"][0].name == "5x6" and edited.digest != first.digest


@pytest.mark.full
def test_a_sheet_of_another_file_is_derived_again_or_refused_if_changed_by_hand(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, SMALL)
    load_op(path)
    write(tmp_path, SMALL.replace("x * 2", "x.sum(-1)"))
    assert load_op(path).signature.outputs[0].shape == ("x_0",)
    assert "has changed" in capsys.readouterr().err
    sheet = tmp_path / "mine.op.yaml"
    sheet.write_text(
        sheet.read_text().replace("precision: strict", "").replace("flops: ", "flops: 2*")
    )
    write(tmp_path, SMALL)
    with pytest.raises(ConfigError, match=r"changed by hand.*portkern op .*mine.py fresh=true"):
        load_op(path)
    assert main.run(["op", path, "fresh=true"]) == 0
    assert load_op(path).signature.outputs[0].shape == ("x_0", "x_1")


@pytest.mark.full
def test_a_file_sees_no_file_of_the_user_and_ends_no_process_of_ours(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("1")
    reading = write(tmp_path, f"open({str(secret)!r}).read()\n" + SMALL, "reading.py")
    with pytest.raises(ConfigError, match=r"reading.py:3 .*raised FileNotFoundError.*confined"):
        load_op(reading)
    ending = write(tmp_path, "import os\nos._exit(3)\n" + SMALL, "ending.py")
    with pytest.raises(ConfigError, match=r"ending.py cannot be traced: .*status 3"):
        load_op(ending)


@pytest.mark.full
def test_operators_of_one_file_have_a_sheet_each(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """
        @portkern.operator(shapes={"x": (16, 24)})
        def twice(x):
            return x * 2

        @portkern.operator(shapes={"x": (16, 24)})
        def total(x):
            return x.sum(-1)
        """,
    )
    assert [load_op(f"{path}:{name}").name for name in ("twice", "total")] == ["twice", "total"]
    assert sorted(one.name for one in tmp_path.glob("*.yaml")) == [
        "mine.total.op.yaml",
        "mine.twice.op.yaml",
    ]
    with pytest.raises(ConfigError, match="several operators: total, twice"):
        load_op(path)
    with pytest.raises(ConfigError, match="has no operator 'triple'; it has total, twice"):
        load_op(f"{path}:triple")


@pytest.mark.full
def test_two_operators_of_one_name_are_refused_together(tmp_path: Path) -> None:
    path = write(tmp_path, SMALL.replace("def f(", "def softmax("))
    question = Selection([path, "softmax"], ["x86_64"], ["cpu"], ["ci"], ["float32"])
    with pytest.raises(ConfigError, match="are both called 'softmax'"):
        question.cells()
    alone = Selection([path], ["x86_64"], ["cpu"], ["ci"], ["float32"]).cells()
    assert alone[0].candidate is None  # the softmax that ships is another operator


def test_other_encodings_are_read_as_python_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    text = "import torch\n# Größe\n" + SMALL
    path.write_bytes(("# -*- coding: latin-1 -*-\n" + text).encode("latin-1"))
    assert OperatorFile.read(str(path)).source.splitlines()[2] == "# Größe"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError, match=r"is not Python: .*save it as UTF-8"):
        OperatorFile.read(str(path))


@pytest.mark.full
def test_inputs_that_only_the_file_can_make_are_asked_of_it(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """
        M = 64
        def f(a, b):
            return torch.tril(a @ b)

        def get_inputs():
            return [torch.tril(torch.rand(M, M)), torch.tril(torch.rand(M, M))]
        """,
    )
    op = load_op(path)
    assert op.own_inputs is not None and op.signature.axes == ("M",)
    work = op.workloads["ci"][0]
    assert work.dims["M"] < 64
    a, b = inputs.draw(op, work, "float32", inputs.BASE)
    again, _ = inputs.draw(op, work, "float32", inputs.BASE)
    imported.close(op.reference)
    for drawn in (a, b):
        assert drawn.shape == (work.dims["M"],) * 2
        assert torch.equal(drawn, drawn.tril()) and bool(drawn.any())
    assert not torch.equal(a, again)  # fresh ones each time
    assert inputs.choose(op, work, tuple(inputs.DISTRIBUTIONS)) == (inputs.BASE,)


@pytest.mark.full
def test_what_has_no_answer_for_most_numbers_is_asked_between_0_and_1(tmp_path: Path) -> None:
    op = load_op(write(tmp_path, function("return x.log() + (1 - x).log()", "torch.rand(16, 24)")))
    assert op.draws == {"x": "unit"}
    (x,) = inputs.draw(op, op.workloads["ci"][0], "float32", "heavy")
    assert bool((x > 0).all() and (x < 1).all())


@pytest.mark.full
def test_a_dtype_that_the_reference_lacks_is_none_of_the_operators(tmp_path: Path) -> None:
    fixed = "return x @ torch.ones(24, 8, dtype=torch.float32, device=x.device).to(x.dtype)"
    both = "return x.float() @ x.float().T if x.dtype == torch.float16 else x @ x.T"
    assert load_op(write(tmp_path, function(fixed, "torch.randn(16, 24)"), "a.py")).dtypes == (
        "float32",
        "float16",
        "bfloat16",
    )
    mixed = load_op(write(tmp_path, function(both, "torch.randn(16, 24)"), "b.py"))
    assert "float16" not in mixed.dtypes or mixed.signature.outputs[0].dtype != "cell"


@pytest.mark.full
def test_buffers_hold_what_the_constructor_puts_there(tmp_path: Path) -> None:
    text = module(
        """
        self.register_buffer("mask", torch.tril(torch.ones(length, length)))
        """,
        "return x.masked_fill(self.mask[: x.shape[1], : x.shape[1]] == 0, 0.0)",
        "torch.rand(16, length, length)",
        numbers="length = 40",
        arguments="length",
    )
    op = load_op(write(tmp_path, text))
    assert op.draws == {"mask": "own"}
    work = op.workloads["ci"][0]
    assert work.dims["length"] < 40
    _, mask = inputs.draw(op, work, "float32", "heavy")
    imported.close(op.reference)
    assert torch.equal(mask, torch.tril(torch.ones(work.dims["length"], work.dims["length"])))
    assert len(inputs.choose(op, work, tuple(inputs.DISTRIBUTIONS))) > 5


@pytest.mark.parametrize("forward", ["x @ self.table", "x + self.table.sum(0)"])
def test_no_distribution_is_tried_for_a_table_that_an_operation_takes(forward: str) -> None:
    table = 'self.register_buffer("table", torch.linspace(0, 1, 96).reshape(8, 12))'
    text = module(
        table,
        f"return {forward}",
        "torch.randn(16, 8)" if "@" in forward else "torch.randn(16, 12)",
    )
    found = traced(text)
    assert [one.draws for one in found.inputs] == ["", "own"]
    assert not any("table" in one for one in found.adversaries)
    sheets.of(found, "a.py", text).op(text)  # raises where one is


@pytest.mark.full
def test_numbers_that_the_constructor_takes_follow_the_workload(tmp_path: Path) -> None:
    text = module(
        "self.norm = torch.nn.LayerNorm((width, height))",
        "return self.norm(x)",
        "torch.rand(16, width, height)",
        numbers="width = 192\nheight = 160",
        arguments="width, height",
    )
    op = load_op(write(tmp_path, text))
    assert isinstance(op.reference, ImportedReference)
    for work in (*op.workloads["ci"], *op.workloads["edge"]):
        drawn = inputs.draw(op, work, "float32", inputs.BASE)
        (y,) = imported.worker_of(op.reference).outputs(drawn, {})
        expected = torch.nn.functional.layer_norm(
            drawn[0], list(drawn[0].shape[1:]), drawn[1], drawn[2]
        )
        torch.testing.assert_close(y, expected)
    imported.close(op.reference)


@pytest.mark.full
def test_a_number_that_others_are_multiples_of_is_one_axis_with_them(tmp_path: Path) -> None:
    text = module(
        """
        self.up = torch.nn.Linear(width, 4 * width)
        self.down = torch.nn.Linear(4 * width, width)
        self.width = width
        """,
        "a, b = self.up(x).split(2 * self.width, -1)\nreturn self.down(torch.cat([b, a], -1))",
        "torch.rand(16, width)",
        numbers="width = 96",
        arguments="width",
    )
    op = load_op(write(tmp_path, text))
    shapes = {one.name: one.shape for one in (*op.signature.inputs, *op.signature.outputs)}
    assert shapes["x"] == shapes["y"] == ("x_0", "width")
    assert shapes["up_weight"] == ("up_weight_0", "width")
    assert shapes["down_weight"] == ("width", "up_weight_0")
    assert {work.dims["up_weight_0"] for work in op.workloads["ci"]} == {
        4 * work.dims["width"] for work in op.workloads["ci"]
    }
    assert min(work.dims["width"] for work in op.workloads["ci"]) < 16


@pytest.mark.full
def test_the_right_answer_is_made_in_float64_by_code_that_says_float32(tmp_path: Path) -> None:
    body = "w = torch.arange(24, dtype=torch.float32)\nreturn (x.float() * w).sum(-1).to(x.dtype)"
    op = load_op(write(tmp_path, function(body, "torch.randn(16, 24)")))
    x = torch.randn(16, 24, dtype=torch.float64)
    assert isinstance(op.reference, ImportedReference)
    (exact,) = imported.worker_of(op.reference).outputs([x], {})
    (own,) = imported.worker_of(op.reference).outputs([x.float()], {})
    imported.close(op.reference)
    expected = (x * torch.arange(24, dtype=torch.float64)).sum(-1)
    assert exact.dtype is torch.float64 and own.dtype is torch.float32
    torch.testing.assert_close(exact, expected, rtol=1e-14, atol=1e-14)


@pytest.mark.full
def test_a_file_may_use_the_names_that_its_reference_has(tmp_path: Path) -> None:
    text = function("return _outputs(state) + x", "torch.randn(16, 24)", "torch.randn(16, 24)")
    text = "def _outputs(x):\n    return x * 3\n" + text.replace("f(x, y)", "run(x, state)")
    op = load_op(write(tmp_path, text))
    x, state = torch.rand(5, 6), torch.rand(5, 6)
    assert isinstance(op.reference, ImportedReference)
    (y,) = imported.worker_of(op.reference).outputs([x, state], {})
    imported.close(op.reference)
    assert torch.equal(y, state * 3 + x)


@pytest.mark.full
def test_parameters_may_stay_what_the_constructor_makes_them(tmp_path: Path) -> None:
    text = module("self.l = torch.nn.Linear(24, 8)", "return self.l(x)", "torch.rand(16, 24)")
    path = write(tmp_path, text)
    assert main.run(["op", path, "parameters=constants"]) == 0
    op = load_op(path)
    assert [one.name for one in op.signature.inputs] == ["x"]
    x = torch.rand(op.signature.inputs[0].sizes(op.workloads["ci"][0].dims), dtype=torch.float64)
    torch.manual_seed(0)
    expected = torch.nn.Linear(24, 8).double()(x)
    assert isinstance(op.reference, ImportedReference)
    (y,) = imported.worker_of(op.reference).outputs([x], {})
    imported.close(op.reference)
    torch.testing.assert_close(y, expected.detach())


# ---- the command line


@pytest.mark.full
def test_the_verb_shows_the_sheet_and_the_prototype(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, SMALL)
    assert main.run(["op", path]) == 0
    shown = capsys.readouterr().out
    assert "axes: {x_0: 16, x_1: 24}" in shown
    assert 'extern "C" int f(const scalar_t* x, scalar_t* y, int64_t x_0, int64_t x_1);' in shown
    assert main.run(["op", f"{path}:f", "json=true"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["sheet"] == str(tmp_path / "mine.op.yaml") and said["axes"] == {
        "x_0": 16,
        "x_1": 24,
    }


def test_a_first_kernel_is_named_with_the_command_that_evaluates_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A class that is not called Model names the kernel: its file is not called as the user's."""
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(
        "import torch\n"
        "class ScaledSum(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        return (x * 2).sum(-1)\n"
        "def get_inputs():\n"
        "    return [torch.randn(16, 24)]\n"
    )
    assert main.run(["op", "mine.py", "kernel=hip"]) == 0
    shown = capsys.readouterr().out
    assert "a kernel in HIP defines" in shown and "int64_t x_1, hipStream_t stream);" in shown
    assert "portkern check op=mine.py backend=hip source=scaled_sum.hip\n" in shown
    assert Path("scaled_sum.hip").is_file()
    assert main.run(["check", "op=mine.py", "backend=hip", "source=mine.hip"]) == 2
    assert "No such file or directory; there: scaled_sum.hip" in capsys.readouterr().err
    assert main.run(["check", "op=mine.py", "backend=hip", "source=scaledsum.hip"]) == 2
    assert "; did you mean scaled_sum.hip?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["op", "no_such.py"], "Cannot read no_such.py"),
        (["op", "softmax"], "expected a PyTorch file"),
        (["check", "op=no_such.py", "backend=cpu", "source=x.cpp"], "Cannot read no_such.py"),
    ],
)
def test_the_users_mistakes_are_usage_errors(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(arguments) == 2
    assert expected in capsys.readouterr().err


def test_importing_portkern_for_its_decorator_imports_no_torch() -> None:
    said = subprocess.run(
        [
            sys.executable,
            "-c",
            "import portkern, sys; portkern.operator; print('torch' in sys.modules)",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.strip() == "False"


def test_a_declaration_takes_inputs_or_shapes() -> None:
    with pytest.raises(ConfigError, match="one of inputs=, shapes= and cases="):
        portkern.operator()


# ---- kernels


def check(folder: Path, name: str, *arguments: str) -> tuple[int, list[dict[str, Any]]]:
    """The exit code of ``portkern check`` and its records."""
    given = [
        "check",
        f"op={folder / name}.py",
        f"reports={folder}",
        "rounds=1",
        "budget_s=0",
        *arguments,
    ]
    code = main.run(given)
    lines = (folder / "check" / "records.jsonl").read_text().splitlines()
    return code, [json.loads(line) for line in lines]


#: The first kind of mistake of each problem is quick to see; the rest are for the full tier.
TWINS = [
    ("log_softmax", "c < dim; ++c) total", "c < dim / 8 * 8; ++c) total"),
    ("log_softmax", "- top);\n        c", "- top), total = float(half_t(total));\n        c"),
    ("gemm_swish", "i < in_features; ++i)", "i < in_features / 8 * 8; ++i)"),
    ("gemm_swish", "+ i]);\n", "+ i]), total = float(half_t(total));\n"),
    ("group_norm", "i < size; ++i) mean", "i < size - 1; ++i) mean"),
    ("group_norm", "variance += off * off;", "variance = float(half_t(variance + off * off));"),
    ("conv_norm_mean", "b = k % conv_weight_3", "b = (k + 1) % conv_weight_3"),
    ("conv_norm_mean", "made[at] = total;", "made[at] = float(half_t(total));"),
    ("cosine_loss", "c < features; ++c)", "c < features / 16 * 16; ++c)"),
    ("cosine_loss", "product += p * t;", "product = float(half_t(product + p * t));"),
]  # fmt: skip


@pytest.mark.sampled()
@pytest.mark.parametrize(
    "name", ["log_softmax", *(pytest.param(n, marks=pytest.mark.full) for n in PROBLEMS[1:])]
)
def test_honest_kernels_for_the_cpu_pass(name: str, files: Path) -> None:
    code, records = check(
        files, name, "backend=cpu", f"source={files / name}.cpp", "workloads=[ci,edge]"
    )
    assert [record["detail"] for record in records if record["verdict"] != "passed"] == []
    assert code == 0 and len(records) > 4


@pytest.mark.sampled()
@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [TWINS[0], *(pytest.param(*twin, marks=pytest.mark.full) for twin in TWINS[1:])],
)
def test_their_broken_twins_are_wrong(name: str, right: str, wrong: str, files: Path) -> None:
    text = (files / f"{name}.cpp").read_text()
    assert right in text
    twin = files / "twin.cpp"
    twin.write_text(text.replace(right, wrong))
    code, records = check(files, name, "backend=cpu", f"source={twin}")
    verdicts = [record["verdict"] for record in records]
    assert code == 1 and "wrong" in verdicts and set(verdicts) <= {"wrong", "passed"}


@pytest.mark.full
@pytest.mark.parametrize("target", ["cuda sm_90", "hip gfx942"])
@pytest.mark.parametrize("name", PROBLEMS)
def test_honest_kernels_pass_in_the_emulator(name: str, target: str, files: Path) -> None:
    backend, where = target.split()
    source = files / f"{name}.cu"
    code, records = check(
        files, name, f"backend={backend}", f"target={where}", f"source={source}", "venue=emulator"
    )
    assert [record["detail"] for record in records if record["verdict"] != "passed"] == []
    assert code == 0 and records[0]["evidence"] == "emulated"


@pytest.mark.full
def test_an_opencl_kernel_of_a_file_passes(files: Path) -> None:
    source = f"source={files / 'log_softmax_opencl.py'}"
    code, records = check(files, "log_softmax", "backend=opencl", source, "workloads=[ci,edge]")
    assert code == 0, [record["detail"] for record in records]


@pytest.mark.full
@pytest.mark.parametrize(("name", "dtype"), [*zip(PROBLEMS, cycle(FLOATS[1:]), strict=False)])
def test_honest_kernels_pass_in_16_bits(name: str, dtype: str, files: Path) -> None:
    assert bad(files, name, dtype, ("ci", "edge")) == []


@pytest.mark.full
@pytest.mark.parametrize("name", PROBLEMS)
def test_honest_kernels_pass_at_twenty_seeds(name: str, files: Path) -> None:
    """They are secret, and fresh in each evaluation."""
    assert bad(files, name, "float32", ("ci",) * 20, most=20) == []


def bad(
    files: Path, name: str, dtype: str, sets: Sequence[str], *, most: int | None = None
) -> list[str]:
    """The faults of the C++ kernel in ``most`` evaluations; empty where it passes."""
    op, backend = load_op(str(files / f"{name}.py")), registry.load("cpu")
    kernel = catalogue.from_file(files / f"{name}.cpp", op=op.name, backend=backend)
    results = evaluate(
        kernel,
        op,
        backend,
        default_target(backend),
        [workload for which in sets for workload in op.workloads[which]][:most],
        dtype=dtype,
        folder=files / "builds",
    )
    assert isinstance(results, list), results
    assert len(results) >= len(sets)
    return [f"{r.verdict}: {r.detail}" for r in results if r.verdict is not Verdict.PASSED]


@pytest.mark.drawn
@pytest.mark.timeout(900)
def test_the_module_itself_is_the_baseline_in_eager_mode_and_compiled(files: Path) -> None:
    code = main.run(
        [
            "matrix",
            f"ops={files / 'group_norm.py'}",
            "targets=host",
            "backends=cpu",
            f"source={files / 'group_norm.cpp'}",
            "baselines=[eager,compile]",
            f"reports={files}",
            "run=both",
            "track=false",
        ]
    )
    lines = (files / "both" / "records.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    assert code == 0
    assert all({"eager", "compile"} <= set(record["baselines"]) for record in records)


# ---- many tensors


MANY = """
@portkern.operator(inputs=lambda: [torch.randn(24, 40) for _ in range(18)])
def add_up(*parts):
    return sum(parts), torch.stack(parts).amax(0)
"""

MANY_CPP = """
extern "C" int add_up(const add_up_in* in, const add_up_out* out, const add_up_axes* axes) {
    for (int64_t i = 0; i < axes->parts0_0 * axes->parts0_1; ++i) {
        float total = 0.0f, most = float(in->parts0[i]);
        const scalar_t* all[] = {PARTS};
        for (const scalar_t* one : all) {
            total += float(one[i]);
            most = float(one[i]) > most || float(one[i]) != float(one[i]) ? float(one[i]) : most;
        }
        out->y0[i] = total;
        out->y1[i] = most;
    }
    return 0;
}
""".replace("PARTS", ", ".join(f"in->parts{n}" for n in range(18)))


@pytest.mark.full
def test_more_than_16_tensors_are_passed_in_structures(tmp_path: Path) -> None:
    path = write(tmp_path, MANY, "add_up.py")
    signature = load_op(path).signature
    assert abi.passes_structures(signature)
    said = abi.declaration(signature, "add_up", {})
    assert "struct add_up_in { const scalar_t* parts0;" in said
    assert "(const add_up_in* in, const add_up_out* out, const add_up_axes* axes);" in said
    kernel = tmp_path / "add_up.cpp"
    kernel.write_text(MANY_CPP)
    code, records = check(tmp_path, "add_up", "backend=cpu", f"source={kernel}")
    assert code == 0, [record["detail"] for record in records]


def test_a_module_of_more_than_16_parameters_has_its_arguments_in_structures() -> None:
    layers = "self.layers = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(9)])"
    text = module(layers, "return self.layers(x)", "torch.randn(4, 8)")
    signature = sheets.of(traced(text), "mine.py", text).op(text).signature
    assert len(signature.inputs) == 19
    pointers = [8 * number for number in range(20)]
    parts = abi.Arguments(signature).of(pointers, dict.fromkeys(signature.axes, 4), {})
    inputs: Any = parts[0]
    named = [getattr(inputs.contents, one.name) for one in signature.inputs]
    assert named == [None, *pointers[1:19]]


@pytest.mark.full
def test_attention_has_as_many_values_as_keys(tmp_path: Path) -> None:
    """Its fused form does not look at that, and reads what is not there."""
    path = tmp_path / "attention_of_mine.py"
    path.write_text(
        "import torch.nn.functional as F\nimport torch\n\n\ndef mine(q, k, v):\n"
        "    return F.scaled_dot_product_attention(q, k, v)\n\n\ndef get_inputs():\n"
        "    return [torch.randn(2, 3, n, 8) for n in (12, 9, 9)]\n"
    )
    q, k, v = load_op(str(path)).signature.inputs
    assert k.shape[2] == v.shape[2] != q.shape[2]
    assert q.shape[3] == k.shape[3]


# ---- inputs that the file makes itself, and numbers that its constructor fixes


def test_only_what_the_file_makes_itself_is_drawn_by_the_file() -> None:
    """The others keep their sizes, distributions and adversaries."""
    text = function("return torch.nn.functional.cross_entropy(x, y)", "torch.randn(64, 30)", "_t()")
    found = traced(
        text + "\ndef _t():\n    made = torch.randint(0, 30, (64,))\n    made[::7] = -100\n"
        "    return made\n"
    )
    assert [(one.name, one.shape, one.draws) for one in found.inputs] == [
        ("x", ("x_0", "x_1"), ""),
        ("y", ("x_0",), "own"),
    ]
    assert found.adversaries == ("peaks(x, 1)",)
    assert any("y is as the file makes it" in note for note in found.notes)


@pytest.mark.parametrize(
    "made",
    ["torch.randn(48).clamp(min=0)", "torch.rand(48).sort().values", "torch.randn(48) * 0.1"],
)
def test_what_the_file_makes_follows_the_sizes_of_others(made: str) -> None:
    found = traced(function("return x * y[:, None]", "torch.randn(48, 17)", made))
    assert found.inputs[1].draws == "own"
    assert dict(found.axes) == {"x_0": 48, "x_1": 17}
    assert len(found.workloads["ci"]) == 3


def test_what_the_file_makes_of_a_list_keeps_its_length() -> None:
    text = function("return x[y]", "torch.randn(100, 8)", "torch.tensor([0, 10, 40])")
    found = traced(text)
    assert [one.shape for one in found.inputs][1] == (3,)


def test_a_number_is_drawn_like_any_other_tensor() -> None:
    found = traced(
        function("return (x * y.exp()).softmax(-1)", "torch.randn(9, 40)", "torch.tensor(2.6)")
    )
    assert [one.draws for one in found.inputs] == ["", ""]
    assert "steep(x, y)" in found.adversaries


def test_channels_of_a_depthwise_convolution_stay_what_they_are() -> None:
    found = traced(
        module(
            "self.conv = torch.nn.Conv1d(24, 24, 4, groups=24)",
            "return self.conv(x)",
            "torch.randn(3, 24, 50)",
        )
    )
    assert {dims["conv_weight_0"] for several in found.workloads.values() for dims in several} == {
        24
    }
    assert "conv_weight_0 == 24" in found.requires


@pytest.mark.parametrize("comparison", ["d < 32", "d <= 31", "(d >= 0) & (d < 32)", "d % 32 == 0"])
def test_sizes_lie_on_either_side_of_what_places_are_compared_with(comparison: str) -> None:
    text = function(
        f"i = torch.arange(x.shape[1])\nd = i[:, None] - i\nreturn x @ ({comparison}).float()",
        "torch.randn(8, 256)",
    )
    lengths = [dims["x_1"] for dims in traced(text).workloads["ci"]]
    assert min(lengths) < 31 and any(31 < length < 64 for length in lengths)


def test_random_numbers_that_an_answer_does_not_depend_on_do_not_matter() -> None:
    replaced = "layer = torch.nn.Linear(8, 4, bias=False)\nlayer.weight = torch.nn.Parameter(y)\n"
    text = function(f"{replaced}return layer(x)", "torch.randn(9, 8)", "torch.randn(4, 8)")
    assert [one.name for one in traced(text).inputs] == ["x", "y"]
    biased = replaced.replace(", bias=False", "")
    said = refusal(function(f"{biased}return layer(x)", "torch.randn(9, 8)", "torch.randn(4, 8)"))
    assert said.startswith("2: draws random numbers")


def test_an_embedding_bag_reads_what_it_looks_up() -> None:
    found = traced(
        module(
            'self.bag = torch.nn.EmbeddingBag(500, 64, mode="mean")',
            "return self.bag(x)",
            "torch.randint(0, 500, (12, 7))",
        )
    )
    dims = {"x_0": 12, "x_1": 7, "bag_weight_0": 500, "bag_weight_1": 64}
    assert Expression(found.flops)(dims) == 12 * 7 * 64
    assert Expression(found.reads["bag_weight"])(dims) == 12 * 7 * 64
