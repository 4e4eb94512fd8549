"""A library's operators in a user's model: what is replaced is equal, all else is as it was."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations

import portkern
from portkern import ops
from portkern.cells import shapes
from portkern.cells.selection import Selection
from portkern.deploy.operators import Operator
from portkern.deploy.package import _apply, _functions, _modules, _report
from portkern.errors import ConfigError

SPACE = "pk_apply_test"
LIBRARY: Any = torch.library.Library
#: How often each operator was called.
CALLED: dict[str, int] = {}


def _implemented(name: str) -> Callable[..., Any]:
    op = ops.load(name)
    scalars = op.signature.scalar_values({})

    def run(*given: Any) -> Any:
        CALLED[name] = CALLED.get(name, 0) + 1
        left = [*scalars][len(given) - len(op.signature.inputs) :]  # torch leaves defaults out
        return op.reference(*given, **{one: scalars[one] for one in left})

    return run


@pytest.fixture(scope="module", autouse=True)
def operators() -> Iterator[None]:
    """A library of the catalogue's references: what they compute is right, and what they take."""
    made = LIBRARY(SPACE, "DEF")
    for number, name in enumerate(ops.names()):
        made.define(Operator.of(ops.load(name), number, SPACE).schema)
        made.impl(name, _implemented(name), "CompositeImplicitAutograd")
    yield
    made._destroy()


@pytest.fixture(autouse=True)
def _counted() -> None:
    CALLED.clear()
    torch.manual_seed(0)


def applied(model: nn.Module, *given: Any, every: bool = True, **options: Any) -> _report.Report:
    known = options.pop("operators", sorted(ops.CORE))
    return _apply.apply(model, given, library=SPACE, operators=known, every=every, **options)


class Norm(nn.Module):
    """A norm as models write it."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(size) + 0.5)
        self.eps = 1e-6

    def forward(self, x: torch.Tensor) -> Any:
        kind = x.dtype
        x = x.to(torch.float32)
        power = x.pow(2).mean(-1, keepdim=True)
        x = x * torch.rsqrt(power + self.eps)
        return self.weight * x.to(kind)


class OtherNorm(Norm):
    def forward(self, x: torch.Tensor) -> Any:
        return x / torch.sqrt(torch.mean(x * x, dim=-1, keepdim=True) + self.eps) * self.weight


class OneMoreNorm(Norm):
    """A norm in which a weight of 0 means 1: not the operator."""

    def forward(self, x: torch.Tensor) -> Any:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * (1 + self.weight)


class Gated(nn.Module):
    def __init__(self, size: int, activation: nn.Module | None = None) -> None:
        super().__init__()
        self.gate = nn.Linear(size, 2 * size, bias=False)
        self.up = nn.Linear(size, 2 * size, bias=False)
        self.down = nn.Linear(2 * size, size, bias=False)
        self.act = activation or nn.SiLU()

    def forward(self, x: torch.Tensor) -> Any:
        return self.down(self.act(self.gate(x)) * self.up(x))


class Heads(nn.Module):
    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads, self.drop = heads, 0.0
        self.qkv, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> Any:
        batch, length, size = x.shape
        split = self.qkv(x).view(batch, length, 3, self.heads, size // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4).unbind(0)
        if mask is None:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        y = F.dropout(y, self.drop if self.training else 0.0)
        return self.out(y.transpose(1, 2).reshape(batch, length, size))


class Block(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.first, self.second = Norm(size), nn.LayerNorm(size)
        self.heads, self.gated = Heads(size, 4), Gated(size)

    def forward(self, x: torch.Tensor) -> Any:
        x = x + self.heads(self.first(x))
        return x + self.gated(self.second(x))


def transformer() -> Any:
    return nn.Sequential(nn.Embedding(50, 32), Block(32), Block(32), OtherNorm(32)).eval()


TOKENS = torch.arange(24).reshape(2, 12)


def test_what_is_equal_is_replaced_and_one_call_takes_it_back() -> None:
    model: Any = transformer()
    before = model(TOKENS)
    keys = list(model.state_dict())
    report = applied(model, TOKENS)
    found = {one.names[0]: one.operator for one in report.replaced}
    assert found == {
        "0": "embedding",
        "1.first": "rmsnorm",
        "1.second": "layernorm",
        "1.heads": "attention",
        "1.gated": "silu_mul",
        "2.first": "rmsnorm",
        "2.second": "layernorm",
        "2.heads": "attention",
        "2.gated": "silu_mul",
        "3": "rmsnorm",
    }
    kept = {one.names[0]: one.reason for one in report.kept}
    assert kept["1.heads.qkv"] == "the library has no linear_bias"
    assert kept["1"] == "nothing in its forward is one of the operators"
    CALLED.clear()
    torch.testing.assert_close(model(TOKENS), before)
    assert CALLED == {"embedding": 1, "rmsnorm": 3, "layernorm": 2, "attention": 2, "silu_mul": 2}
    assert list(model.state_dict()) == keys
    assert isinstance(model[1].second, nn.LayerNorm)
    assert report.model and 0 <= report.model.difference <= report.model.tolerance
    assert {"replaced", "kept", "model"} < {*report.document()} and "rmsnorm" in str(report)
    report.undo()
    CALLED.clear()
    assert torch.equal(model(TOKENS), before) and not CALLED
    assert type(model[1].second) is nn.LayerNorm


class Projected(nn.Module):
    """A layer's weight and bias, called by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(6, 8))
        self.bias = nn.Parameter(torch.rand(6))

    def forward(self, x: torch.Tensor) -> Any:
        return F.linear(x, self.weight, self.bias) + F.linear(x, self.weight)


def test_linear_layers_are_replaced_with_their_bias_or_without() -> None:
    model: Any = nn.Sequential(nn.Linear(16, 8), Projected(), nn.Linear(6, 4, bias=False))
    x = torch.randn(2, 3, 16)
    before = model(x)
    report = applied(model, x, operators=["linear", "linear_bias"])
    taken = [(one.names[0], one.operator) for one in report.replaced]
    assert sorted(taken) == [
        ("0", "linear_bias"),
        ("1", "linear"),
        ("1", "linear_bias"),
        ("2", "linear"),
    ]
    CALLED.clear()
    torch.testing.assert_close(model(x), before)
    torch.testing.assert_close(model(x[0, 0]), before[0, 0])
    assert CALLED["linear"] == 4 and CALLED["linear_bias"] >= 3
    model[0].bias, model[2].bias = None, nn.Parameter(torch.ones(4))
    after = model(x)
    report.undo()
    torch.testing.assert_close(after, model(x))
    assert not torch.allclose(after, before)


@pytest.mark.full
def test_copies_files_and_new_weights_are_those_of_the_model() -> None:
    model: Any = transformer()
    applied(model, TOKENS)
    twin = copy.deepcopy(model)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    _modules._classes.clear()  # as another process would have none
    read = torch.load(file, weights_only=False)
    with torch.no_grad():
        model[1].first.weight.mul_(2)
        model[1].second.weight = nn.Parameter(torch.rand(32))
    for other in (twin, read):
        CALLED.clear()
        before = other(TOKENS)
        assert CALLED["rmsnorm"] == 3 and CALLED["silu_mul"] == 2
        assert not torch.allclose(before, model(TOKENS))
        other.load_state_dict(model.state_dict())
        assert torch.equal(other(TOKENS), model(TOKENS))
        assert _modules.undo(other) == 10
        torch.testing.assert_close(other(TOKENS), model(TOKENS))


# ---- Models that are not as one would wish


def _shared() -> Any:
    one = nn.LayerNorm(16)
    return nn.Sequential(one, nn.Linear(16, 16), one)


def _tied() -> Any:
    model: Any = nn.Sequential(
        nn.Embedding(30, 16), nn.LayerNorm(16), nn.Linear(16, 30, bias=False)
    )
    model[2].weight = model[0].weight
    return model


def _hooked() -> Any:
    model: Any = nn.Sequential(nn.LayerNorm(16), Gated(16))
    model[0].register_forward_pre_hook(lambda module, given: (given[0] * 2,))
    model[0].register_forward_hook(lambda module, given, made: made + 1)
    model[1].act.register_forward_hook(lambda module, given, made: made * 3)
    return model


def _parametrized() -> Any:
    model: Any = nn.Sequential(nn.LayerNorm(16), Gated(16))
    parametrizations.weight_norm(model[1].up)
    nn.utils.parametrize.register_parametrization(model[0], "weight", nn.Softplus())
    return model


class _Half(nn.LayerNorm):
    def forward(self, input: torch.Tensor) -> Any:
        return super().forward(input) / 2


class _Counting(nn.Module):
    """A module whose forward counts, remembers and keeps a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.calls = nn.LayerNorm(16), 0
        self.past: list[Any] = []
        self.total: torch.Tensor
        self.register_buffer("total", torch.zeros(16))

    def forward(self, x: torch.Tensor) -> Any:
        self.calls += 1
        self.past.append(x)
        self.total += x.sum(0)
        return self.norm(x) + self.calls + len(self.past) + self.total


class _Branch(nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        return F.softmax(x, dim=-1) if x.sum() > 0 else F.relu(x)


class _Doubled(nn.Module):
    """Which changes what the gate is of before it is multiplied."""

    def forward(self, x: torch.Tensor) -> Any:
        y = x + 1
        z = F.silu(y)
        return z * y.add_(1)


def _own_forward() -> Any:
    model: Any = nn.Sequential(nn.LayerNorm(16))
    model[0].forward = lambda x: x * 5
    return model


HOSTILE: dict[str, tuple[Callable[[], Any], torch.Tensor, dict[str, int]]] = {
    "shared": (_shared, torch.randn(3, 16), {"layernorm": 2}),
    "tied": (_tied, torch.arange(9), {"embedding": 1, "layernorm": 1}),
    "hooks": (_hooked, torch.randn(3, 16), {"layernorm": 1}),
    "parametrized": (_parametrized, torch.randn(3, 16), {}),
    "subclass": (lambda: nn.Sequential(_Half(16)), torch.randn(3, 16), {}),
    "its own forward": (_own_forward, torch.randn(3, 16), {}),
    "mutating": (_Counting, torch.randn(3, 16), {"layernorm": 1}),
    "branch": (_Branch, torch.randn(3, 16), {}),
    "in place": (_Doubled, torch.randn(3, 16), {}),
    "relu in place": (lambda: nn.Sequential(nn.ReLU(inplace=True)), torch.randn(3, 16), {}),
    "not contiguous": (
        lambda: nn.Sequential(nn.LayerNorm(16)),
        torch.randn(16, 3).t(),
        {"layernorm": 1},
    ),
    "another norm": (lambda: OneMoreNorm(16), torch.randn(3, 16), {}),
    "tanh": (lambda: nn.Sequential(nn.GELU(approximate="tanh")), torch.randn(3, 16), {}),
    "positive dim": (lambda: nn.Sequential(nn.Softmax(0)), torch.randn(3, 16), {}),
    "convolutions": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 4, 3, 2, 1), nn.MaxPool2d(2), nn.Conv2d(4, 4, 3, groups=2)
        ),
        torch.randn(2, 3, 16, 16),
        {"conv2d": 1, "maxpool2d": 1},
    ),
    "uneven padding": (
        lambda: nn.Sequential(nn.MaxPool2d(3, padding=(1, 0))),
        torch.zeros(2, 3, 3, 3),
        {},
    ),
    "the whole model": (lambda: nn.GELU(), torch.randn(3, 16), {"gelu": 1}),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_model_gives_what_it_gave(case: str) -> None:
    make, given, expected = HOSTILE[case]
    torch.manual_seed(1)
    model: Any = make().eval()
    twin = copy.deepcopy(model) if case != "its own forward" else model
    state = {name: value.clone() for name, value in model.state_dict().items()}
    kept = given.clone()
    applied(model, given)
    assert torch.equal(given, kept), "inputs are as they were"
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    for _ in range(2):
        CALLED.clear()
        torch.testing.assert_close(model(given.clone()), twin(given.clone()))
        assert CALLED == expected


@pytest.mark.full
@pytest.mark.parametrize("random", [True, False])
def test_training_gives_the_same_gradients_and_the_same_dropout(random: bool) -> None:
    model: Any = nn.Sequential(transformer(), nn.Dropout(0.5 if random else 0.0)).train()
    twin = copy.deepcopy(model)
    if random:
        model[0][1].heads.drop = twin[0][1].heads.drop = 0.5
    report = applied(model, TOKENS)
    # Random numbers fall on other elements where a result's memory is in another order.
    assert report.mode == "training" and len(report.replaced) == 10 - 2 * random
    assert not random or any("attention: the model's results" in one.reason for one in report.kept)
    results = []
    for one in (model, twin):
        torch.manual_seed(3)
        one(TOKENS).square().sum().backward()
        results.append([p.grad for p in one.parameters()])
    torch.testing.assert_close(*results, rtol=1e-3, atol=1e-3)
    model.eval(), twin.eval()
    torch.testing.assert_close(model(TOKENS), twin(TOKENS))


def test_a_call_of_another_kind_takes_the_modules_own_way() -> None:
    model: Any = Heads(32, 4).eval()
    x, mask = torch.randn(2, 5, 32), torch.zeros(5, 5)
    twin = copy.deepcopy(model)
    applied(model, x)
    for given, named in (((x, mask), {}), ((x,), {"mask": mask}), ((x,), {})):
        CALLED.clear()
        assert torch.allclose(model(*given, **named), twin(*given, **named), atol=1e-6)
        assert CALLED == ({} if len(given) + len(named) > 1 else {"attention": 1})
    with torch.autocast("cpu", torch.bfloat16):
        CALLED.clear()
        assert torch.equal(model(x), twin(x)) and not CALLED


def test_what_a_trace_took_for_granted_is_asked_at_each_call() -> None:
    model: Any
    model, x = nn.Sequential(Norm(16), Gated(16)).eval(), torch.randn(3, 16)
    applied(model, x)
    twin = copy.deepcopy(model)
    _modules.undo(twin)
    for change in (
        lambda m: setattr(m[0], "eps", 0.5),
        lambda m: setattr(m[1], "act", nn.ReLU()),
        lambda m: m[1].up.register_forward_hook(lambda module, given, made: made + 1),
    ):
        change(model), change(twin)
        torch.testing.assert_close(model(x), twin(x))
    half = model.half(), twin.half()
    torch.testing.assert_close(half[0](x.half()), half[1](x.half()), rtol=1e-2, atol=1e-2)


def test_an_operator_that_errs_or_does_not_pay_is_not_taken() -> None:
    made = LIBRARY("pk_apply_odd", "DEF")
    made.define("relu(Tensor x) -> Tensor")
    made.define("softmax(Tensor x) -> Tensor")
    made.impl("relu", lambda x: F.relu(x) * 1.001, "CompositeImplicitAutograd")
    made.impl(
        "softmax", lambda x: sum(x.softmax(-1) for _ in range(9)) / 9, "CompositeImplicitAutograd"
    )
    model: Any
    model, x = nn.Sequential(nn.ReLU(), nn.Softmax(-1), nn.GELU()), torch.randn(3, 16)
    said: dict[str, Any] = {"library": "pk_apply_odd", "operators": ["relu", "softmax"]}
    report = _apply.apply(model, x, **said)
    reasons = {one.names[0]: one.reason for one in report.kept}
    assert "the operator errs by" in reasons["0"]
    assert "softmax does not pay" in reasons["1"]
    assert reasons["2"] == "the library has no gelu"
    assert not report.replaced and type(model[1]) is nn.Softmax
    made._destroy()


@pytest.mark.full
def test_a_compiled_model_has_its_own_forwards_and_one_graph() -> None:
    graphs: list[Any] = []

    def backend(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return graph

    model: Any = transformer()
    before = model(TOKENS)
    report = applied(model, TOKENS)
    CALLED.clear()
    fast: Any = torch.compile(model, fullgraph=True, backend=backend)
    torch.testing.assert_close(fast(TOKENS), before)
    assert len(graphs) == 1 and SPACE not in str(graphs[0].graph)
    report.undo()
    with pytest.raises(ValueError, match=r"apply the library before"):
        applied(fast, TOKENS)


# ---- The sizes of a model


def test_a_model_s_sizes_become_cells(tmp_path: Path) -> None:
    model, path = transformer(), tmp_path / "shapes.jsonl"
    found: Any = portkern.apply(model, TOKENS, record=path)
    assert {(one.op, *one.dims.values(), one.calls) for one in found} == {
        ("rmsnorm", 24, 32, 3),
        ("layernorm", 24, 32, 2),
        ("attention", 2, 4, 12, 8, 2),
        ("silu_mul", 1536, 2),
        ("embedding", 50, 32, 24, 1),
        ("linear", 24, 64, 32, 4),
        ("linear", 24, 32, 64, 2),
        ("linear_bias", 24, 96, 32, 2),
        ("linear_bias", 24, 32, 32, 2),
    }
    assert not any(isinstance(one, _modules.Applied) for one in model.modules())
    read = shapes.read(path)
    assert read == found
    cells = Selection(
        shapes.op_names(read), ["x86_64"], ["cpu"], ["shapes"], ["float32"], shapes=read
    ).cells()
    assert {(one.op.name, one.workload_set, one.workload.name) for one in cells} >= {
        ("rmsnorm", "shapes", "24x32"),
        ("attention", "shapes", "2x4x12x8"),
    }


def test_lengths_are_those_of_their_axes_in_any_order(tmp_path: Path) -> None:
    path = tmp_path / "shapes.jsonl"
    line = '{{"op": "softmax", "dtype": "float32", "dims": {{"{}": 2, "{}": 3}}}}\n'
    path.write_text(line.format("rows", "cols") + line.format("cols", "rows"))
    found = shapes.workloads(shapes.read(path), ops.load("softmax"), "float32")
    assert [one.name for one in found] == ["2x3", "3x2"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "not a line of JSON"),
        ("[" * 100_000, "not a line of JSON"),
        ('{"op": "softmin", "dtype": "float32", "dims": {}}', "softmin"),
        ('{"op": "softmax", "dtype": "float32", "dims": {"rows": 2}}', "axes"),
        ('{"op": "softmax", "dtype": "float32", "dims": {"rows": "2", "cols": 2}}', "rows"),
        (
            '{"op": "softmax", "dtype": "float32", "dims": {"rows": -2, "cols": 2}}',
            "expected a length",
        ),
        ('{"op": "softmax", "dtype": "int3", "dims": {"rows": 2, "cols": 2}}', "int3"),
        ("", "has no shapes"),
    ],
    ids=["open", "deep", "op", "axes", "text", "negative", "dtype", "empty"],
)
def test_a_line_that_is_not_a_shape_is_named(line: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "shapes.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(ConfigError, match=said):
        shapes.read(path)


def test_arguments_that_are_none_are_told(tmp_path: Path) -> None:
    model = nn.ReLU()
    for given, said in (
        ((torch.ones(2),), "expected apply"),
        (("no_such_library_here", torch.ones(2)), "export library"),
        ((torch.ones(2), torch.ones(2)), "expected one that"),
    ):
        with pytest.raises(ConfigError, match=said):
            portkern.apply(model, *given)
    with pytest.raises(ConfigError, match="expected a tensor, a tuple"):
        portkern.apply(model, 3, record=tmp_path / "x")
    with pytest.raises(ConfigError, match="calls nothing"):
        portkern.apply(nn.Sigmoid(), torch.ones(2), record=tmp_path / "x")


def test_the_mean_of_many_losses_is_of_16_bits_where_their_sum_is_not() -> None:
    losses = torch.full((16384,), 9.0, dtype=torch.float16)
    mean = _functions.reduced("mean")(lambda *_: losses, None)
    found = mean(torch.zeros(16384, 2), torch.zeros(16384, dtype=torch.int64))
    assert (found.item(), found.dtype) == (9.0, torch.float16)
