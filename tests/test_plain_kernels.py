"""Kernels written from the graph of a PyTorch file do what it does, in every language."""

from __future__ import annotations

import ast
import ctypes
import itertools
import math
import subprocess
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from portkern.cells.selection import default_target, load_op
from portkern.cli import main
from portkern.errors import ConfigError
from portkern.evaluator import from_torch
from portkern.records.record import RecordFile, Verdict
from portkern.sandbox.session import TEXT_LENGTH
from portkern.spec import catalogue, registry
from portkern.testing import evaluate

pytestmark = pytest.mark.usefixtures("servers_ahead")

#: A body of a function, and the shapes that it is traced at.
OPERATORS = {
    "pointwise": (
        "return torch.where(a > 0, a.sigmoid() * b, torch.tanh(a)) - a.abs().clamp(max=2) ** 3",
        "torch.randn(30, 17), torch.randn(17)",
    ),
    "activations": (
        "return (F.gelu(a) + F.silu(a) + F.elu(a) + F.mish(a) + F.softplus(a) + F.hardswish(a) "
        "+ F.leaky_relu(a, 0.1) + F.gelu(a, approximate='tanh') + F.hardtanh(a) + F.selu(a))",
        "torch.randn(40, 33)",
    ),
    "truths": (
        "t, u = a > 0.5, i > 3\n"
        "return torch.where(~t, a, b), (t + u) * ~u, torch.stack([~u, u ^ t, u & ~t, u | t])",
        "torch.randn(20, 9), torch.randn(20, 9), torch.randint(0, 7, (20, 9))",
    ),
    "integers": (
        "return torch.stack([~i, -i, i.abs(), i % -3, torch.fmod(i, 4), i << 2, i >> 1, i ^ 5, "
        "torch.sign(i), torch.maximum(i, -i), (i - 3).clamp(min=1)]), a.abs() % 0.75",
        "torch.randn(15, 8), torch.randint(-9, 9, (15, 8))",
    ),
    "views": (
        "c = torch.cat([a[:, 1:], b.transpose(0, 1)], dim=0).flip(1)\n"
        "return F.pad(c, (1, 2, 0, 1), value=0.5).unsqueeze(1).expand(-1, 3, -1).reshape(-1)",
        "torch.randn(12, 9), torch.randn(8, 5)",
    ),
    "reductions": (
        "return a.sum(1), a.mean((0, 2)), a.amax(-1), a.var(1), a.logsumexp(2), a.prod(0)",
        "torch.randn(6, 20, 11)",
    ),
    "places": (
        "return a.argmax(1), a.min(0).values, a.max(1).indices, (a > 0).any(1)",
        "torch.randn(19, 23)",
    ),
    "scans": ("return a.cumsum(1) + b.cumprod(1)", "torch.randn(9, 40), torch.rand(9, 40)"),
    "softmaxes": ("return a.softmax(-1) + a.log_softmax(0)", "torch.randn(14, 21)"),
    "products": (
        "return torch.bmm(a, b) @ c.transpose(0, 1)",
        "torch.randn(3, 10, 12), torch.randn(3, 12, 9), torch.randn(15, 9)",
    ),
    "attention": (
        "return F.scaled_dot_product_attention(a, b, c, is_causal=True)",
        "torch.randn(2, 3, 10, 8), torch.randn(2, 3, 10, 8), torch.randn(2, 3, 10, 8)",
    ),
    "values_of_another_width": (
        "return F.scaled_dot_product_attention(a, b, c)",
        "torch.randn(2, 3, 10, 8), torch.randn(2, 3, 9, 8), torch.randn(2, 3, 9, 5)",
    ),
    "strides": (
        "return a.as_strided((a.shape[0] - 3, 4), (1, 1)).sum(1), "
        "F.adaptive_avg_pool1d(b.transpose(1, 2), 1).flatten(1)",
        "torch.randn(40), torch.randn(4, 9, 6)",
    ),
    "tables": (
        "return F.embedding(i, a), a.index_select(0, i), a[i, :3]",
        "torch.randn(31, 7), torch.randint(0, 31, (12,))",
    ),
    "losses": (
        "return F.cross_entropy(a, i), F.smooth_l1_loss(a, b), F.mse_loss(a, b)",
        "torch.randn(24, 10), torch.randn(24, 10), torch.randint(0, 10, (24,))",
    ),
}
#: What the constructor makes, and what is called with ``x``.
MODULES = {
    "linear": ("nn.Linear(20, 12)", "torch.randn(9, 20)"),
    "conv1d": ("nn.Conv1d(6, 8, 3, stride=2, padding=1, dilation=2)", "torch.randn(2, 6, 25)"),
    "conv2d_groups": ("nn.Conv2d(6, 12, (3, 2), groups=3, padding=1)", "torch.randn(2, 6, 9, 10)"),
    "conv_transpose2d": (
        "nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2)",
        "torch.randn(2, 4, 6, 7)",
    ),
    "conv3d": ("nn.Conv3d(3, 5, 3)", "torch.randn(1, 3, 6, 7, 8)"),
    "max_pool": ("nn.MaxPool2d(3, stride=2, padding=1)", "torch.randn(2, 3, 12, 13)"),
    "avg_pool": (
        "nn.AvgPool2d(3, stride=2, padding=1, count_include_pad=False)",
        "torch.randn(2, 3, 12, 13)",
    ),
    "batch_norm": ("nn.BatchNorm2d(5)", "torch.randn(4, 5, 6, 7)"),
    "group_norm": ("nn.GroupNorm(2, 6)", "torch.randn(3, 6, 8, 9)"),
    "instance_norm": ("nn.InstanceNorm2d(4)", "torch.randn(2, 4, 7, 8)"),
    "upsample": ("nn.Upsample(scale_factor=2, mode='nearest')", "torch.randn(1, 2, 5, 6)"),
}
#: What follows numbers at the top of the file, which the constructor takes: a forward of ``x`` and
#: what the constructor makes.
NUMBERS = {
    "heads": (
        "hidden, heads = 24, 4",
        "self.qkv = nn.Linear(hidden, 3 * hidden)",
        "b, t, _ = x.shape\n"
        "parts = self.qkv(x).split(hidden, dim=2)\n"
        "q, k, v = (p.view(b, t, heads, hidden // heads).transpose(1, 2) for p in parts)\n"
        "scores = q @ k.transpose(-2, -1) * (1.0 / (hidden // heads) ** 0.5)\n"
        "return (scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, hidden)",
        "torch.randn(2, 10, hidden)",
    ),
    "halves": (
        "features = 18",
        "self.norm = nn.LayerNorm(features)",
        "x = self.norm(x)\n"
        "half = features // 2\n"
        "return x[:, :half] * x[:, half:].sigmoid() + torch.arange(half), x[:, features - 1]",
        "torch.randn(7, features)",
    ),
    "windows": (
        "length = 40",
        "self.weight = nn.Parameter(torch.randn(length))",
        "x = x.view(x.shape[0], -1, length) * self.weight\n"
        "return F.max_pool1d(x, 3, stride=2), x.sum(-1) / length + F.pad(x, (1, length))[..., 0]",
        "torch.randn(3, 4, length)",
    ),
    "written_over": (
        "batch, width = 5, 12",
        "self.kept, self.mix = torch.randn(batch, width), nn.Linear(2 * width, width)",
        "self.kept.copy_(x * 2)\n"
        "self.kept = torch.tanh(self.mix(torch.cat((x, self.kept), dim=1)))\n"
        "return self.kept * 2",
        "torch.randn(batch, width)",
    ),
    "made_zero": (
        "width = 12",
        "self.total = torch.zeros(width)",
        "self.total.zero_()\nself.total += x.sum(0)\nreturn x + self.total",
        "torch.randn(6, width)",
    ),
    "norm": (
        "channels = 6",
        "self.conv = nn.Conv2d(channels, 2 * channels, 3)\n"
        "        self.norm = nn.InstanceNorm2d(2 * channels, affine=True)",
        "return self.norm(self.conv(x))",
        "torch.randn(2, channels, 7, 8)",
    ),
}

#: Recurrent layers, likewise; the constructor takes no number of steps.
RECURRENT = {
    "two_ways": (
        "width, hidden, kinds = 12, 10, 7",
        "self.gru = nn.GRU(width, hidden, 2, bidirectional=True, batch_first=True)\n"
        "        self.out = nn.Linear(2 * hidden, kinds)",
        "out, last = self.gru(x)\nreturn self.out(out[:, -1]), last",
        "torch.randn(5, 21, width)",
    ),
    "states": (
        "width, hidden = 12, 10",
        "self.lstm = nn.LSTM(width, hidden, 2)",
        "h = x.mean(0)[None, :, :hidden].expand(2, -1, -1)\n"
        "out, (h, c) = self.lstm(x, (h, 1 - h))\nreturn out, h, c",
        "torch.randn(21, 5, width)",
    ),
    "no_bias": (
        "width, hidden = 12, 10",
        "self.rnn = nn.RNN(width, hidden, nonlinearity='relu', bias=False)",
        "return self.rnn(x)[0].mean(0)",
        "torch.randn(21, 5, width)",
    ),
    "cells": (
        "width, hidden = 12, 10",
        "self.first, self.second = nn.GRUCell(width, hidden), nn.LSTMCell(width, hidden)",
        "h = self.first(x, x[:, :hidden])\nreturn self.second(x, (h, -h))",
        "torch.randn(5, width)",
    ),
}


def numbered(numbers: str, made: str, body: str, example: str, folder: Path) -> Path:
    path = folder / "numbers_of_mine.py"
    path.write_text(
        "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n\n"
        f"{numbers}\n\n\nclass Model(nn.Module):\n"
        f"    def __init__(self):\n        super().__init__()\n        {made}\n\n"
        f"    def forward(self, x):\n{textwrap.indent(body, '        ')}\n\n\n"
        f"def get_inputs():\n    return [{example}]\n\n\ndef get_init_inputs():\n    return []\n"
    )
    return path


def with_scalars(body: str, values: str, folder: Path) -> Path:
    """Writes a function of ``x`` and of what ``values`` name, such as ``s=0.5, k=3``."""
    names = [one.partition("=") for one in values.split(", ")]
    path = folder / "scalars_of_mine.py"
    path.write_text(
        "import torch\nimport torch.nn.functional as F\n\n\n"
        f"def mine(x, {', '.join(name for name, _, _ in names)}):\n    return {body}\n\n\n"
        "def get_inputs():\n"
        f"    return [torch.randn(6, 9), {', '.join(value for _, _, value in names)}]\n"
    )
    return path


def function(body: str, example: str, folder: Path) -> Path:
    arguments = ", ".join(
        "abci"[n] if "randint" not in part else "i" for n, part in _parts(example)
    )
    path = folder / "file_of_mine.py"
    path.write_text(
        "import torch\nimport torch.nn.functional as F\n\n\n"
        f"def mine({arguments}):\n{textwrap.indent(body, '    ')}\n\n\n"
        f"def get_inputs():\n    return [{example}]\n"
    )
    return path


def _parts(example: str) -> list[tuple[int, str]]:
    return list(enumerate(part for part in example.split("torch.") if part))


def module(made: str, example: str, folder: Path) -> Path:
    path = folder / "module_of_mine.py"
    path.write_text(
        "import torch\nfrom torch import nn\n\n\nclass Model(nn.Module):\n"
        f"    def __init__(self):\n        super().__init__()\n        self.inner = {made}\n\n"
        "    def forward(self, x):\n        return self.inner(x)\n\n\n"
        f"def get_inputs():\n    return [{example}]\n\n\ndef get_init_inputs():\n    return []\n"
    )
    return path


def bad(
    path: Path,
    backend_name: str,
    target: str = "",
    sets: Sequence[str] = ("ci",),
    calls: Sequence[Mapping[str, float]] = ({},),
) -> list[str]:
    """The faults of the plain kernel; empty where it passes. ``calls`` has the numbers that it is
    called with, where they are not its defaults."""
    from portkern.spec import target as targets

    op, backend = load_op(str(path)), registry.load(backend_name)
    suffix = {"cpu": ".cpp", "cuda": ".cu", "hip": ".hip"}.get(backend_name, f".{backend_name}.py")
    kernel = path.with_name(f"{op.name}{suffix}")
    kernel.write_text(from_torch.plain_kernel(str(path), backend_name))
    results = evaluate(
        catalogue.from_file(kernel, op=op.name, backend=backend),
        op,
        backend,
        targets.load(target) if target else default_target(backend),
        [
            replace(workload, scalars=scalars)
            for which in sets
            for workload in op.workloads[which]
            for scalars in calls
        ],
        dtype="float32",
        folder=path.parent / "builds",
    )
    assert isinstance(results, list), results
    assert results
    return [f"{r.verdict}: {r.detail}" for r in results if r.verdict is not Verdict.PASSED]


def _sets(name: str) -> tuple[str, ...]:
    """Lengths of 0 and 1 take long and say little of most."""
    return ("ci", "edge") if name in ("reductions", "views", "places", "max_pool") else ("ci",)


@pytest.mark.full
@pytest.mark.parametrize("name", OPERATORS)
def test_functions_in_cpp(name: str, tmp_path: Path) -> None:
    assert bad(function(*OPERATORS[name], tmp_path), "cpu", sets=_sets(name)) == []


@pytest.mark.full
@pytest.mark.parametrize("name", MODULES)
def test_modules_in_cpp(name: str, tmp_path: Path) -> None:
    assert bad(module(*MODULES[name], tmp_path), "cpu", sets=_sets(name)) == []


def test_lengths_divide_as_the_graph_does_whatever_the_sign(tmp_path: Path) -> None:
    """C rounds to zero: of a dilated convolution whose length is that of its window, to one too
    many."""
    from portkern.worker.lowering import lengths

    texts = [
        "(n - 4*k) // 3 + 2",
        "(n - k) % 5",
        "max(n - k, 0) // 2",
        "(n*k + 7) // 4",
        "n // 2 - k",
    ]
    body = "".join(
        f"long f{i}(long n, long k) {{ return {lengths._c(ast.parse(text, mode='eval').body)}; }}\n"
        for i, text in enumerate(texts)
    )
    (tmp_path / "lengths.c").write_text(body)
    library = tmp_path / "lengths.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, tmp_path / "lengths.c"], check=True)
    loaded = ctypes.CDLL(str(library))
    for i, text in enumerate(texts):
        for n, k in itertools.product(range(25), range(9)):
            assert loaded[f"f{i}"](n, k) == eval(text, {"n": n, "k": k, "max": max}), (text, n, k)


def test_what_follows_numbers_is_an_expression_over_them() -> None:
    from portkern.worker.lowering.following import Numbers
    from portkern.worker.tracing import symbols

    n, m = symbols.file_number("n"), symbols.file_number("m")
    points = [{"n": a, "m": b} for a, b in ((24, 10), (28, 13), (4, 5), (40, 21), (12, 3))]
    numbers = Numbers({"n": n, "m": m}, points)

    def followed(value: Callable[[int, int], float]) -> object:
        return numbers.followed([value(point["n"], point["m"]) for point in points])

    assert followed(lambda a, b: 3 * a - 2) == 3 * n - 2
    assert followed(lambda a, b: a // 4) == n / 4
    assert followed(lambda a, b: 2 * a * b) == 2 * n * m
    assert str(followed(lambda a, b: (b - 3) // 2 + 1)) == "((m - 1)//2)"
    for power, at_64 in ((-0.5, 0.25), (-0.25, 0.5), (0.25, 2)):
        scale = followed(lambda a, b, power=power: (a / 4) ** power)  # type: ignore[misc]
        assert scale is not None
        assert float(scale.subs(n, 64)) == pytest.approx(at_64)  # type: ignore[attr-defined]
    for neither in (lambda a, b: a + b, lambda a, b: a % 7, lambda a, b: math.exp(a)):
        assert followed(neither) is None


@pytest.mark.full
@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_that_a_constructor_takes_are_lengths(name: str, tmp_path: Path) -> None:
    path = numbered(*NUMBERS[name], tmp_path)
    assert bad(path, "cpu", sets=("ci", "edge", "typical", "heldout")) == []
    assert "constants:" in path.with_suffix(".op.yaml").read_text()


@pytest.mark.full
@pytest.mark.parametrize("target", ["cuda sm_90", "hip gfx942"])
def test_numbers_that_a_constructor_takes_on_a_gpu(target: str, tmp_path: Path) -> None:
    backend, where = target.split()
    assert bad(numbered(*NUMBERS["heads"], tmp_path), backend, where) == []


@pytest.mark.full
@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_networks_in_cpp(name: str, tmp_path: Path) -> None:
    assert bad(numbered(*RECURRENT[name], tmp_path), "cpu") == []


@pytest.mark.full
def test_recurrent_networks_on_a_gpu_in_the_emulator(tmp_path: Path) -> None:
    assert bad(numbered(*RECURRENT["no_bias"], tmp_path), "hip", "gfx942") == []


@pytest.mark.full
def test_a_number_of_layers_is_not_a_length(tmp_path: Path) -> None:
    """A state is as long as there are layers; with more of them there are more parameters."""
    made = "self.lstm = nn.LSTM(width, 8, layers)"
    forward = "h = x[:layers, :, :8]\nreturn self.lstm(x, (h, h))[0]"
    path = numbered("width, layers = 12, 3", made, forward, "torch.randn(9, 5, width)", tmp_path)
    assert "layers" not in load_op(str(path)).signature.axes
    assert "tanh" in from_torch.plain_kernel(str(path), "cpu")


#: An expression of numbers among the arguments: what a kernel reads, and what it cannot.
SCALARS = "F.leaky_relu(x, s) * k - x / s + x ** k + s * s + F.layer_norm(x, x.shape[1:], eps=s)"


@pytest.mark.full
@pytest.mark.parametrize("target", ["cpu x86_64", "cuda sm_90", "hip gfx942"])
def test_a_kernel_reads_the_numbers_that_it_is_called_with(target: str, tmp_path: Path) -> None:
    path = with_scalars(f"({SCALARS}).clamp(min=low)", "s=0.7, k=3, low=-0.4", tmp_path)
    other = {"s": 0.9, "k": 2, "low": -2.5}
    backend, where = target.split()
    assert bad(path, backend, where, calls=[{}, other]) == []
    assert {scalar.name for scalar in load_op(str(path)).signature.scalars} == {*other}


@pytest.mark.parametrize(
    ("body", "values", "said"),
    [
        ("x * 2 if flag else x + 1", "flag=True", r"mul.* where flag is True, and .*add"),
        pytest.param(
            "x * 2.0 ** s",
            "s=0.5",
            r"with 1\.41\d* where s is 0\.5, and 1\.5",
            marks=pytest.mark.full,
        ),
        pytest.param("x[:, :k].sum(1)", "k=3", "sum|slice", marks=pytest.mark.full),
    ],
)
def test_what_a_number_decides_is_refused(
    body: str, values: str, said: str, tmp_path: Path
) -> None:
    path = with_scalars(body, values, tmp_path)
    with pytest.raises(ConfigError, match=said):
        from_torch.plain_kernel(str(path), "cpu")


def test_a_view_that_begins_elsewhere_than_its_tensor_is_refused(tmp_path: Path) -> None:
    body = "b = a[1:]\nreturn b.as_strided((b.shape[0],), (1,), {}) * 2"
    assert from_torch.plain_kernel(
        str(function(body.format(1), "torch.randn(40)", tmp_path)), "cpu"
    )
    with pytest.raises(ConfigError, match="as_strided"):
        from_torch.plain_kernel(str(function(body.format(0), "torch.randn(40)", tmp_path)), "cpu")


@pytest.mark.full
@pytest.mark.parametrize("body", ["x * self.w if n > 8 else x + self.w", "x + sum(self.w[:n])"])
def test_another_graph_at_another_number_is_refused(body: str, tmp_path: Path) -> None:
    made = "self.w = nn.Parameter(torch.randn(n))"
    forward = f"x = x.view(-1, n)\nreturn {body}"
    path = numbered("n = 18", made, forward, "torch.randn(7, 4, n)", tmp_path)
    with pytest.raises(ConfigError, match=r"where n is 18, and .* where n is \d"):
        from_torch.plain_kernel(str(path), "cpu")


@pytest.mark.full
@pytest.mark.parametrize(
    "name", ["attention", "conv2d_groups", "reductions", "group_norm", "tables", "truths"]
)
@pytest.mark.parametrize("target", ["cuda sm_90", "hip gfx942"])
def test_on_a_gpu_in_the_emulator(target: str, name: str, tmp_path: Path) -> None:
    backend, where = target.split()
    write, given = (function, OPERATORS) if name in OPERATORS else (module, MODULES)
    assert bad(write(*given[name], tmp_path), backend, where) == []


#: A kernel of each way that kernels of blocks are written in, by backend.
IN_PYTHON = [
    ("opencl", "reductions"),
    ("opencl", "max_pool"),
    ("triton", "reductions"),
    ("triton", "conv2d_groups"),
    ("triton", "places"),
    ("pallas", "linear"),
    *(
        (backend, name)
        for backend in ("opencl", "triton", "pallas")
        for name in ("truths", "integers")
    ),
]


@pytest.mark.full
@pytest.mark.parametrize(("backend", "name"), IN_PYTHON)
def test_in_languages_within_python(backend: str, name: str, tmp_path: Path) -> None:
    write, given = (function, OPERATORS) if name in OPERATORS else (module, MODULES)
    assert bad(write(*given[name], tmp_path), backend) == []


@pytest.mark.full
def test_a_run_without_models_begins_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = function("return a * 2 + 1", "torch.randn(6, 5)", tmp_path)
    code = main.run(
        [
            "generate",
            f"op={path}",
            "target=x86_64",
            "workloads=[ci]",
            "final=[]",
            "budget.attempts=1",
            "rounds=1",
            "budget_s=0",
            f"reports={tmp_path / 'reports'}",
            "run=mine",
            "track=false",
        ]
    )
    assert code == 0, capsys.readouterr()
    assert "settings of the plain kernel" in capsys.readouterr().out
    records, _ = RecordFile(tmp_path / "reports" / "mine" / "records.jsonl").read()
    assert records and all(record.verdict is Verdict.PASSED for record in records)


@pytest.mark.full
def test_it_is_written_beside_the_file_and_over_nothing(tmp_path: Path) -> None:
    path = function("return a - a.mean(1, keepdim=True)", "torch.randn(6, 5)", tmp_path)
    assert main.run(["op", str(path), "kernel=hip"]) == 0
    written = tmp_path / "mine.hip"
    assert "__global__" in written.read_text()
    written.write_text("mine")
    assert main.run(["op", str(path), "kernel=hip"]) == 2
    assert written.read_text() == "mine"
    assert main.run(["op", str(path), "kernel=cuda", f"out={tmp_path / 'b.cu'}"]) == 0
    assert main.run(["op", str(path), "kernel=triton"]) == 0
    assert "tl.store" in (tmp_path / "mine.triton.py").read_text()
    assert main.run(["op", str(path), "kernel=fortran"]) == 2


@pytest.mark.full
def test_what_a_softmax_takes_its_largest_of_is_computed_once(tmp_path: Path) -> None:
    """Two roundings of one product, of which a compiler may fuse one, are apart by more than exp
    takes where they are large."""
    path = function("return (a * 0.3).softmax(-1)", "torch.randn(6, 8)", tmp_path)
    assert from_torch.plain_kernel(str(path), "cpu").count("0.3f") == 1


@pytest.mark.full
def test_a_kernel_that_is_longer_than_a_text_of_a_reply_is_whole(tmp_path: Path) -> None:
    body = "for _ in range(40):\n    a = a.softmax(-1)\nreturn a"
    source = from_torch.plain_kernel(str(function(body, "torch.randn(6, 8)", tmp_path)), "cpu")
    assert len(source) > TEXT_LENGTH
    assert source.count("{") == source.count("}")


@pytest.mark.full
@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return a.sort(1).values", "sort"),
        ("return torch.fft.rfft(a).abs()", "complex"),
    ],
)
def test_what_has_no_plain_form_is_named(body: str, said: str, tmp_path: Path) -> None:
    path = function(body, "torch.randn(6, 8)", tmp_path)
    with pytest.raises(ConfigError, match=said):
        from_torch.plain_kernel(str(path), "cpu")
